"""Continued pretraining: masked language modelling on text before fine-tuning.

On the texts of a data set this is task-adaptive pretraining (TAPT; Gururangan et al. 2020, "Don't
Stop Pretraining", https://arxiv.org/abs/2004.10964). A checkpoint without a language-model head
obtains one in this way: the likelihoods of an untrained head are meaningless.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from auxlearn.core import rng
from auxlearn.core.arguments import UserPath, checked
from auxlearn.core.cache import TensorCache, content_key
from auxlearn.core.config import differences
from auxlearn.core.errors import DataError, RunError, TrainingDiverged, UserError
from auxlearn.core.files import (
    expand,
    filled_folder,
    read_record,
    user_path,
    verify_export,
    write_checked_json,
    write_manifest,
)
from auxlearn.core.metric_names import Quantity
from auxlearn.core.progress import Reporter
from auxlearn.core.run_settings import PretrainSettings
from auxlearn.core.settings import Columns, PluginChoice
from auxlearn.core.signals import StopRequest
from auxlearn.core.validation import validate
from auxlearn.core.version import __version__
from auxlearn.data.audit import describe_lengths, whole_lengths
from auxlearn.data.batches import BatchStream
from auxlearn.data.corpora import read_corpus
from auxlearn.data.dataset import Split
from auxlearn.data.examples import without_labels
from auxlearn.data.leaks import save_trained_on, trained_on
from auxlearn.data.load import find_tables, load_dataset
from auxlearn.data.memory import in_memory
from auxlearn.data.splits import hold_out, hold_out_of_many
from auxlearn.data.tokens import Tokenization, TokenizedTexts
from auxlearn.encoders.device import Compute, choose_compute, usual_torch
from auxlearn.encoders.load import check_length, load_encoder
from auxlearn.encoders.optimizer import Schedule, build_optimizer
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.encoders.source import encoder_content
from auxlearn.evaluation.predict import texts_of
from auxlearn.kinds.base import Kind
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import score_masked
from auxlearn.results.console import default_reporter
from auxlearn.results.folder import FAULT, locked_folder
from auxlearn.results.outputs import check_output_folder
from auxlearn.tasks.base import MaskedLanguageModelling
from auxlearn.training.checkpoint import CheckpointFolder, load_optimizer_tensors
from auxlearn.training.inputs import RunInputs, changes_in
from auxlearn.training.loop import LOG_EVERY, Loop
from auxlearn.training.setup import prepare_task
from auxlearn.weighting.state import optimizer_tensors

#: Of the optimizer, as the defaults of a run are.
WEIGHT_DECAY, WARMUP_RATIO, MAX_GRAD_NORM = 0.01, 0.06, 1.0
#: Share of the texts that is held out for evaluation.
HELD_OUT = 0.05
#: Texts that are held out at most: they are evaluated twice, and more tell hardly more. The mean
#: loss at the masked tokens of 2,000 texts of 24 words has a standard error of some 0.03 nats.
MOST_HELD_OUT = 2_000
#: Seconds of training between two checkpoints; one is written at the end as well.
CHECKPOINT_SECONDS = 60.0
#: The record of a pretraining, of its settings and inputs and at the end its results. It has no
#: times, so that equal pretrainings have equal folders.
FILE = "pretraining.json"


@dataclass(frozen=True)
class PretrainResults:
    """Results of a pretraining, evaluated on held-out texts."""

    texts: int
    steps: int
    loss_before: float  # mean cross-entropy at masked tokens before, in nats
    loss_after: float  # the same afterwards, with the same masks
    accuracy_before: float  # share of the masked tokens that were predicted correctly before
    accuracy_after: float  # the same afterwards, with the same masks
    seconds: float  # wall time of training; 0 for one that had finished before

    @property
    def measured(self) -> bool:
        """Whether a token of the held-out texts was masked: what is not predicted has a loss."""
        return self.loss_before > 0 or self.accuracy_before > 0


@dataclass(frozen=True)
class _Record:
    """What ``pretraining.json`` holds."""

    settings: dict[str, Any]  # the settings that the result depends on
    inputs: RunInputs  # content of the encoder, the texts and this package
    results: PretrainResults | None = None  # the results, once it is finished


class PretrainFolder:
    """Access to the folder of a pretraining."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.checkpoints = CheckpointFolder(path / "checkpoint")
        self._settings = dict(settings)
        self._inputs: RunInputs = {}

    def check(self) -> None:
        """Check, before any work is done, that this pretraining can use the folder."""
        check_output_folder(self.path, "an encoder")
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file: choose another --output")
        if record := self._read():
            saved, given = record.settings, self._settings
            differing = [
                difference
                for name in sorted({*saved, *given})
                for difference in differences(name, saved.get(name), given.get(name))
            ]
            if differing:
                raise RunError(
                    f"{self.path} holds another pretraining (it has {'; '.join(differing)}): "
                    "choose another --output or delete the folder"
                )
        elif self.path.is_dir() and self._holds_more_than(FAULT):
            raise RunError(f"{self.path} is not empty: choose another --output")

    @contextmanager
    def locked(self, inputs: RunInputs) -> Iterator[None]:
        """Lock the folder within the block; create it where it is missing."""
        self.check()
        with locked_folder(self.path) as self._lock:
            self.checkpoints = CheckpointFolder(
                self.checkpoints.path, content_key(self._settings, inputs), self._lock.check
            )
            record = self._read() or _Record({}, {})
            begun = self.checkpoints.any or record.results
            before = record.inputs if begun else {}
            found = changes_in(before, lambda name, _: inputs.get(name, {}))
            if found.changed:
                raise RunError(
                    f"the pretraining in {self.path} cannot be resumed, as {found.changes} since "
                    f"it began: choose another --output, or delete {self.path} to start again"
                )
            self._inputs = inputs
            if record.results is None:
                self._write(_Record(self._settings, inputs))
            try:
                yield
            except Exception:
                if not self._holds_more_than(FAULT, FILE):  # free for other settings
                    (self.path / FILE).unlink(missing_ok=True)
                raise

    def _holds_more_than(self, *names: str) -> bool:
        return any(
            not entry.name.startswith(".") and entry.name not in names
            for entry in self.path.iterdir()
        )

    def finish(self, encoder: SharedEncoder, results: PretrainResults) -> None:
        """Write the encoder and the results, and delete the checkpoints."""
        self._lock.check()
        with filled_folder(self.path) as temporary:
            encoder.save_language_model(temporary)
            save_trained_on(temporary, [trained_on(self._settings["encoder"])])
            write_manifest(temporary)
        self._write(_Record(self._settings, self._inputs, replace(results, seconds=0.0)))
        self.checkpoints.delete()

    def results(self, reporter: Reporter) -> PretrainResults | None:
        """Return the results of a finished pretraining, whose files are verified."""
        record = self._read()
        if record is None or record.results is None:
            return None
        verify_export(self.path)
        self.checkpoints.delete()  # left by a kill just after the results
        reporter.message(f"{self.path} is finished: its results are read")
        return record.results

    def _read(self) -> _Record | None:
        path = self.path / FILE
        try:
            advice = f"delete {self.path} to start again"
            return read_record(_Record, path, RunError, advice, required=True)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _write(self, record: _Record) -> None:
        write_checked_json(self.path / FILE, asdict(record))


