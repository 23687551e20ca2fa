"""Masked language modelling on text before fine-tuning.

On the texts of a data set this is task-adaptive pretraining (TAPT; Gururangan et al. 2020, "Don't
Stop Pretraining"). For a checkpoint without a masked-language-model head it is also the honest way
to get one: likelihoods of a head that was never trained mean nothing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from torch import nn

from auxlearn import rng
from auxlearn.cache import TensorCache
from auxlearn.config import RunConfig
from auxlearn.data.batches import BatchStream, collate, eval_batches
from auxlearn.data.corpus import read_corpus
from auxlearn.data.dataset import Split
from auxlearn.data.load import load_dataset
from auxlearn.data.rows import Columns
from auxlearn.data.splits import hold_out
from auxlearn.data.tokens import TokenizedTexts, tokenize_split
from auxlearn.devices import upload
from auxlearn.encoders.load import check_length, load_encoder
from auxlearn.encoders.precision import choose_compute
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.errors import RunError, TrainingDiverged, UserError
from auxlearn.evaluation.evaluator import EVAL_BATCH
from auxlearn.masking.corruption import choose
from auxlearn.registry import TASKS
from auxlearn.reporting.reporter import Reporter
from auxlearn.tasks.base import MaskedLanguageModelling, TaskContext
from auxlearn.training.loop import LOG_EVERY
from auxlearn.training.optimization import LinearSchedule, build_optimizer

#: Share of the texts that is kept back to measure on.
HELD_OUT = 0.05


@dataclass(frozen=True)
class PretrainResults:
    """What a pretraining came to, measured on texts kept back.

    Attributes:
        texts: Texts trained on.
        steps: Updates made.
        loss_before: Cross-entropy of masked tokens before, in nats.
        loss_after: The same masks afterwards.
        accuracy_before: Share of masked tokens predicted right before.
        accuracy_after: The same afterwards.
        seconds: Wall time.
    """

    texts: int
    steps: int
    loss_before: float
    loss_after: float
    accuracy_before: float
    accuracy_after: float
    seconds: float


def pretrain(
    encoder_name: str,
    output: Path,
    *,
    dataset: str | None = None,
    corpus: Path | None = None,
    text_column: str | None = None,
    trainable: Literal["head", "all"] = "all",
    steps: int = 1000,
    batch_size: int = 32,
    learning_rate: float = 5e-5,
    max_length: int = 128,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    reporter: Reporter | None = None,
) -> PretrainResults:
    """Train an encoder by masked language modelling and write it as a transformers folder.

    Args:
        encoder_name: Short name, folder, or hub id.
        output: Folder to write; must not exist, or be empty.
        dataset: Data set whose train texts are used.
        corpus: File of texts; one of the two must be given.
        text_column: Column with the text of either; by default ``text``.
        trainable: "head" trains the language-model head and leaves the body as it is.
        steps: Updates.
        batch_size: Texts per update.
        learning_rate: Peak rate of AdamW.
        max_length: Tokens per text.
        seed: Seed of everything random.
        device: Where to compute.
        reporter: Shows progress.

    Raises:
        UserError: The encoder, the texts or the output folder cannot be used.
        TrainingDiverged: The loss became NaN or infinite.
    """
    reporter = reporter or Reporter()
    if (dataset is None) == (corpus is None):
        raise UserError("pretrain needs one source of text: --dataset or --corpus")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise RunError(f"{output} is not empty: choose another --output")
    config = RunConfig(seed=seed, device=device, learning_rate=learning_rate)
    compute = choose_compute(config)
    cache = TensorCache()
    split = (
        read_corpus(corpus, text_column or "text")
        if corpus is not None
        else load_dataset(
            str(dataset),
            columns=Columns(text=text_column) if text_column else None,
            cache_dir=cache.folder,
        ).splits["train"]
    )
    unlabelled = Split(split.name, split.texts, None, (), split.text_pairs)
    if len(unlabelled) < 2:
        raise UserError("pretraining needs at least two texts: one is kept back to measure on")
    kept, held_out = hold_out(unlabelled, HELD_OUT, seed=0, name="held out")
    encoder = load_encoder(encoder_name, ["unused"], seed)
    check_length(encoder, max_length)
    encoder.to(compute.device)
    texts = tokenize_split(encoder.tokenizer, kept, max_length, cache)
    measured = tokenize_split(encoder.tokenizer, held_out, max_length, cache)

    started = time.perf_counter()
    task = _random_mlm(encoder, texts, cache, reporter, seed)
    before = _measure(encoder, task, measured, seed)
    with _training_only(encoder, trainable) as trained:
        optimizer = build_optimizer(trained, learning_rate, config.weight_decay)
        schedule = LinearSchedule(optimizer, steps, config.warmup_ratio)
        stream = BatchStream(texts, batch_size, seed, "pretrain")
        encoder.train()
        losses = []
        with reporter.progress("masked language modelling", steps) as advance:
            for step in range(steps):
                batch = stream.batch(step)
                with (
                    rng.seeded(seed, "pretrain", "dropout", step, device=compute.device),
                    compute.autocast(),
                ):
                    loss = task.loss(encoder, batch, rng.generator(seed, "pretrain", "draws", step))
                loss.backward()
                nn.utils.clip_grad_norm_(trained, config.max_grad_norm)
                schedule.apply(step)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                losses.append(loss.detach())
                advance(1)
                if (step + 1) % LOG_EVERY == 0 or step + 1 == steps:
                    mean = float(torch.stack(losses).mean())
                    if not torch.isfinite(torch.tensor(mean)):
                        raise TrainingDiverged(
                            f"the loss became {mean} by step {step + 1}: lower --learning-rate"
                        )
                    reporter.row({"kind": "train", "step": step + 1, "loss/mlm": mean})
                    losses = []
    after = _measure(encoder, task, measured, seed)
    _write(encoder, output)
    return PretrainResults(
        texts=len(texts),
        steps=steps,
        loss_before=before[0],
        loss_after=after[0],
        accuracy_before=before[1],
        accuracy_after=after[1],
        seconds=time.perf_counter() - started,
    )


def _random_mlm(
    encoder: SharedEncoder,
    texts: TokenizedTexts,
    cache: TensorCache,
    reporter: Reporter,
    seed: int,
) -> MaskedLanguageModelling:
    cls = TASKS.get("random_mlm")
    task = cls(cls.Options())
    task.prepare(
        TaskContext(
            encoder=encoder,
            texts=texts,
            tokenize=lambda path: tokenize_split(encoder.tokenizer, read_corpus(path), 128, cache),
            cache=cache,
            progress=reporter.progress,
            seed=seed,
        )
    )
    return task


def _measure(
    encoder: SharedEncoder, task: MaskedLanguageModelling, texts: TokenizedTexts, seed: int
) -> tuple[float, float]:
    """Return mean cross-entropy and accuracy at masked positions of texts that stay the same."""
    losses, right, count = [], [], 0
    with encoder.evaluating(), torch.inference_mode():
        for number, rows in enumerate(eval_batches(texts, EVAL_BATCH)):
            batch = collate(texts, rows)
            draws = rng.generator(seed, "pretrain", "measure", number)
            chosen = choose(task.mask_probabilities(batch), draws)
            masked = batch.input_ids.masked_fill(chosen, encoder.tokenizer.mask_token_id)
            logits = encoder.predict_tokens(replace(batch, input_ids=masked), chosen)
            targets = upload(batch.input_ids[chosen], encoder.device)
            losses.append(nn.functional.cross_entropy(logits.float(), targets, reduction="sum"))
            right.append((logits.argmax(-1) == targets).sum())
            count += len(targets)
    loss, hits = (sum(torch.stack(values).tolist()) for values in (losses, right))
    return loss / max(1, count), hits / max(1, count)


@contextmanager
def _training_only(
    encoder: SharedEncoder, trainable: Literal["head", "all"]
) -> Iterator[list[nn.Parameter]]:
    """Give the parameters to train; within the block no other parameter takes a gradient."""
    wanted = list(encoder.language_model.parameters())
    if trainable == "head":
        body = {id(parameter) for parameter in encoder.body.parameters()}
        wanted = [parameter for parameter in wanted if id(parameter) not in body]
    chosen = {id(parameter) for parameter in wanted}
    frozen = [p for p in encoder.parameters() if p.requires_grad and id(p) not in chosen]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield wanted
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)


def _write(encoder: SharedEncoder, output: Path) -> None:
    temporary = output.with_name(f".{output.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        encoder.save_language_model(temporary)
        if output.exists():
            output.rmdir()
        os.replace(temporary, output)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise UserError(f"cannot write {output} ({error})") from None
