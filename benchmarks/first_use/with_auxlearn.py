"""Fine-tune, evaluate and predict with auxlearn, as its getting-started page does."""

import sys

import pandas as pd

import auxlearn

data, encoder, seed = sys.argv[1:]
train = pd.read_json(f"{data}/train.jsonl", lines=True)
test = pd.read_json(f"{data}/test.jsonl", lines=True)
new = pd.read_json(f"{data}/new.jsonl", lines=True)

results = auxlearn.train(
    dataset={"train": train, "test": test}, encoder=encoder, seed=int(seed), output="run"
)
scores = results.evaluations["test"].all
print("accuracy", scores.accuracy)
print("macro_f1", scores.macro_f1)
auxlearn.predict(results, new, output="predictions.csv")
