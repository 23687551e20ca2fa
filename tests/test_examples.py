"""The examples work as they stand."""

from __future__ import annotations

import json
from pathlib import Path

from auxlearn import RunConfig, train
from tests import helpers

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_a_task_of_ones_own_trains(tmp_path, encoder_folder):
    rows = [{"text": t, "label": helpers.LABELS[i % 3]} for i, t in enumerate(helpers.LINES)]
    for name in ("train", "dev", "test"):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    results = train(
        RunConfig(
            dataset=str(tmp_path),
            encoder=str(encoder_folder("bert")),
            aux=["rare_first"],
            plugins=(str(EXAMPLES / "rare_first.py"),),
            epochs=1,
            batch_size=8,
            device="cpu",
            output=str(tmp_path / "run"),
        )
    )
    assert set(results.weights) == {"primary", "rare_first"}
