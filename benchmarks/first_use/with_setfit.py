"""Fine-tune, evaluate and predict with SetFit, as its quick start does.

By default SetFit trains on nearly every pair of texts; ``num_iterations`` draws a number of pairs
for each text instead.
"""

import sys

import pandas as pd
from datasets import Dataset
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.metrics import accuracy_score, f1_score

data, encoder, seed = sys.argv[1:]
train = pd.read_json(f"{data}/train.jsonl", lines=True)
test = pd.read_json(f"{data}/test.jsonl", lines=True)
new = pd.read_json(f"{data}/new.jsonl", lines=True)


def metrics(predicted, labels):
    return {
        "accuracy": accuracy_score(labels, predicted),
        "macro_f1": f1_score(labels, predicted, average="macro"),
    }


model = SetFitModel.from_pretrained(encoder, labels=sorted(train["label"].unique()))
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir="run", num_epochs=1, num_iterations=1, seed=int(seed), report_to="none"
    ),
    train_dataset=Dataset.from_pandas(train),
    eval_dataset=Dataset.from_pandas(test),
    metric=metrics,
)
trainer.train()
scores = trainer.evaluate()
print("accuracy", scores["accuracy"])
print("macro_f1", scores["macro_f1"])
predicted = model.predict(new["text"].tolist())
new.assign(predicted_label=predicted).to_csv("predictions.csv", index=False)
