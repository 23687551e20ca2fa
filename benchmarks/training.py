"""The training step compared with transformers' Trainer, and the cost of each design choice."""

from __future__ import annotations

import logging
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable
from contextlib import nullcontext
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

from auxlearn.data.batches import Batch, BatchStream
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.device import upload
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.encoders.trainable import compile_body
from benchmarks.common import (
    Steps,
    Stopwatch,
    arguments,
    attending,
    classes_of,
    contest,
    encoder_of_size,
    ratio,
    save,
    texts_of,
)

STEPS = 8
BATCH = 32
RATE = 1e-4
PASSES = "forward and backward passes alone"


def main() -> None:
    """Run the contest."""
    options = arguments(__doc__ or "", texts=STEPS * BATCH, add=add_options)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    classes, device, steps = classes_of(options.dataset), options.device, options.steps
    watch = Stopwatch.of(options)

    def made() -> SharedEncoder:
        return encoder_of_size(options.encoder, classes, device=device)

    folder = TemporaryDirectory(prefix="auxlearn-benchmark-")
    # Some train the same weights; how far they have come changes no time.
    encoder, undropped, half, half_undropped = (made() for _ in range(4))
    for other in (undropped, half_undropped):
        without_attention_dropout(other)
    for other in (half, half_undropped):
        attending(other, "bf16")
    texts, _ = texts_of(encoder, options.dataset, options.texts)
    single = Steps(encoder, texts, BATCH, steps=steps)
    undropped_title = "one task, attention dropout 0"
    kind, otherwise = other_optimizer(encoder, texts, steps)
    contestants: dict[str, Callable[[], object]] = {
        "one task": single,
        f"one task, {kind}": otherwise,
        undropped_title: Steps(undropped, texts, BATCH, steps=steps),
        "one task, bf16": Steps(half, texts, BATCH, precision="bf16", steps=steps),
        f"{undropped_title}, bf16": Steps(
            half_undropped, texts, BATCH, precision="bf16", steps=steps
        ),
    }
    compilation = None
    if options.compile:
        compiled = made()
        compilation = watch.seconds(lambda: compile_body(compiled, nullcontext))
        contestants["one task, compiled"] = Steps(compiled, texts, BATCH, steps=steps)
    # The Trainer cannot be stopped after a step, so it has a contest of whole trainings.
    whole_trainings: dict[str, Callable[[], object]] = {
        "transformers Trainer": trainer_of_transformers(encoder, texts, folder.name, steps),
        "one task": lambda: [single() for _ in range(steps)],
        PASSES: passes_alone(encoder, texts, steps),
    }
    whole = contest(whole_trainings, options.rounds, watch)
    results = contest(contestants, options.rounds, watch, calls=steps)
    for found in [*whole.values(), *results.values()]:
        found["steps per second"] = steps / found["median"]
    save(
        "training",
        options,
        {
            "steps": steps,
            "batch size": BATCH,
            "against Trainer": whole,
            "contestants": results,
            "ratios": {
                title: ratio(where, over, under)
                for title, where, over, under in (
                    ("throughput over Trainer", whole, "transformers Trainer", "one task"),
                    ("of passes alone, the limit", whole, "transformers Trainer", PASSES),
                    (f"{kind} over the default", results, f"one task, {kind}", "one task"),
                    ("compiled over as written", results, "one task, compiled", "one task"),
                    ("attention dropout 0 over 0.1", results, undropped_title, "one task"),
                    ("bf16 over fp32", results, "one task, bf16", "one task"),
                    ("both over neither", results, f"{undropped_title}, bf16", "one task"),
                )
                if over in where and under in where
            },
            "seconds of compilation": compilation,
            "padding": padding(texts, options),
        },
    )
    folder.cleanup()


def add_options(parser: ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps of a round")
    parser.add_argument("--compile", action=BooleanOptionalAction, default=True)


def other_optimizer(encoder: SharedEncoder, texts: TokenizedTexts, steps: int) -> tuple[str, Steps]:
    """Return training with the kind of AdamW that is not the default on the encoder's device."""
    fused = encoder.device.type == "cuda"
    training = Steps(encoder, texts, BATCH, steps=steps)
    groups = training.training_step.optimizer.param_groups
    training.training_step.optimizer = torch.optim.AdamW(
        [{"params": g["params"], "weight_decay": g["weight_decay"]} for g in groups],
        lr=RATE,
        fused=fused,
    )
    return "AdamW fused" if fused else "AdamW not fused", training


def without_attention_dropout(encoder: SharedEncoder) -> None:
    """Switch the dropout of BERT's attention weights off, as ``attention_dropout: 0`` does."""
    for layer in encoder.body.encoder.layer:
        layer.attention.self.dropout.p = 0.0


def trainer_of_transformers(
    encoder: SharedEncoder, texts: TokenizedTexts, folder: str, steps: int
) -> Callable[[], None]:
    """Return the same steps by transformers' Trainer: same batches, dropout, AdamW, clipping."""
    stream = BatchStream(texts, BATCH, 0, "primary")
    batches = [inputs_of(stream.batch(step)) for step in range(steps)]

    class SameBatches(Trainer):
        def get_train_dataloader(self) -> Any:
            return batches

    def run() -> None:
        settings = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            learning_rate=RATE,
            weight_decay=0.01,
            max_grad_norm=1.0,
            warmup_steps=1,
            lr_scheduler_type="linear",
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=encoder.device.type == "cpu",
            dataloader_pin_memory=False,
        )
        SameBatches(encoder.classifier, settings, train_dataset=batches).train()

    return run


def passes_alone(encoder: SharedEncoder, texts: TokenizedTexts, steps: int) -> Callable[[], None]:
    """Return the passes of the same steps without all else, which no training can leave out."""
    stream = BatchStream(texts, BATCH, 0, "primary")
    batches = [inputs_of(stream.batch(step)) for step in range(steps)]

    def run() -> None:
        encoder.train()
        for batch in batches:
            inputs = {name: upload(tensor, encoder.device) for name, tensor in batch.items()}
            encoder.classifier(**inputs).loss.backward()
            encoder.zero_grad()

    return run


def inputs_of(batch: Batch) -> dict[str, torch.Tensor]:
    """Return a batch as a transformers classifier takes it."""
    inputs = {
        "input_ids": batch.input_ids,
        "attention_mask": batch.attention_mask,
        "labels": batch.labels,
        "token_type_ids": batch.token_type_ids,
    }
    return {name: tensor for name, tensor in inputs.items() if tensor is not None}


def padding(texts: TokenizedTexts, options: Namespace) -> dict[str, float]:
    """Return the share of padding in batches by length, and in batches at random."""
    stream = BatchStream(texts, BATCH, 0, "primary")
    shuffled = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0)).split(BATCH)

    def share(batches: list[torch.Tensor]) -> float:
        lengths = [texts.lengths[rows] for rows in batches]
        places = sum(int(part.max()) * len(part) for part in lengths)
        return 1 - sum(int(part.sum()) for part in lengths) / places

    return {
        "texts of like length together": share(
            [stream.indices(step) for step in range(stream.steps_per_epoch)]
        ),
        "at random": share(list(shuffled)),
    }


if __name__ == "__main__":
    main()
