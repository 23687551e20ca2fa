"""The training step of an encoder, as a run makes it, and a task that a test can compute itself."""

from dataclasses import replace

import torch

from auxlearn.core.validation import Settings
from auxlearn.data.batches import BatchStream
from auxlearn.encoders.optimizer import Schedule
from auxlearn.tasks.base import AuxiliaryTask
from auxlearn.training.step import RunStep
from auxlearn.training.terms import Auxiliary
from auxlearn.training.validation import ValidationObjective
from tests.helpers import LINES, cross_entropy, tokenized

CLASSES = [number % 3 for number in range(len(LINES))]


class Harness:
    """The training step of an encoder on labelled lines with some tasks, as in a run."""

    def __init__(
        self,
        encoder,
        tasks=(),
        batch_size=8,
        gradient_accumulation_steps=1,
        max_grad_norm=1.0,
        seed=0,
        clip_head_separately=False,
    ):
        encoder.train()
        self.encoder = encoder
        self.texts = tokenized(encoder, LINES, CLASSES)
        self.optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3, weight_decay=0.1)
        auxiliaries = [
            Auxiliary(
                name,
                task,
                BatchStream(self.texts, batch_size, seed, name) if task.batches == "own" else None,
            )
            for name, task in tasks
        ]
        self.training_step = RunStep(
            encoder,
            primary=BatchStream(self.texts, batch_size, seed, "primary"),
            primary_loss=cross_entropy(),
            auxiliaries=auxiliaries,
            schedule=Schedule(self.optimizer, 10, 0.2),
            seed=seed,
            gradient_accumulation_steps=gradient_accumulation_steps,
            max_grad_norm=max_grad_norm,
            clip_head_separately=clip_head_separately,
            validation=ValidationObjective(self.texts, 6, "cross_entropy", seed),
        )

    def run(self, steps, weights):
        losses = []
        for step in range(steps):
            self.training_step.begin(step)
            self.training_step.backward(weights)
            losses.append(dict(self.training_step.losses))
            self.training_step.optimizer_step()
        return losses


class Given(AuxiliaryTask):
    """A task with a given loss."""

    def __init__(self, loss, batches="own"):
        super().__init__(Settings())
        self.given, self.batches = loss, batches

    def loss(self, encoder, batch, generator):
        return self.given(encoder, batch, generator)


class MaskedWords(AuxiliaryTask):
    """Predict fixed positions, so that the loss can be computed without this package."""

    name = "masked_words"

    def __init__(self, every):
        super().__init__(Settings())
        self.every = every

    def inputs(self, encoder, batch):
        places = torch.arange(batch.input_ids.shape[1]) % self.every == 1
        positions = batch.maskable & places
        ids = batch.input_ids.masked_fill(positions, encoder.tokenizer.mask_token_id)
        return replace(batch, input_ids=ids), positions, batch.input_ids[positions]

    def loss(self, encoder, batch, generator):
        changed, positions, targets = self.inputs(encoder, batch)
        logits = encoder.predict_tokens(changed, positions)
        return torch.nn.functional.cross_entropy(logits, targets)
