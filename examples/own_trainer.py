"""Masked language modelling beside the labels, in the Trainer of transformers.

python examples/own_trainer.py --encoder google-bert/bert-base-uncased --share 0.3
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

import auxlearn

MAX_LENGTH = 64


class TwoHeads(nn.Module):
    """A classifier, and a masked language model with the same encoder."""

    def __init__(self, name, classes):
        super().__init__()
        self.classifier = AutoModelForSequenceClassification.from_pretrained(
            name, num_labels=classes, dtype="float32"
        )
        self.language_model = AutoModelForMaskedLM.from_pretrained(name, dtype="float32")
        prefix = self.language_model.base_model_prefix
        setattr(self.language_model, prefix, getattr(self.classifier, prefix))
        self.language_model.tie_weights()

    def forward(self, **inputs):
        return self.classifier(**inputs)


class JointTrainer(Trainer):
    """Adds the loss of masked batches to that of the labels, and logs both."""

    def __init__(self, *args, masked_batches, share, **more):
        super().__init__(*args, **more)
        self.masked_batches, self.share = masked_batches, share
        self.losses = defaultdict(list)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        primary, outputs = super().compute_loss(model, inputs, return_outputs=True)
        if not model.training:
            return (primary, outputs) if return_outputs else primary
        masked = self._prepare_inputs(next(self.masked_batches))
        auxiliary = model.language_model(**masked).loss
        self.losses["loss/primary"].append(primary.detach())
        self.losses["loss/auxiliary"].append(auxiliary.detach())
        loss = (1 - self.share) * primary + self.share * auxiliary
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, *args, **more):
        means = {name: float(sum(losses) / len(losses)) for name, losses in self.losses.items()}
        self.losses.clear()
        super().log({**logs, **means}, *args, **more)


def endless(loader):
    while True:
        yield from loader


def train(encoder, share, steps, output):
    """Train on the labels of pydocs; return the trainer."""
    train_split = auxlearn.load_dataset("pydocs").split("train")
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = TwoHeads(encoder, len(train_split.label_names))
    collator = auxlearn.MaskingCollator(tokenizer, "whole_word", max_length=MAX_LENGTH)
    collator.prepare(train_split.texts, model.language_model)
    rows = [tokenizer(text, truncation=True, max_length=MAX_LENGTH) for text in train_split.texts]
    labelled = [
        {**row, "labels": label} for row, label in zip(rows, train_split.labels, strict=True)
    ]
    masked = DataLoader(rows, batch_size=16, shuffle=True, collate_fn=collator)
    trainer = JointTrainer(
        model,
        TrainingArguments(
            output,
            max_steps=steps,
            per_device_train_batch_size=16,
            logging_steps=5,
            save_strategy="no",
            report_to="none",
            remove_unused_columns=False,
            dataloader_pin_memory=torch.cuda.is_available(),
        ),
        train_dataset=labelled,
        data_collator=DataCollatorWithPadding(tokenizer),
        masked_batches=endless(masked),
        share=share,
    )
    trainer.train()
    model.classifier.save_pretrained(output)
    tokenizer.save_pretrained(output)
    return trainer


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--encoder", default="google-bert/bert-base-uncased")
    parser.add_argument("--share", type=float, default=0.3, help="share of the masked batches")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", default="runs/own-trainer")
    arguments = parser.parse_args()
    train(arguments.encoder, arguments.share, arguments.steps, arguments.output)
