"""Made-up records of the regret benchmark."""

from __future__ import annotations

from benchmarks.regret.plan import ALPHAS
from benchmarks.regret.records import Record


def record(method: str, seed: int, dev: float, test: float, **more) -> Record:
    alpha = {"single": 0.0}.get(method)
    if method.startswith("fixed "):
        alpha = float(method.split()[1])
    known = {
        "setting": "set",
        "task": "" if method == "single" else "task",
        "constant": False,
        "seconds": 10.0,
        "steps": 100,
    }
    return Record(method=method, seed=seed, dev=dev, test=test, alpha=alpha, **(known | more))


def grid(dev: dict[float, float], test: dict[float, float], seeds=(0, 1), **more) -> list[Record]:
    """The single task and the fixed shares, the same for every seed."""
    return [
        record(
            "single" if alpha == 0 else f"fixed {alpha:g}", seed, dev[alpha], test[alpha], **more
        )
        for alpha in (0.0, *ALPHAS)
        for seed in seeds
    ]


DEV = dict(zip((0.0, *ALPHAS), (0.50, 0.55, 0.70, 0.60, 0.40, 0.30), strict=True))
TEST = dict(zip((0.0, *ALPHAS), (0.52, 0.58, 0.66, 0.69, 0.41, 0.20), strict=True))
