"""A whole run: from a configuration to a run folder with figures and an exported model."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from auxlearn.cache import TensorCache
from auxlearn.config import RunConfig
from auxlearn.data.audit import audit, seen_in_train
from auxlearn.data.batches import BatchStream
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.load import Columns, load_dataset
from auxlearn.data.readers import read_texts
from auxlearn.data.splits import hold_out
from auxlearn.data.tokens import tokenize_split
from auxlearn.encoders.load import check_length, load_encoder
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.errors import ConfigError, UserError
from auxlearn.files import write_bytes
from auxlearn.registry import TASKS, WEIGHTINGS
from auxlearn.results.folder import RunFolder, default_output
from auxlearn.results.record import Evaluation, RunResults
from auxlearn.tasks.base import TaskContext
from auxlearn.training.evaluation import class_probabilities, evaluate, to_model_labels
from auxlearn.training.loop import TrainingLoop
from auxlearn.training.objectives import Auxiliary, Objectives
from auxlearn.training.reporting import Reporter
from auxlearn.training.validation import ValidationObjective
from auxlearn.weighting.base import Weighting

logger = logging.getLogger(__name__)

#: Texts at once where no gradient is kept.
EVAL_BATCH = 128


@dataclass(frozen=True)
class Compute:
    """Device and precision of a run."""

    device: torch.device
    autocast: Callable[[], AbstractContextManager[None]]


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
    folder = RunFolder(Path(config.output) if config.output else default_output(config))
    if folder.finished:
        with folder.claimed(config):
            reporter.message(f"{folder.path} is finished; these are its results")
            return RunResults.load(folder.path)
    started = time.perf_counter()
    cache = TensorCache(Path(config.cache_dir).expanduser() if config.cache_dir else None)
    dataset = load_dataset(
        config.dataset,
        columns=Columns(config.text_column, config.text_pair_column, config.label_column),
        seed=config.seed,
        cache_dir=cache.folder,
    )
    for line in (*dataset.notes, *audit(dataset).summary()):
        reporter.message(line)
    encoder = load_encoder(config.encoder, dataset.label_names, config.seed)
    check_length(encoder, config.max_length)
    encoder.to(compute.device)
    with folder.claimed(config):
        run = _Run(config, dataset, encoder, rule, compute, folder, cache, reporter)
        loop = run.prepare()
        prepared = time.perf_counter()
        progress = loop.run()
        trained = time.perf_counter()
        evaluations = run.evaluate_all()
        results = RunResults(
            config=config.model_dump(mode="json"),
            digest=config.digest,
            dataset={
                "name": dataset.name,
                "fingerprint": dataset.fingerprint,
                "rows": {name: len(split) for name, split in run.splits().items()},
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
            seconds={
                "preparation": prepared - started,
                "training": progress.seconds,
                "evaluation": time.perf_counter() - trained,
            },
            environment=read_environment(folder),
        )
        run.export(results)
        results.save(folder.path)
        loop.checkpoints.delete()
    return results


class _Run:
    """The parts of a run while it lasts."""

    def __init__(
        self,
        config: RunConfig,
        dataset: TextDataset,
        encoder: SharedEncoder,
        weighting: Weighting,
        compute: Compute,
        folder: RunFolder,
        cache: TensorCache,
        reporter: Reporter,
    ) -> None:
        self.config = config
        self.dataset = dataset
        self.encoder = encoder
        self.weighting = weighting
        self.compute = compute
        self.folder = folder
        self.cache = cache
        self.reporter = reporter
        self.tokenize = partial(
            tokenize_split, encoder.tokenizer, max_length=config.max_length, cache=cache
        )
        train_split, self.validation_split = _cut_validation(
            dataset, weighting.validation_split, config.seed
        )
        self.train_texts = self.tokenize(train_split)
        self.dev_texts = self.tokenize(dataset.splits["dev"])

    def splits(self) -> dict[str, Split]:
        """All splits and out-of-distribution sets by name."""
        return {**self.dataset.splits, **self.dataset.ood}

    def prepare(self) -> TrainingLoop:
        """Prepare the tasks with the untouched encoder, then build the loop."""
        config, encoder = self.config, self.encoder
        context = TaskContext(
            encoder=encoder,
            texts=self.train_texts,
            tokenize=lambda path: self.tokenize(read_texts(path)),
            cache=self.cache,
            progress=self.reporter.progress,
            seed=config.seed,
        )
        auxiliaries = []
        for name, choice in zip(config.objective_names()[1:], config.aux, strict=True):
            cls = TASKS.get(choice.name)
            task = cls(cls.Options.model_validate(choice.options))
            task.prepare(context)
            own = task.batches == "own"
            stream = BatchStream(task.texts, config.batch_size, config.seed, name) if own else None
            auxiliaries.append(Auxiliary(name, task, stream))
        primary = BatchStream(self.train_texts, config.batch_size, config.seed, "primary")
        optimizer = build_optimizer(encoder, config)
        objectives = Objectives(
            encoder=encoder,
            auxiliaries=auxiliaries,
            primary=primary,
            optimizer=optimizer,
            schedule=linear_schedule(
                optimizer, config.epochs * primary.steps_per_epoch, config.warmup
            ),
            seed=config.seed,
            accumulation=config.accumulation,
            clip_norm=config.clip_norm,
            validation=self._validation_objective(),
            autocast=self.compute.autocast,
        )
        return TrainingLoop(
            config,
            self.folder,
            objectives,
            self.weighting,
            self._dev_figures,
            self.dataset.fingerprint,
            self.reporter,
        )

    def evaluate_all(self) -> dict[str, Evaluation]:
        """Evaluate dev, test and every out-of-distribution set, and write the predictions."""
        evaluations = {}
        with self.encoder.evaluating():
            for name, split in self.splits().items():
                if name == "train" or split.labels is None:
                    continue
                evaluations[name] = self._evaluate(name, split)
        return evaluations

    def export(self, results: RunResults) -> None:
        """Write the model folder and the pictures."""
        from auxlearn.analysis.plots import plot_run
        from auxlearn.results.model_card import model_card

        temporary = self.folder.path / ".model"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            self.encoder.save(temporary, self.config.max_length)
            (temporary / "README.md").write_text(model_card(results), encoding="utf-8")
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise UserError(
                f"cannot write {self.folder.model_path} ({error.strerror or error}): free some "
                "space, then run the same command again"
            ) from None
        shutil.rmtree(self.folder.model_path, ignore_errors=True)
        os.replace(temporary, self.folder.model_path)
        plot_run(self.folder.read_metrics(), results, self.folder.plots_path)

    def _validation_objective(self) -> ValidationObjective | None:
        if self.validation_split is None:
            return None
        size = getattr(self.weighting.options, "batch_size", None) or self.config.batch_size
        return ValidationObjective(
            self.tokenize(self.validation_split), size, self.config.metric, self.config.seed
        )

    def _dev_figures(self) -> dict[str, float]:
        found = self._evaluate("dev", self.dataset.splits["dev"], keep=False)
        return {
            "accuracy": found.all.accuracy,
            "macro_f1": found.all.macro_f1,
            "loss": found.loss,
        }

    def _evaluate(self, name: str, split: Split, keep: bool = True) -> Evaluation:
        texts = self.dev_texts if name == "dev" else self.tokenize(split)
        label_names = self.dataset.label_names
        labels = to_model_labels(split, label_names)
        probabilities = class_probabilities(
            self.encoder.classify, texts, EVAL_BATCH, self.compute.device, self.compute.autocast
        )
        if keep:
            write_predictions(
                self.folder.predictions_path / f"{name}.jsonl", probabilities, labels, label_names
            )
        train_labels = self.dataset.splits["train"].labels or ()
        return evaluate(
            probabilities,
            labels,
            label_names,
            seen_in_train(self.dataset.splits["train"], split),
            majority=Counter(train_labels).most_common(1)[0][0],
        )


def choose_compute(config: RunConfig) -> Compute:
    """Return the device and the precision asked for, through accelerate.

    Raises:
        ConfigError: CUDA is asked for and absent.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device 'cuda' is asked for, but this machine offers no CUDA: use --device cpu or auto"
        )
    # accelerate keeps one state per process and refuses a second precision; a run is one use.
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(
        cpu=config.device == "cpu",
        mixed_precision="bf16" if config.precision == "bf16" else "no",
    )
    return Compute(accelerator.device, accelerator.autocast)