class _Scores(NamedTuple):
    """Mean cross-entropy in nats and accuracy at masked tokens."""

    loss: float
    accuracy: float


@checked
@usual_torch()
def pretrain(
    encoder: UserPath,
    output: UserPath,
    *,
    dataset: Any = None,
    corpus: Any = None,
    reporter: Reporter | None = None,
    verbose: bool = True,
    **settings: Any,
) -> PretrainResults:
    """Continue the pretraining of an encoder by masked language modelling.

    Args:
        encoder: Short name, folder, or hub id.
        output: Folder for the trained encoder and its tokenizer. An interrupted pretraining in it
            is resumed, and the results of a finished one are returned; it must not hold anything
            else.
        dataset: Data set whose train texts are used: a path, a name, or data in memory as for
            :func:`auxlearn.load_dataset`.
        corpus: File of texts, or a list of texts. Exactly one of ``dataset`` and ``corpus`` is
            needed.
        reporter: Shows progress in place of the console or the notebook.
        verbose: Whether progress and warnings are shown where there is no ``reporter``.
        settings: Any other field of :class:`~auxlearn.core.run_settings.PretrainSettings`, such as
            ``steps``, ``batch_size``, ``learning_rate`` and ``trainable``.

    Raises:
        UserError: The encoder, the texts, a setting or the output folder cannot be used.
        TrainingDiverged: The loss became NaN or infinite.
        Interrupted: The user asked to stop; a checkpoint has been written.
        RunInUse: Another process is running in the output folder.
    """
    reporter = reporter or default_reporter(verbose)
    if (dataset is None) == (corpus is None):
        raise UserError("pretrain needs one source of text: --dataset or --corpus")
    given = validate(PretrainSettings, {"encoder": encoder, **settings}, "pretrain")
    if corpus is not None and (given.text_pair_column or given.label_column):
        raise UserError("a corpus has texts alone: leave --text-pair-column and --label-column out")
    cache = TensorCache()
    texts = None
    if dataset is not None and in_memory(dataset):
        texts = _read_texts(dataset, None, given, cache, reporter)
        dataset = f"data in memory {content_key(texts.texts, texts.text_pairs)}"
    elif corpus is not None and in_memory(corpus):
        texts = replace(texts_of(corpus, given.text_column)[0], name="corpus")
        corpus = f"texts in memory {content_key(texts.texts)}"
    names = {"dataset": dataset and str(dataset), "corpus": corpus and str(corpus)}
    given = given.model_copy(update=names)
    folder = PretrainFolder(expand(output), given.model_dump(exclude={"device"}))
    folder.check()
    if finished := folder.results(reporter):
        return finished
    seed, max_length, steps = given.seed, given.max_length, given.steps
    compute = choose_compute(given.device)
    if texts is None:
        texts = _read_texts(dataset, corpus, given, cache, reporter)
    train, held_out = hold_out_texts(texts, cache, reporter)
    inputs: RunInputs = {
        "auxlearn": {"version": __version__},
        "encoder": encoder_content(given.encoder),
        "texts": {"content": content_key(texts.texts, texts.text_pairs)},
    }
    loaded = load_encoder(given.encoder, ["unused"], seed, do_lower_case=given.do_lower_case)
    for line in loaded.notes:
        reporter.message(line)
    if loaded.new_language_model_head:
        reporter.message("the encoder has no masked-language-model head: a new one is trained")
    loaded.new_language_model_head = False
    check_length(loaded.config, max_length)
    loaded.to(compute.device)
    tokenization = Tokenization(loaded.tokenizer, max_length)
    train_texts = tokenization.tokenize_split(train, cache, reporter.progress)
    note = describe_lengths(whole_lengths(tokenization, train, train_texts, cache), tokenization)
    reporter.message(note)
    held_out_texts = tokenization.tokenize_split(held_out, cache)
    with folder.locked(inputs):
        if finished := folder.results(reporter):  # by another process in the meantime
            return finished
        choice = PluginChoice(name="random_mlm")
        context = ObjectiveContext(
            choice.name,
            loaded,
            train,
            train_texts,
            max_length=max_length,
            cache=cache,
            seed=seed,
            progress=reporter.progress,
        )
        task = prepare_task(choice, context)
        assert isinstance(task, MaskedLanguageModelling)
        stream = BatchStream(train_texts, given.batch_size, seed, "pretrain")
        with _training_only(loaded, given.trainable) as trained:
            loop = _PretrainLoop(
                loaded,
                folder.checkpoints,
                steps,
                reporter,
                task=task,
                stream=stream,
                trained=trained,
                settings=given,
                compute=compute,
            )
            before, seconds = loop.run(held_out_texts)
        after = _evaluate(loaded, held_out_texts, seed)
        results = PretrainResults(
            texts=len(train_texts),
            steps=steps,
            loss_before=before.loss,
            loss_after=after.loss,
            accuracy_before=before.accuracy,
            accuracy_after=after.accuracy,
            seconds=seconds,
        )
        folder.finish(loaded, results)
    return results


