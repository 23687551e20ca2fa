"""Continued pretraining: masked language modelling on text before fine-tuning.

On the texts of a data set this is task-adaptive pretraining (TAPT; Gururangan et al. 2020, "Don't
Stop Pretraining", https://arxiv.org/abs/2004.10964). A checkpoint without a language-model head
obtains one in this way: the likelihoods of an untrained head are meaningless.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from auxlearn.core import rng
from auxlearn.core.arguments import UserPath, checked
from auxlearn.core.cache import TensorCache, content_key
from auxlearn.core.config import RunConfig, validate
from auxlearn.core.errors import Interrupted, TrainingDiverged, UserError
from auxlearn.core.files import expand
from auxlearn.core.metric_names import Quantity
from auxlearn.core.progress import Reporter
from auxlearn.core.registry import TASKS
from auxlearn.core.run_settings import PretrainSettings
from auxlearn.core.settings import Columns
from auxlearn.core.signals import StopRequest
from auxlearn.core.version import __version__
from auxlearn.data.batches import Batch, BatchStream
from auxlearn.data.dataset import Split
from auxlearn.data.examples import read_corpus
from auxlearn.data.load import load_dataset
from auxlearn.data.memory import in_memory
from auxlearn.data.splits import hold_out
from auxlearn.data.tokens import TokenizedTexts, tokenize_split
from auxlearn.encoders.device import Compute, choose_compute
from auxlearn.encoders.load import check_length, encoder_content, load_encoder
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.evaluation.evaluator import EVAL_BATCH
from auxlearn.evaluation.predict import texts_of
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import score_masked
from auxlearn.results.console import default_reporter
from auxlearn.tasks.base import MaskedLanguageModelling
from auxlearn.training.checkpoint import (
    CheckpointFolder,
    TrainingState,
    check_tensors,
    load_optimizer_tensors,
    optimizer_tensors,
)
from auxlearn.training.loop import LOG_EVERY
from auxlearn.training.optimizer import LinearSchedule, build_optimizer
from auxlearn.training.pretrain_folder import PretrainFolder, PretrainResults

#: Share of the texts that is held out for evaluation.
HELD_OUT = 0.05
#: Seconds of training between two checkpoints; one is written at the end as well.
CHECKPOINT_SECONDS = 60.0


class _Scores(NamedTuple):
    """Mean cross-entropy in nats and accuracy at masked tokens."""

    loss: float
    accuracy: float


@checked
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
    cache = TensorCache()
    texts = None
    if dataset is not None and in_memory(dataset):
        texts = _read_texts(dataset, None, given, cache)
        dataset = f"data in memory {content_key(texts.texts, texts.text_pairs)}"
    elif corpus is not None and in_memory(corpus):
        texts = replace(texts_of(corpus, given.text_column or "text"), name="corpus")
        corpus = f"texts in memory {content_key(texts.texts)}"
    names = {"dataset": dataset and str(dataset), "corpus": corpus and str(corpus)}
    given = given.model_copy(update=names)
    folder = PretrainFolder(expand(output), given.model_dump(exclude={"device"}))
    folder.check()
    if folder.finished:
        return folder.results(reporter)
    seed, max_length, steps = given.seed, given.max_length, given.steps
    config = RunConfig(seed=seed, device=given.device, learning_rate=given.learning_rate)
    compute = choose_compute(config)
    if texts is None:
        texts = _read_texts(dataset, corpus, given, cache)
    train, held_out = hold_out_texts(texts)
    inputs = {
        "auxlearn": {"version": __version__},
        "encoder": encoder_content(given.encoder),
        "texts": {"content": content_key(texts.texts, texts.text_pairs)},
    }
    loaded = load_encoder(given.encoder, ["unused"], seed)
    loaded.new_language_model_head = False  # it is trained here
    check_length(loaded.config, max_length)
    loaded.to(compute.device)
    train_texts = tokenize_split(loaded.tokenizer, train, max_length, cache, reporter.progress)
    held_out_texts = tokenize_split(loaded.tokenizer, held_out, max_length, cache)
    with folder.locked(inputs):
        if folder.finished:  # another process has finished it in the meantime
            return folder.results(reporter)
        task = _prepare_task(loaded, train, train_texts, max_length, seed, cache, reporter)
        stream = BatchStream(train_texts, given.batch_size, seed, "pretrain")
        training = _Training(
            loaded, task, stream, held_out_texts, given.trainable, steps, config, compute, reporter
        )
        before, seconds = training.run(folder.checkpoints)
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


def hold_out_texts(split: Split) -> tuple[Split, Split]:
    """Return the texts to train on and those to evaluate on, both without labels."""
    unlabelled = Split(split.name, split.texts, None, (), split.text_pairs)
    if len(unlabelled) < 2:
        raise UserError("pretraining needs at least two texts: one is held out for evaluation")
    return hold_out(unlabelled, HELD_OUT, seed=0, name="held out")


def _read_texts(dataset: Any, corpus: Any, given: PretrainSettings, cache: TensorCache) -> Split:
    """Read the texts of a file or of the train split of a data set."""
    if corpus is not None:
        return read_corpus(expand(corpus), given.text_column or "text")
    columns = Columns(
        text_column=given.text_column,
        text_pair_column=given.text_pair_column,
        label_column=given.label_column,
        keep_null_labels=True,  # the labels take no part: what they are is of no importance
    )
    return load_dataset(dataset, columns=columns, cache_dir=cache.folder).splits["train"]


def _prepare_task(
    encoder: SharedEncoder,
    split: Split,
    texts: TokenizedTexts,
    max_length: int,
    seed: int,
    cache: TensorCache,
    reporter: Reporter,
) -> MaskedLanguageModelling:
    """Return masked language modelling with uniform mask probabilities."""
    cls = TASKS.get("random_mlm")
    task: MaskedLanguageModelling = cls(cls.Options())
    context = ObjectiveContext(
        "random_mlm",
        encoder,
        split,
        texts,
        max_length=max_length,
        cache=cache,
        seed=seed,
        progress=reporter.progress,
    )
    task.prepare(context)
    return task


@dataclass(frozen=True)
class _Training:
    """The optimizer steps of a pretraining."""

    encoder: SharedEncoder
    task: MaskedLanguageModelling
    stream: BatchStream
    held_out: TokenizedTexts
    trainable: Literal["head", "all"]
    steps: int
    config: RunConfig
    compute: Compute
    reporter: Reporter

    def run(self, checkpoints: CheckpointFolder) -> tuple[_Scores, float]:
        """Train from the latest checkpoint to the end."""
        found = checkpoints.load()
        before = (
            _evaluate(self.encoder, self.held_out, self.config.seed)
            if found is None
            else _Scores(*found[1]["before"]["scores"].tolist())
        )
        with _training_only(self.encoder, self.trainable) as trained:
            rate, decay = self.config.learning_rate or 0.0, self.config.weight_decay
            optimizer = build_optimizer(trained, rate, decay)
            schedule = LinearSchedule(optimizer, self.steps, self.config.warmup_ratio)
            state, losses = TrainingState(), []
            if found is not None:
                state, tensors = found
                check_tensors("the encoder", self.encoder.tensors(), tensors["encoder"])
                self.encoder.load_tensors(tensors["encoder"])
                load_optimizer_tensors(optimizer, tensors["optimizer"])
                losses = list(tensors["before"]["losses"].to(self.compute.device))
                self.reporter.message(f"resumed from step {state.step} of {self.steps}")
            started = time.perf_counter() - state.seconds
            saved = time.perf_counter()

            def save() -> None:
                state.seconds = time.perf_counter() - started
                pending = torch.stack(losses) if losses else torch.zeros(0)
                scores = torch.tensor(before, dtype=torch.float64)
                checkpoints.save(
                    state,
                    {
                        "encoder": self.encoder.tensors(),
                        "optimizer": optimizer_tensors(optimizer),
                        "before": {"scores": scores, "losses": pending},
                    },
                )

            self.encoder.train()
            with (
                StopRequest() as stop,
                self.reporter.progress("masked language modelling", self.steps) as advance,
            ):
                advance(state.step)
                while state.step < self.steps:
                    losses.append(self._step(state.step, trained, schedule))
                    state.step += 1
                    advance(1)
                    if state.step % LOG_EVERY == 0 or state.step == self.steps:
                        _log(losses, state.step, self.reporter)
                        losses = []
                    due = time.perf_counter() - saved >= CHECKPOINT_SECONDS
                    if stop.requested or due or state.step == self.steps:
                        save()
                        saved = time.perf_counter()
                    if stop.requested:
                        raise Interrupted(
                            f"stopped at step {state.step} of {self.steps}: run the same command "
                            "again to resume"
                        )
        return before, time.perf_counter() - started

    def _step(self, step: int, trained: list[nn.Parameter], schedule: LinearSchedule) -> Tensor:
        """Make one optimizer step and return its loss."""
        loss = _loss(
            self.encoder, self.task, self.stream.batch(step), step, self.config.seed, self.compute
        )
        loss.backward()
        nn.utils.clip_grad_norm_(trained, self.config.max_grad_norm)
        schedule.apply(step)
        schedule.optimizer.step()
        schedule.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


def _loss(
    encoder: SharedEncoder,
    task: MaskedLanguageModelling,
    batch: Batch,
    step: int,
    seed: int,
    compute: Compute,
) -> Tensor:
    generator = rng.generator(seed, "pretrain", "draws", step)
    dropout = rng.seeded(seed, "pretrain", "dropout", step, device=compute.device)
    with dropout, compute.autocast():
        return task.loss(encoder, batch, generator)


def _log(losses: list[Tensor], step: int, reporter: Reporter) -> None:
    """Report the mean of some losses."""
    mean = float(torch.stack(losses).mean())
    if not math.isfinite(mean):
        raise TrainingDiverged(
            f"the loss became {mean} by step {step}: lower --learning-rate, with another --output"
        )
    reporter.log({"kind": "train", "step": step, Quantity.LOSS.key("mlm"): mean})


def _evaluate(encoder: SharedEncoder, texts: TokenizedTexts, seed: int) -> _Scores:
    """Return loss and accuracy at masked tokens, with the same masks at every call."""
    found = score_masked(encoder, texts, EVAL_BATCH, seed, "pretrain", "measure")
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