def build_optimizer(encoder: SharedEncoder, config: RunConfig) -> torch.optim.AdamW:
    """Return AdamW over all parameters; biases and normalisation weights do not decay."""
    matrices = [p for p in encoder.parameters() if p.ndim >= 2]
    vectors = [p for p in encoder.parameters() if p.ndim < 2]
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate or 0.0)


def linear_schedule(
    optimizer: torch.optim.Optimizer, total: int, warmup: float
) -> torch.optim.lr_scheduler.LambdaLR:
    """Return a schedule that rises linearly over a share of the steps, then falls to zero.

    Args:
        optimizer: Whose learning rate is moved.
        total: Updates in all.
        warmup: Share of them with a rising rate.
    """
    rising = round(total * warmup)

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / (rising + 1)
        return max(0.0, (total - step) / max(1, total - rising))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def write_predictions(
    path: Path, probabilities: Any, labels: list[int], label_names: tuple[str, ...]
) -> None:
    """Write one line per row: its label, the predicted label, every class's probability."""
    import json

    lines = []
    for row, label in zip(probabilities, labels, strict=True):
        predicted = label_names[int(row.argmax())]
        record = {
            "label": label_names[label],
            "predicted": predicted,
            "probabilities": [round(float(p), 8) for p in row],
        }
        lines.append(json.dumps(record, ensure_ascii=False))
    write_bytes(path, ("\n".join(lines) + "\n").encode())


def read_environment(folder: RunFolder) -> dict[str, Any]:
    """Return what ``environment.json`` holds."""
    import json

    return json.loads((folder.path / "environment.json").read_text(encoding="utf-8"))


def _cut_validation(
    dataset: TextDataset, source: str | None, seed: int
) -> tuple[Split, Split | None]:
    """Return what is trained on, and the rows that a weighting learns from."""
    train_split = dataset.splits["train"]
    if source is None:
        return train_split, None
    if source == "dev":
        return train_split, dataset.splits["dev"]
    rest, held_out = hold_out(train_split, float(source.removeprefix("train:")), seed)
    return replace(rest, name="train"), held_out