def hold_out_texts(split: Split, cache: TensorCache, reporter: Reporter) -> tuple[Split, Split]:
    """Return the texts to train on and those to evaluate on, both without labels."""
    unlabelled = Split(split.name, split.texts, None, (), split.text_pairs)
    if len(unlabelled) < 2:
        raise UserError("pretraining needs at least two texts: one is held out for evaluation")
    if HELD_OUT * len(split) <= MOST_HELD_OUT:
        return hold_out(unlabelled, HELD_OUT, seed=0, name="held out")

    def choose() -> dict[str, Tensor]:
        with reporter.progress("holding out texts", len(split)) as advance:
            return {"rows": torch.tensor(hold_out_of_many(unlabelled, MOST_HELD_OUT, advance))}

    key = content_key("held out", MOST_HELD_OUT, split.texts, split.text_pairs)
    held = cache.get(key, choose)["rows"].numpy()
    rest = np.delete(np.arange(len(split)), held)
    return unlabelled.select(rest), unlabelled.select(held, name="held out")


def _read_texts(
    dataset: Any, corpus: Any, given: PretrainSettings, cache: TensorCache, reporter: Reporter
) -> Split:
    if corpus is not None:
        path, column = user_path(corpus), given.text_column
        texts = read_corpus(path, cache, column, exact=True, progress=reporter.progress)
    else:
        columns = Columns(
            text_column=given.text_column,
            text_pair_column=given.text_pair_column,
            label_column=given.label_column,
            keep_null_labels=True,  # the labels take no part: what they are is of no importance
        )
        try:
            texts = load_dataset(dataset, columns=columns).splits["train"]
        except DataError as error:
            tables = find_tables(dataset, columns)
            if tables is None or "train" not in tables:
                raise
            texts = without_labels(tables["train"], columns, "train")
            reporter.message(f"the texts of train are read without labels ({error})")
    for note in texts.notes:
        reporter.message(note)
    return texts


