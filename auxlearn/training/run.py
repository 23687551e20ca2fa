"""A whole run: from a configuration to a run folder with figures and an exported model."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from auxlearn.cache import TensorCache
from auxlearn.config import Metric, RunConfig
from auxlearn.data.audit import audit
from auxlearn.data.batches import BatchStream
from auxlearn.data.corpus import read_corpus
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.load import load_dataset
from auxlearn.data.ood import load_ood_sets
from auxlearn.data.run_data import columns_of, cut_validation
from auxlearn.data.tokens import TokenizedTexts, join, tokenize_split
from auxlearn.encoders.attention import attend_in_single_precision
from auxlearn.encoders.load import check_length, load_encoder
from auxlearn.encoders.precision import Compute, choose_compute
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.errors import ConfigError, UserError
from auxlearn.evaluation.evaluator import Evaluator
from auxlearn.evaluation.surrogate import surrogate_report
from auxlearn.masking.perturbation import perturb_texts_once
from auxlearn.registry import TASKS, WEIGHTINGS
from auxlearn.reporting.reporter import Reporter
from auxlearn.results.folder import RunFolder, default_output
from auxlearn.results.perturbation_log import PerturbationLog
from auxlearn.results.record import RunResults
from auxlearn.tasks.base import TaskContext
from auxlearn.training.checkpoint import CheckpointFolder
from auxlearn.training.inputs import InputRecord, collect_inputs, verify_finished
from auxlearn.training.loop import TrainingLoop
from auxlearn.training.optimization import LinearSchedule, optimizer_of_run
from auxlearn.training.step import Auxiliary, RunStep
from auxlearn.training.validation import ValidationObjective
from auxlearn.weighting.base import ValidationOptions, Weighting

logger = logging.getLogger(__name__)


def train(config: RunConfig, reporter: Reporter | None = None) -> RunResults:
    """Run a training, or go on with it, or return what it came to earlier.

    Args:
        config: The settings; what is left out is filled in.
        reporter: Shows progress; silent by default.

    Returns:
        The figures, which also lie in the run folder (:mod:`auxlearn.results.folder`).

    Raises:
        UserError: Anything a user can mend; the subclasses say what kind.
    """
    reporter = reporter or Reporter()
    config = config.resolved()
    weighting = WEIGHTINGS.get(config.weights.name)
    options = weighting.Options.model_validate(config.weights.options)
    rule: Weighting = weighting(options, config.objective_names())
    _ = rule.weights  # options that do not fit the objectives are refused before anything is made
    compute = choose_compute(config)
    if config.compile and rule.differentiates_twice:
        raise ConfigError(
            f"compile: updates cannot be unrolled through a compiled encoder, as {rule.name} is "
            "asked to do: leave --compile out"
        )
    folder = RunFolder(Path(config.output) if config.output else default_output(config))
    if folder.finished:
        with folder.claimed(config):
            return _results_of_finished(folder, config, reporter)
    if config.compile:
        from auxlearn.encoders.compiled import check_compiler

        check_compiler(compute.device)
    if config.tensorboard:
        from auxlearn.reporting.tensorboard import TensorBoardReporter

        reporter = TensorBoardReporter(reporter, folder.path / "tensorboard")
    started = time.perf_counter()
    cache = TensorCache(Path(config.cache_dir).expanduser() if config.cache_dir else None)
    reporter.message(f"reading data set {config.dataset}")
    dataset = load_dataset(
        config.dataset,
        columns=columns_of(config),
        cache_dir=cache.folder,
    )
    ood_sets, remarks = load_ood_sets(config.ood, config.dataset, dataset)
    dataset = replace(dataset, notes=(*dataset.notes, *remarks))
    inputs = collect_inputs(config, rule, dataset, ood_sets)
    train_split, validation_split = cut_validation(dataset, config, rule)
    for line in (*dataset.notes, *audit(dataset).warnings()):
        reporter.message(line)
    encoder = load_encoder(
        config.encoder, dataset.label_names, config.seed, config.attention_dropout
    )
    check_length(encoder, config.max_length)
    encoder.to(compute.device)
    if config.precision == "bf16" and compute.device.type == "cpu":
        attend_in_single_precision(encoder.body)
    with folder.claimed(config):
        if folder.finished:  # by another process, while this one was reading
            return _results_of_finished(folder, config, reporter)
        checkpoints = CheckpointFolder(folder.checkpoint_path)
        record = InputRecord(folder.path, inputs, resumes=checkpoints.any)
        tokenize = partial(
            tokenize_split, encoder.tokenizer, max_length=config.max_length, cache=cache
        )
        evaluator = Evaluator(
            encoder, dataset, ood_sets, tokenize, compute, folder.predictions_path
        )
        run = _Run(
            config=config,
            dataset=dataset,
            train_split=train_split,
            validation_split=validation_split,
            tokenize=tokenize,
            encoder=encoder,
            weighting=rule,
            compute=compute,
            evaluator=evaluator,
            folder=folder,
            cache=cache,
            inputs=record,
            reporter=reporter,
        )
        loop = run.prepare()
        prepared = time.perf_counter()
        progress = loop.run()
        trained = time.perf_counter()
        evaluations = evaluator.evaluate_all()
        results = RunResults(
            config=config.model_dump(mode="json"),
            digest=config.digest,
            dataset={
                "name": dataset.name,
                "fingerprint": dataset.fingerprint,
                "rows": {name: len(split) for name, split in (dataset.splits | dataset.ood).items()}
                | {ood.source.name: len(ood.split) for ood in ood_sets},
                "ood": {ood.source.name: ood.source.split for ood in ood_sets},
                "label_names": list(dataset.label_names),
                "notes": list(dataset.notes),
            },
            best={
                "step": progress.best_step,
                "epoch": progress.best_step / loop.steps_per_epoch,
                config.metric: progress.best_value,
            },
            evaluations=evaluations,
            weights=dict(zip(config.objective_names(), rule.weights.tolist(), strict=True)),
            steps=progress.step,
            stopped="patience" if loop.stopped_early else "epochs",
            degenerate=evaluations["dev"].constant_prediction,
            surrogate=surrogate_report(folder.read_metrics(), config.metric),
            seconds={
                "preparation": prepared - started,
                "training": progress.seconds,
                "evaluation": time.perf_counter() - trained,
            },
            environment=read_environment(folder),
        )
        run.export(results)
        results.save(folder.path)
        checkpoints.delete()
    return results


def _results_of_finished(folder: RunFolder, config: RunConfig, reporter: Reporter) -> RunResults:
    """Return the results of a run that is finished, unless what they were made of has changed.

    Raises:
        RunError: It has.
    """
    CheckpointFolder(folder.checkpoint_path).delete()  # left by a kill just after the results
    for line in verify_finished(folder.path, config):
        reporter.message(line)
    reporter.message(f"{folder.path} is finished; these are its results")
    return RunResults.load(folder.path)


@dataclass(frozen=True)
class _Run:
    """The parts of a run while it lasts."""

    config: RunConfig
    dataset: TextDataset
    train_split: Split
    validation_split: Split | None
    tokenize: Callable[[Split], TokenizedTexts]
    encoder: SharedEncoder
    weighting: Weighting
    compute: Compute
    evaluator: Evaluator
    folder: RunFolder
    cache: TensorCache
    inputs: InputRecord
    reporter: Reporter

    def _perturbed(self, texts: TokenizedTexts) -> TokenizedTexts:
        """Put text that the untouched encoder has perturbed beside the original or in its place."""
        config = self.config
        if config.perturbed_text == "none":
            return texts
        perturbed = perturb_texts_once(
            self.encoder, texts, config.perturbed_share, config.seed, self.cache
        )
        return join(texts, perturbed) if config.perturbed_text == "add" else perturbed

    def prepare(self) -> TrainingLoop:
        """Prepare the tasks with the untouched encoder, then build the loop."""
        config, encoder = self.config, self.encoder
        if self.weighting.validation_split == "dev":
            self.reporter.message(
                f"the rows of dev steer the weights of {self.weighting.name} and select the "
                "checkpoint as well: dev figures flatter the run; split train:SHARE keeps dev clean"
            )
        train_texts = self._perturbed(self.tokenize(self.train_split))
        auxiliaries = []
        for name, choice in zip(config.objective_names()[1:], config.aux, strict=True):
            cls = TASKS.get(choice.name)
            task = cls(cls.Options.model_validate(choice.options))
            task.prepare(
                TaskContext(
                    encoder=encoder,
                    texts=train_texts,
                    tokenize=partial(self._tokenize_corpus, name),
                    cache=self.cache,
                    progress=self.reporter.progress,
                    seed=config.seed,
                    record=partial(self.inputs.add_file, name),
                )
            )
            own = task.batches == "own"
            stream = BatchStream(task.texts, config.batch_size, config.seed, name) if own else None
            auxiliaries.append(Auxiliary(name, task, stream))
        if config.compile:
            from auxlearn.encoders.compiled import compile_body

            self.reporter.message("compiling the encoder")
            compile_body(encoder, self.compute.autocast)
        primary = BatchStream(train_texts, config.batch_size, config.seed, "primary")
        optimizer = optimizer_of_run(config, encoder)
        objectives = RunStep(
            encoder=encoder,
            auxiliaries=auxiliaries,
            primary=primary,
            optimizer=optimizer,
            schedule=LinearSchedule(
                optimizer, config.epochs * primary.steps_per_epoch, config.warmup_ratio
            ),
            seed=config.seed,
            gradient_accumulation_steps=config.gradient_accumulation_steps,
            max_grad_norm=config.max_grad_norm,
            validation=self._validation_objective(),
            autocast=self.compute.autocast,
            log=PerturbationLog(self.folder.path, len(train_texts)),
            attends_to_padding=self.weighting.attends_to_padding,
            clips_apart=self.weighting.clips_apart,
        )
        return TrainingLoop(
            config,
            self.folder,
            objectives,
            self.weighting,
            partial(
                self.evaluator.dev_metrics,
                self._surrogate if self.validation_split is not None else None,
            ),
            self.evaluator.dev_baseline(config.metric),
            self.reporter,
        )

    def _tokenize_corpus(self, task: str, path: Path) -> TokenizedTexts:
        if path.is_file():  # read_corpus says what is wrong with any other
            self.inputs.add_file(task, path)
        return self.tokenize(read_corpus(path, self.config.text_column or "text"))

    def export(self, results: RunResults) -> None:
        """Write the model folder and the pictures."""
        from auxlearn.reporting.model_card import model_card
        from auxlearn.reporting.plots import plot_run

        temporary = self.folder.path / ".model"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            self.encoder.save(temporary, self.config.max_length)
            (temporary / "README.md").write_text(model_card(results), encoding="utf-8")
        except (OSError, SafetensorError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise UserError(
                f"cannot write {self.folder.model_path} ({error}): free some space, "
                "then run the same command again"
            ) from None
        shutil.rmtree(self.folder.model_path, ignore_errors=True)
        os.replace(temporary, self.folder.model_path)
        plot_run(self.folder.read_metrics(), results, self.folder.plots_path)

    @property
    def _surrogate(self) -> Metric:
        """The metric that the validation loss stands in for; cross-entropy is accuracy's."""
        return self.config.metric if self.weighting.follows_metric else "accuracy"

    def _validation_objective(self) -> ValidationObjective | None:
        if self.validation_split is None:
            return None
        options = self.weighting.options
        size = options.batch_size if isinstance(options, ValidationOptions) else None
        return ValidationObjective(
            self.tokenize(self.validation_split),
            size or self.config.batch_size,
            self._surrogate,
            self.config.seed,
            head=self.weighting.dev_head,
            draws=max(self.config.gradient_accumulation_steps, self.weighting.validation_batches),
            attends_to_padding=self.weighting.attends_to_padding,
        )


def read_environment(folder: RunFolder) -> dict[str, Any]:
    """Return what ``environment.json`` holds."""
    import json

    return json.loads((folder.path / "environment.json").read_text(encoding="utf-8"))
