"""A whole run: from a configuration to a run folder with results and an exported model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from auxlearn.core.cache import content_key
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, RunError
from auxlearn.core.files import expand, replaced_folder, write_manifest
from auxlearn.core.metric_names import factor_table
from auxlearn.core.processes import ALONE, Processes
from auxlearn.core.progress import Reporter
from auxlearn.core.registry import REPORTERS
from auxlearn.data.audit import describe_cut, describe_lengths, unknown_in, whole_lengths
from auxlearn.data.batches import BatchStream
from auxlearn.data.dataset import TextDataset
from auxlearn.data.leaks import example_keys, save_trained_on, trained_on
from auxlearn.data.memory import save_folder
from auxlearn.data.run_data import with_known_labels
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import check_compiler, choose_compute
from auxlearn.encoders.optimizer import Schedule, run_optimizer
from auxlearn.encoders.trainable import (
    LowRankAdapters,
    checkpoint_layers,
    compile_body,
    describe_trained,
)
from auxlearn.evaluation.evaluator import Evaluator
from auxlearn.evaluation.metrics import surrogate_report
from auxlearn.kinds.metrics import sign
from auxlearn.results.environment import Environment, changed_versions, with_peak_memory
from auxlearn.results.folder import RunFolder
from auxlearn.results.loggers import ForwardingReporter, ReportedRun
from auxlearn.results.perturbation_log import PerturbationLog
from auxlearn.results.record import (
    BestCheckpoint,
    DatasetRecord,
    Evaluation,
    RunResults,
)
from auxlearn.training.checkpoint import CheckpointFolder, write_tensors
from auxlearn.training.gradient_log import GradientLog
from auxlearn.training.inputs import InputRecord, collect_inputs, verify_finished
from auxlearn.training.loop import TrainingLoop
from auxlearn.training.plugin_checks import calling
from auxlearn.training.setup import (
    Materials,
    build_weighting,
    check_dropout,
    check_source,
    describe_classifier,
    describe_language_model,
    load_heads,
    training_step,
)
from auxlearn.training.validation import ValidationObjective
from auxlearn.weighting.base import Weighting


def train_run(
    config: RunConfig,
    weighting: Weighting,
    reporter: Reporter,
    dataset: TextDataset | None = None,
    processes: Processes = ALONE,
    parameters: Mapping[str, Tensor] | None = None,
    keep_parameters: Path | None = None,
) -> RunResults:
    """Train and evaluate one run of a resolved configuration, resume it, or return its results. Of
    several processes this is the leader; the others call :func:`follow`.

    Args:
        parameters: What is evaluated in place of training.
        keep_parameters: File for those of the best checkpoint.
    """
    folder = RunFolder.of(config)
    config = folder.with_own_data(config)
    if folder.finished:
        with folder.locked(config):
            return load_finished(folder, config, reporter)
    folder.check(config)
    check_source(config, folder.path)
    if config.compile:
        check_compiler(choose_compute(config.device).device)
    reported = ReportedRun(folder.path, config.model_dump(mode="json"))
    loggers = []
    for cls in map(REPORTERS.get, config.report_to):
        with calling(cls, "__init__"):
            loggers.append(cls(reported))
    reporter = ForwardingReporter(reporter, loggers)
    started = time.perf_counter()
    reporter.message(f"reading data set {config.dataset}")
    run = _Run.read(
        config,
        reporter,
        weighting.validation_source,
        dataset,
        weighting=weighting,
        folder=folder,
        processes=processes,
    )
    inputs = collect_inputs(config, run.data, weighting.validation_source)
    run.check_trained_on()
    for line in (*run.data.notes, *run.data.warnings, *run.encoder.notes):
        reporter.message(line)
    if line := describe_classifier(config, run.encoder):
        reporter.message(line)
    with folder.locked(config), closing(reporter):
        if folder.finished:  # another process has finished it in the meantime
            return load_finished(folder, config, reporter)
        if dataset is not None and not expand(config.dataset).is_dir():
            save_folder(dataset, expand(config.dataset), config.columns)
        run.identity = content_key(config.digest, inputs)
        run.tracker = InputRecord(folder.path, inputs, resumes=run.checkpoints.any)
        if line := changed_versions(Environment.load(folder.path)):
            reporter.message(line)
        count = run.micro_batches = _micro_batches(config, run.checkpoints, processes, reporter)
        message = {"config": config.model_dump(mode="json"), "micro_batches": count}
        processes.share(message | {"trains": parameters is None})
        loop = run.prepare()
        prepared = time.perf_counter()
        if parameters is None:
            loop.run()
        else:
            loop.evaluate_at({"encoder": dict(parameters)})
        trained = time.perf_counter()
        folder.check_lock()
        evaluated = run.evaluate(loop)
        seconds = {
            "preparation": prepared - started,
            "training": loop.state.seconds,  # with those before the run was resumed
            "evaluation": time.perf_counter() - trained,
        }
        results = run.results(loop, *evaluated, seconds)
        folder.check_lock()
        if keep_parameters is not None:  # before adapters are merged
            write_tensors(keep_parameters, run.encoder.tensors())
        run.export(results)
        results = results.save(folder.path)
        run.checkpoints.delete()
        reporter.log_scores(results)
    return results


def follow(processes: Processes, dataset: TextDataset | None) -> Path:
    """Take part in the runs of a leader, writing nothing of them; return the last folder."""
    while "folder" not in (message := processes.share()):
        config = RunConfig.model_validate(message["config"])
        weighting = build_weighting(config)
        with TemporaryDirectory(prefix="auxlearn-") as scratch:
            run = _Run.read(
                config,
                Reporter(),
                weighting.validation_source,
                dataset,
                weighting=weighting,
                folder=RunFolder(Path(scratch)),
                processes=processes,
                micro_batches=message["micro_batches"],
            )
            loop = run.prepare()
            if message["trains"]:
                loop.run()
            else:
                loop.evaluate_at(None)
            run.evaluate(loop)
    return Path(message["folder"])


def _micro_batches(
    config: RunConfig, checkpoints: CheckpointFolder, processes: Processes, reporter: Reporter
) -> int:
    """Return into how many micro-batches a batch is divided: the same when a run is resumed."""
    asked, count = config.gradient_accumulation_steps, processes.count
    micro_batches = checkpoints.micro_batches() or -(-asked // count) * count
    if micro_batches > config.batch_size:
        raise ConfigError(
            f"{count} processes cannot divide a batch of {config.batch_size} examples among them: "
            "start fewer, or raise --batch-size"
        )
    if count > 1:
        reporter.message(
            f"{count} processes train, each on its part of {micro_batches} micro-batches"
        )
    if micro_batches < count:
        reporter.message(
            f"warning: the run was begun with {micro_batches} micro-batches per step, so that "
            f"{count - micro_batches} of {count} processes have no work"
        )
    return micro_batches


def load_finished(folder: RunFolder, config: RunConfig, reporter: Reporter) -> RunResults:
    """Return the results of a finished run, unless one of its inputs has changed since."""
    CheckpointFolder(folder.checkpoint_path).delete()  # left by a kill just after the results
    for line in verify_finished(folder.path, config):
        reporter.message(line)
    results = RunResults.load(folder.path)
    if results.digest != config.digest:
        raise RunError(
            f"{folder.path} holds the results of other settings (hash {results.digest}, not "
            f"{config.digest}): choose another --output, or delete {folder.path} to train again"
        )
    now, then = config.model_dump(mode="json"), results.config
    asked = [name for name in ("report_to", "gradient_log_steps") if now[name]]
    missing = [name for name in asked if now[name] != then.get(name)]
    folder.verify_exports()
    if config.keep_model and not folder.model_path.is_dir():
        if then.get("keep_model"):
            reporter.message(f"warning: {folder.model_path} was deleted since it was trained")
        else:
            missing.append("a model")
    if missing:
        reporter.message(
            f"warning: {folder.path} was trained without {' and '.join(missing)}: delete it to "
            "train again"
        )
    reporter.message(f"{folder.path} is finished: its results are read")
    return results


@dataclass(kw_only=True)
class _Run(Materials):
    """The stages of a run."""

    weighting: Weighting
    folder: RunFolder
    processes: Processes
    micro_batches: int = 1  # of a step
    identity: str = ""  # what its checkpoints belong to
    init_from: dict[str, Any] | None = None  # what training begins from, for the results

    @cached_property
    def checkpoints(self) -> CheckpointFolder:
        return CheckpointFolder(self.folder.checkpoint_path, self.identity, self.folder.check_lock)

    @cached_property
    def evaluator(self) -> Evaluator:
        return Evaluator(
            self.encoder,
            self.data.dataset,
            self.data.ood_sets,
            self.tokenize,
            self.compute,
            self.folder.predictions_path,
            self.processes,
            count_unknown=self.config.unknown_labels == "count",
            choose_thresholds=self.config.thresholds == "dev",
        )

    @cached_property
    def adapters(self) -> LowRankAdapters | None:
        """The adapters that are trained in place of the body, added once its scores are known."""
        config = self.config
        if not config.lora_rank:
            return None
        return LowRankAdapters(
            self.encoder, config.lora_rank, config.lora_alpha, config.lora_dropout, config.seed
        )

    def prepare(self) -> TrainingLoop:
        """Prepare the tasks with the pretrained encoder, then build the training loop."""
        config = self.config
        self._warn_of_shared_dev()
        train_texts = self.tokenize(self.data.train)
        whole = whole_lengths(self.tokenization, self.data.train, train_texts, self.cache)
        self.reporter.message(describe_lengths(whole, self.tokenization))
        if note := unknown_in("train", train_texts, self.encoder.tokenizer.unk_token_id):
            self.reporter.message(f"warning: {note}")
        sets, validation = self.evaluator.sets, self.data.validation
        splits = {name: ood.split for name, ood in sets.items()}
        splits |= {f"{name}, paired": ood.partner for name, ood in sets.items() if ood.partner}
        if validation is not None and validation is not splits["dev"]:
            splits["the validation examples"] = validation
        for name, split in splits.items() if self.processes.leads else ():
            texts, named = self.evaluator.texts(split), replace(split, name=name)
            for line in describe_cut(self.tokenization, named, texts, self.cache):
                self.reporter.message(line)
        train_texts = self.perturbed(train_texts)
        primary_loss = self.primary_loss(train_texts)
        auxiliaries = self.auxiliaries(train_texts)
        # The objectives have just added their heads.
        self.init_from = load_heads(config, self.encoder, self.reporter)
        self._warn_of_language_model(train_texts)
        if self.adapters:
            self.reporter.message(f"low-rank adapters of rank {config.lora_rank}")
        self.reporter.message(describe_trained(self.encoder))
        check_dropout([primary_loss, *(auxiliary.task for auxiliary in auxiliaries)], self.encoder)
        if config.gradient_checkpointing:
            checkpoint_layers(self.encoder)
        if config.compile:
            self.reporter.message("compiling the encoder")
            compile_body(self.encoder, self.compute.autocast)
        primary = BatchStream(train_texts, config.batch_size, config.seed, "primary")
        steps = config.epochs * primary.steps_per_epoch
        optimizer = run_optimizer(config, self.encoder)
        validation = self.data.validation
        step = training_step(
            self.weighting,
            None if validation is None else self.tokenize(validation),
            self._surrogate,
            encoder=self.encoder,
            primary=primary,
            primary_loss=primary_loss,
            auxiliaries=auxiliaries,
            schedule=Schedule(optimizer, steps, config.warmup_ratio, config.lr_scheduler_type),
            seed=config.seed,
            gradient_accumulation_steps=self.micro_batches,
            max_grad_norm=config.max_grad_norm,
            autocast=self.compute.autocast,
            scaler=torch.amp.GradScaler(
                self.compute.device.type, enabled=config.precision == "fp16"
            ),
            perturbation_log=PerturbationLog(self.folder.path, len(train_texts)),
            gradient_log=self._gradient_log(),
            processes=self.processes,
        )
        surrogate = None if validation is None else self._surrogate
        return TrainingLoop(
            self.encoder,
            self.checkpoints,
            steps,
            self.reporter,
            self.processes,
            config=config,
            folder=self.folder,
            training_step=step,
            weighting=self.weighting,
            evaluate=partial(self.evaluator.dev_metrics, surrogate),
            baseline=sign(config.metric) * self.evaluator.dev_baseline(config.metric),
        )

    def evaluate(
        self, loop: TrainingLoop
    ) -> tuple[dict[str, Evaluation], dict[str, dict[str, float]]]:
        """Evaluate the best checkpoint: by labelled set, and the metrics of each task."""
        return self.evaluator.evaluate_all(), loop.task_metrics()

    def results(
        self,
        loop: TrainingLoop,
        evaluations: dict[str, Evaluation],
        task_metrics: dict[str, dict[str, float]],
        seconds: dict[str, float],
    ) -> RunResults:
        """Return the results of a training that has ended."""
        config, state = self.config, loop.state
        weights = self.weighting.weights.tolist()
        facts = dict(loop.training_step.primary_loss.facts)
        return RunResults(
            config=config.model_dump(mode="json"),
            digest=config.digest,
            dataset=self._dataset_record(),
            best=BestCheckpoint(
                step=state.best_step,
                epoch=state.best_step / loop.steps_per_epoch,
                metric=config.metric,
                value=sign(config.metric) * state.best_value,
            ),
            evaluations=evaluations,
            weights=dict(zip(config.objective_names(), weights, strict=True)),
            steps=state.step,
            stopped=state.joint_ended_by or loop.ended_by,
            final_stopped=loop.ended_by if loop.in_primary_only_phase else None,
            degenerate=evaluations["dev"].chance,
            auxiliary=task_metrics | ({"primary": facts} if facts else {}),
            surrogate=surrogate_report(self.folder.read_metrics(), config.metric),
            seconds=seconds,
            environment=with_peak_memory(Environment.load(self.folder.path)),
            init_from=self.init_from,
            factors=factor_table(self.folder.read_metrics()),
            account=self.weighting.account(
                self.folder.read_metrics(), state.best_step, loop.training_step.total_steps
            ),
        )

    def export(self, results: RunResults) -> None:
        """Write the plots and, if it is kept, the model with the heads of objectives."""
        from auxlearn.results.plots import plot_run

        if self.config.keep_model:
            self._export_model(results)
        plot_run(self.folder.read_metrics(), results, self.folder.plots_path)

    def _export_model(self, results: RunResults) -> None:
        from auxlearn.results.model_card import model_card

        if self.adapters:
            with replaced_folder(self.folder.adapter_path) as temporary:
                self.adapters.save(temporary, self.config.initial_encoder)
                write_manifest(temporary)
            self.adapters.merge()
        with replaced_folder(self.folder.model_path) as temporary:
            self.encoder.save(
                temporary, self.config.max_length, self.config.windowing, self.evaluator.entries
            )
            (temporary / "README.md").write_text(model_card(results), encoding="utf-8")
            earlier = trained_on(self.config.initial_encoder)
            evaluated = self.evaluated
            save_trained_on(temporary, [earlier, evaluated.train_keys, *evaluated.trained])
            write_manifest(temporary)
        if self.encoder.heads or not self.encoder.lacks_language_model:
            with replaced_folder(self.folder.heads_path) as temporary:
                self.encoder.save_heads(temporary)
                write_manifest(temporary)

    def _warn_of_shared_dev(self) -> None:
        """Report that dev both drives the weights and selects the checkpoint."""
        source = self.weighting.validation_source
        if source is not None and source.is_dev:
            self.reporter.message(
                f"the examples of dev drive the weights of {self.weighting.name} and select the "
                "checkpoint as well: results on dev are optimistic; split train:SHARE keeps dev "
                "out of training"
            )

    def _warn_of_language_model(self, train_texts: TokenizedTexts) -> None:
        """Report a useless language-model head if it is used; once, not when a run is resumed."""
        resumes = self.checkpoints.any
        if not self.encoder.language_model_used or resumes or not self.processes.leads:
            return
        dev = self.tokenize(self.data.dataset.splits["dev"])
        if line := describe_language_model(
            self.config, self.encoder, train_texts, dev, self.compute
        ):
            self.reporter.message(line)

    @property
    def _surrogate(self) -> str:
        """What the validation loss is."""
        return self.config.metric if self.weighting.follows_metric else "cross_entropy"

    def _gradient_log(self) -> GradientLog:
        """Return when gradients are measured; those of dev only if the user has asked for it."""
        every = self.config.gradient_log_steps
        if every is None:
            return GradientLog()
        dataset = self.data.dataset
        dev = self.tokenize(
            self.data.validation or with_known_labels(dataset.splits["dev"], dataset.label_names)
        )
        validation = ValidationObjective(
            dev,
            self.config.batch_size,
            self._surrogate,
            self.config.seed,
            attends_to_padding=self.weighting.attends_to_padding,
            kind=self.encoder.kind,
        )
        return GradientLog(every, validation)

    def _dataset_record(self) -> DatasetRecord:
        dataset, ood_sets = self.data.dataset, self.data.ood_sets
        splits = dataset.splits | dataset.ood | {ood.source.name: ood.split for ood in ood_sets}
        folds = ""
        if self.config.fold:
            keys = [
                example_keys(split) for split in dataset.splits.values() if split.labels is not None
            ]
            folds = content_key(np.sort(np.concatenate(keys)[:, 1]).tolist())[:16]
        return DatasetRecord(
            name=dataset.name,
            fingerprint=dataset.fingerprint,
            examples={name: len(split) for name, split in splits.items()},
            label_names=list(dataset.label_names),
            notes=[*self.data.notes, *self.notes],
            pairs=dataset.splits["train"].text_pairs is not None,
            ood={ood.source.name: ood.source.split for ood in ood_sets},
            folds=folds,
        )
