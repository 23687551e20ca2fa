"""The training step: against transformers' Trainer, and what each choice costs or gives."""

from __future__ import annotations

import logging
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accelerate.state import AcceleratorState
from torch import nn
from transformers import Trainer, TrainingArguments

from auxlearn.data.batches import Batch, BatchStream
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.attention import attend_in_single_precision
from auxlearn.encoders.compiled import compile_body
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.masking.corruption import choose, corrupt
from auxlearn.registry import TASKS, WEIGHTINGS
from auxlearn.tasks.base import TaskContext
from auxlearn.training.objectives import Auxiliary, Objectives
from auxlearn.training.optimization import LinearSchedule, build_optimizer
from auxlearn.training.reporting import Reporter
from benchmarks.common import arguments, contest, encoder_of_size, ratio, save, texts_of

STEPS = 8
BATCH = 32
RATE = 1e-4
CLASSES = 5


def main() -> None:
    """Run the contest."""
    options = arguments(__doc__ or "", texts=STEPS * BATCH)
    logging.getLogger("transformers").setLevel(logging.ERROR)

    folder = TemporaryDirectory(prefix="auxlearn-benchmark-")
    # Some train the same weights; how far they have come changes no time.
    encoder, undropped = (encoder_of_size(options.encoder, CLASSES) for _ in range(2))
    without_attention_dropout(undropped)
    compiled = encoder_of_size(options.encoder, CLASSES)
    started = time.perf_counter()
    compile_body(compiled, nullcontext)
    compilation = time.perf_counter() - started
    texts, _ = texts_of(encoder, options.dataset, options.texts)
    single = Training(encoder, texts)
    unfused = Training(encoder, texts)
    groups = unfused.objectives.optimizer.param_groups
    unfused.objectives.optimizer = torch.optim.AdamW(
        [{"params": g["params"], "weight_decay": g["weight_decay"]} for g in groups], lr=RATE
    )
    half, half_undropped = (encoder_of_size(options.encoder, CLASSES) for _ in range(2))
    for other in (half, half_undropped):
        attend_in_single_precision(other.body)
    without_attention_dropout(half_undropped)
    contestants: dict[str, Callable[[], object]] = {
        "one task": single,
        "one task, AdamW not fused": unfused,
        "one task, compiled": Training(compiled, texts),
        "one task, attention dropout 0": Training(undropped, texts),
        "one task, bf16": Training(half, texts, bf16=True),
        "one task, attention dropout 0, bf16": Training(half_undropped, texts, bf16=True),
        "MLM step, logits at masked positions": language_model_step(encoder, texts, whole=False),
        "MLM step, logits everywhere": language_model_step(encoder, texts, whole=True),
    }
    # The Trainer cannot be stopped after a step, so it has a contest of whole trainings.
    whole = contest(
        {
            "transformers Trainer": trainer_of_transformers(encoder, texts, folder.name),
            "one task": lambda: [single() for _ in range(STEPS)],
        },
        options.rounds,
        options.clock,
    )
    results = contest(contestants, options.rounds, options.clock, calls=STEPS)
    for found in [*whole.values(), *results.values()]:
        found["steps per second"] = STEPS / found["median"]
    save(
        "training",
        options,
        {
            "steps": STEPS,
            "batch size": BATCH,
            "against Trainer": whole,
            "contestants": results,
            "ratios": {
                "throughput over Trainer": ratio(whole, "transformers Trainer", "one task"),
                "full-vocabulary logits over masked positions": ratio(
                    results,
                    "MLM step, logits everywhere",
                    "MLM step, logits at masked positions",
                ),
                "AdamW not fused over fused": ratio(
                    results, "one task, AdamW not fused", "one task"
                ),
                "compiled over as written": ratio(results, "one task, compiled", "one task"),
                "attention dropout 0 over 0.1": ratio(
                    results, "one task, attention dropout 0", "one task"
                ),
                "bf16 over fp32": ratio(results, "one task, bf16", "one task"),
                "both over neither": ratio(
                    results, "one task, attention dropout 0, bf16", "one task"
                ),
            },
            "seconds of compilation": compilation,
            "padding": padding(texts, options),
        },
    )
    folder.cleanup()


