"""Fine-tune, evaluate and predict with the Trainer of transformers, as its quick start does."""

import sys

import numpy as np
import pandas as pd
from datasets import Dataset
from sklearn.metrics import accuracy_score, f1_score
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)

data, encoder, seed = sys.argv[1:]
train = pd.read_json(f"{data}/train.jsonl", lines=True)
test = pd.read_json(f"{data}/test.jsonl", lines=True)
new = pd.read_json(f"{data}/new.jsonl", lines=True)

names = sorted(train["label"].unique())
label2id = {name: number for number, name in enumerate(names)}
tokenizer = AutoTokenizer.from_pretrained(encoder)


def tokenize(examples):
    return tokenizer(examples["text"], truncation=True)


def prepared(frame):
    numbered = frame.assign(label=frame["label"].map(label2id))
    return Dataset.from_pandas(numbered).map(tokenize, batched=True)


def compute_metrics(found):
    logits, labels = found
    predicted = np.argmax(logits, axis=-1)
    return {
        "accuracy": accuracy_score(labels, predicted),
        "macro_f1": f1_score(labels, predicted, average="macro"),
    }


def model_init():
    return AutoModelForSequenceClassification.from_pretrained(
        encoder, num_labels=len(names), id2label=dict(enumerate(names)), label2id=label2id
    )


trainer = Trainer(
    model_init=model_init,
    args=TrainingArguments(
        output_dir="run", num_train_epochs=2, seed=int(seed), use_cpu=True, report_to="none"
    ),
    train_dataset=prepared(train),
    eval_dataset=prepared(test),
    processing_class=tokenizer,
    data_collator=DataCollatorWithPadding(tokenizer),
    compute_metrics=compute_metrics,
)
trainer.train()
scores = trainer.evaluate()
print("accuracy", scores["eval_accuracy"])
print("macro_f1", scores["eval_macro_f1"])
classify = pipeline("text-classification", model=trainer.model, tokenizer=tokenizer)
answers = pd.DataFrame(classify(new["text"].tolist()))
new.join(answers).to_csv("predictions.csv", index=False)