@dataclass(eq=False, kw_only=True)
class _PretrainLoop(Loop):
    """The optimizer steps of a pretraining."""

    title = "masked language modelling"

    task: MaskedLanguageModelling
    stream: BatchStream
    trained: list[nn.Parameter]
    settings: PretrainSettings
    compute: Compute

    def __post_init__(self) -> None:
        super().__post_init__()
        optimizer = build_optimizer(self.trained, self.settings.learning_rate, WEIGHT_DECAY)
        self.schedule = Schedule(optimizer, self.total_steps, WARMUP_RATIO)
        self.before: _Scores | None = None
        self._losses: list[Tensor] = []
        self._saved = 0.0

    def run(self, held_out: TokenizedTexts) -> tuple[_Scores, float]:
        """Train to the end; return the scores before and the seconds, before a kill included."""
        if not self.resume():
            self.before = _evaluate(self.encoder, held_out, self.settings.seed)
        assert self.before is not None
        self._saved = time.perf_counter()
        self._started = self._saved - self.state.seconds
        with StopRequest() as stop:
            self.train(stop)
        return self.before, time.perf_counter() - self._started

    def run_step(self) -> None:
        seed, step = self.settings.seed, self.state.step
        generator = rng.generator(seed, "pretrain", "draws", step)
        dropout = rng.seeded(seed, "pretrain", "dropout", step, device=self.compute.device)
        with dropout, self.compute.autocast():
            loss = self.task.loss(self.encoder, self.stream.batch(step), generator)
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, MAX_GRAD_NORM)
        self.schedule.apply(step)
        self.schedule.optimizer.step()
        self.schedule.optimizer.zero_grad(set_to_none=True)
        self._losses.append(loss.detach())
        self.state.step += 1

    def after_step(self) -> None:
        last = self.state.step == self.total_steps
        if self.state.step % LOG_EVERY == 0 or last:
            self._log()
        if last or time.perf_counter() - self._saved >= CHECKPOINT_SECONDS:
            self.save()
            self._saved = time.perf_counter()

    def _log(self) -> None:
        mean, step = float(torch.stack(self._losses).mean()), self.state.step
        self._losses = []
        if not math.isfinite(mean):
            raise TrainingDiverged(
                f"the loss became {mean} by step {step}: lower --learning-rate, in a new --output"
            )
        self.reporter.log({"kind": "train", "step": step, Quantity.LOSS.key("mlm"): mean})

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return the state of the optimizer, the scores before, and the losses since the log."""
        pending = torch.stack(self._losses) if self._losses else torch.zeros(0)
        scores = torch.tensor(self.before, dtype=torch.float64)
        return {
            "optimizer": optimizer_tensors(self.schedule.optimizer),
            "before": {"scores": scores, "losses": pending},
        }

    def restore(self, tensors: Mapping[str, dict[str, Tensor]]) -> None:
        load_optimizer_tensors(self.schedule.optimizer, tensors["optimizer"])
        self.before = _Scores(*tensors["before"]["scores"].tolist())
        self._losses = list(tensors["before"]["losses"].to(self.compute.device))


def _evaluate(encoder: SharedEncoder, texts: TokenizedTexts, seed: int) -> _Scores:
    """Return loss and accuracy at masked tokens, with the same masks at every call."""
    found = score_masked(encoder, texts, Kind.eval_batch, seed, "pretrain", "measure")
    return _Scores(found.loss, found.accuracy)


@contextmanager
def _training_only(
    encoder: SharedEncoder, trainable: Literal["head", "all"]
) -> Iterator[list[nn.Parameter]]:
    """Yield the parameters to train; within the block all others are frozen."""
    trained = list(encoder.language_model.parameters())
    if trainable == "head":
        backbone = {id(parameter) for parameter in encoder.body.parameters()}
        trained = [parameter for parameter in trained if id(parameter) not in backbone]
    trained_ids = {id(parameter) for parameter in trained}
    frozen = [p for p in encoder.parameters() if p.requires_grad and id(p) not in trained_ids]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield trained
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