def without_attention_dropout(encoder: SharedEncoder) -> None:
    """Switch the dropout of BERT's attention weights off, as ``attention_dropout: 0`` does."""
    for layer in encoder.body.encoder.layer:
        layer.attention.self.dropout.p = 0.0


class Training:
    """This package's training, one step with every call; after the last comes the first again."""

    def __init__(
        self, encoder: SharedEncoder, texts: TokenizedTexts, aux: int = 0, bf16: bool = False
    ) -> None:
        names = [f"random_mlm_{number}" for number in range(aux)]
        encoder.train()
        context = TaskContext(
            encoder=encoder,
            texts=texts,
            tokenize=lambda path: texts,
            cache=None,  # type: ignore[arg-type]
            progress=Reporter().progress,
            seed=0,
        )
        auxiliaries = []
        for name in names:
            cls = TASKS.get("random_mlm")
            task = cls(cls.Options())
            task.prepare(context)
            auxiliaries.append(Auxiliary(name, task, BatchStream(texts, BATCH, 0, name)))
        optimizer = build_optimizer(encoder.parameters(), RATE, 0.01)
        self.objectives = Objectives(
            encoder=encoder,
            auxiliaries=auxiliaries,
            primary=BatchStream(texts, BATCH, 0, "primary"),
            optimizer=optimizer,
            schedule=LinearSchedule(optimizer, STEPS, 0.06),
            seed=0,
            accumulation=1,
            clip_norm=1.0,
            validation=None,
            # As accelerate does; its own state is one for the whole process.
            autocast=partial(torch.autocast, "cpu", torch.bfloat16, enabled=bf16),
        )
        rule = WEIGHTINGS.get("fixed")
        self.weighting = rule(rule.Options(), ("primary", *names))
        self.turn = cycle(range(STEPS))

    def __call__(self) -> None:
        self.step(next(self.turn))

    def step(self, step: int) -> None:
        """Make one update."""
        self.objectives.begin(step)
        self.weighting.step(self.objectives)


def trainer_of_transformers(
    encoder: SharedEncoder, texts: TokenizedTexts, folder: str
) -> Callable[[], None]:
    """Return the same steps by transformers' Trainer: same batches, dropout, AdamW, clipping."""
    stream = BatchStream(texts, BATCH, 0, "primary")
    batches = [inputs_of(stream.batch(step)) for step in range(STEPS)]
    AcceleratorState._reset_state(reset_partial_state=True)
    settings = TrainingArguments(
        output_dir=folder,
        max_steps=STEPS,
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
        use_cpu=True,
        dataloader_pin_memory=False,
    )

    class SameBatches(Trainer):
        def get_train_dataloader(self) -> Any:
            return batches

    def run() -> None:
        SameBatches(encoder.classifier, settings, train_dataset=batches).train()

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


def language_model_step(
    encoder: SharedEncoder, texts: TokenizedTexts, whole: bool
) -> Callable[[], None]:
    """Return an MLM step, with logits where they are needed or for every token."""
    stream = BatchStream(texts, BATCH, 0, "mlm")
    optimizer = build_optimizer(encoder.language_model.parameters(), RATE, 0.01)
    random_ids = torch.arange(1000, 2000)
    encoder.train()

    draws = torch.Generator().manual_seed(0)
    turn = cycle(range(STEPS))

    def run() -> None:
        batch = stream.batch(next(turn))
        chosen = choose(batch.maskable * 0.15, draws)
        ids = corrupt(batch.input_ids, chosen, encoder.tokenizer.mask_token_id, random_ids, draws)
        given = replace(batch, input_ids=ids)
        if whole:
            labels = batch.input_ids.masked_fill(~chosen, -100)
            inputs = {**inputs_of(given), "labels": labels}
            loss = encoder.language_model(**inputs).loss
        else:
            logits = encoder.predict_tokens(given, chosen)
            loss = nn.functional.cross_entropy(logits, batch.input_ids[chosen])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


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
            [stream.rows(step) for step in range(stream.steps_per_epoch)]
        ),
        "at random": share(list(shuffled)),
    }


if __name__ == "__main__":
    main()
