"""Change one formula at a time in a copy of the package, and see whether its tests notice.

    python scripts/mutants.py                 # all; exit code 1 if one is not noticed
    python scripts/mutants.py --only gcs focal
    python scripts/mutants.py --json found.json

Each mutant names a file below ``auxlearn/``, a piece of its text that stands there once, what is
put in its place, and the tests that are to fail. A piece that is gone is an error: the mutant is
then written for the new text. It takes some minutes on one core; needs a system with ``fork``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

#: Processor seconds after which a test file is taken to run for ever; the longest takes a third.
MOST_SECONDS = 120

ROOT = Path(__file__).resolve().parent.parent


class Mutant(NamedTuple):
    """A change of the code: path below ``auxlearn/``, old and new text, and what is to fail."""

    path: str
    old: str
    new: str
    tests: str


#: By room; the tests are a file below ``tests/``.
MUTANTS = (
    # weighting
    Mutant("weighting/torchjd.py", "gram / gram.diagonal().mean()", "gram / gram.diagonal().mean().sqrt()", "weighting/test_torchjd.py"),
    Mutant("weighting/torchjd.py", "losses[losses > 0] if", "losses[losses > 1] if", "weighting/test_torchjd.py"),
    Mutant("weighting/gcs.py", "(cosines > 0).to", "(cosines >= 0).to", "weighting/test_gradient_rules.py"),
    Mutant("weighting/ol_aux.py", "products / (shifted * shifted[0])", "products / shifted", "weighting/test_gradient_rules.py"),
    Mutant("weighting/mixing.py", "beta * averages + (1 - beta) * norms", "(1 - beta) * averages + beta * norms", "weighting/test_gradient_rules.py"),
    Mutant("weighting/gradients.py", "correction = 1 - self.decay**self._count", "correction = 1.0", "weighting/test_gradients.py"),
    Mutant("weighting/optimizer_steps.py", "weight / total if on", "weight if on", "weighting/test_separate.py"),
    Mutant("weighting/optimizer_steps.py", "excess = norm + 1e-6", "excess = norm + 1e-1", "weighting/test_unrolling.py"),
    Mutant("weighting/optimizer_steps.py", "add_(1 - beta1).div_(root)", "add_(1 - beta1)", "weighting/test_unrolling.py"),
    Mutant("weighting/unrolling.py", "parameter * (1 - rate * decay)", "parameter * (1 - decay)", "weighting/test_unrolling.py"),
    Mutant("weighting/learned.py", "<= step.number < self", "< step.number < self", "weighting/test_learned.py"),
    # losses
    Mutant("losses/focal.py", "-others.pow(gamma) * log_p", "-others.pow(gamma + 1) * log_p", "losses/test_formulas.py"),
    Mutant("losses/base.py", "log_q, log_p)) / 2", "log_q, log_p))", "losses/test_formulas.py"),
    Mutant("losses/poe.py", "+ strength * bias.log()", "- strength * bias.log()", "losses/test_debiasing.py"),
    Mutant("losses/learned_mixin.py", "product + entropy_penalty", "product - entropy_penalty", "losses/test_debiasing.py"),
    Mutant("losses/debiased_focal.py", "(1 - gold(bias, labels))", "gold(bias, labels)", "losses/test_debiasing.py"),
    Mutant("losses/confidence.py", "teacher.pow(1 - gold(", "teacher.pow(gold(", "losses/test_debiasing.py"),
    Mutant("losses/cutoff.py", "positions >= starts[:, None]", "positions > starts[:, None]", "losses/test_cutoff.py"),
    # masking
    Mutant("objectives/masking.py", "part = excess / others.sum", "part = excess / maskable.sum", "objectives/test_masking.py"),
    Mutant("objectives/masking.py", "torch.where(draws < mask_share, mask_id", "torch.where(draws < random_share, mask_id", "objectives/test_masking.py"),
    Mutant("objectives/masking.py", "means = (sums[ends] - sums[ends - counts]) / counts", "means = (sums[ends] - sums[ends - 1])", "tasks/test_masking_options.py"),
    Mutant("tasks/pmi.py", "2 * log_share - best[n]", "log_share - best[n]", "tasks/test_strategies.py"),
    Mutant("tasks/l3mask.py", "if complement else -piece", "if not complement else -piece", "tasks/test_masked.py"),
    Mutant("tasks/simcse.py", "similarities / self", "similarities * self", "tasks/test_simcse.py"),
    Mutant("data/batches.py", "dtype=torch.float64) ** smoothing", "dtype=torch.float64) ** (1 - smoothing)", "tasks/test_supervised.py"),
    # scoring
    Mutant("scoring/pseudo_likelihood.py", "(words == words.gather(1, latest.clamp(min=0)))", "targets", "scoring/test_pseudo_likelihood.py"),
    Mutant("scoring/pseudo_likelihood.py", "number % passes", "number // passes", "scoring/test_pseudo_likelihood.py"),
    # metrics and paired comparison
    Mutant("kinds/metrics.py", "present.sum().clamp(min=1)", "len(present)", "training/test_validation.py"),
    Mutant("training/whole_runs/paired.py", "fit, use = half != part, half == part", "fit, use = half == part, half == part", "evaluation/test_paired.py"),
    Mutant("training/whole_runs/paired.py", "values.std(ddof=1)", "values.std()", "evaluation/test_paired.py"),
    Mutant("kinds/regression.py", "targets.var(correction=0)", "targets.var()", "kinds/test_kinds.py"),
    # statistics
    Mutant("comparison/statistics.py", "ddof=1)) / count", "ddof=0)) / count", "comparison/test_statistics.py"),
    Mutant("comparison/statistics.py", "(len(p_values) - rank) *", "len(p_values) *", "comparison/test_statistics.py"),
    Mutant("comparison/statistics.py", "(single - by_examples) / (count - 1)", "(single - by_examples) / count", "comparison/test_statistics.py"),
    Mutant("comparison/statistics.py", "self.total**2 / parts if", "self.total / parts if", "comparison/test_statistics.py"),
    Mutant("comparison/statistics.py", "(12 * datasets)", "(6 * datasets)", "comparison/test_statistics.py"),
    # learning rate
    Mutant("encoders/optimizer.py", "(step + 1) / (self._warmup_steps + 1)", "step / self._warmup_steps", "training/test_step.py"),
    Mutant("encoders/optimizer.py", "0.0 if vector else", "weight_decay if vector else", "training/test_optimizer_options.py"),
)  # fmt: skip


def name_of(mutant: Mutant) -> str:
    """Return a short name: the file, and the text that is put there."""
    return f"{mutant.path}: {mutant.new}"


def misplaced(root: Path) -> list[str]:
    """Return the mutants whose text does not stand exactly once in its file, or without tests."""
    found = []
    for mutant in MUTANTS:
        path = root / "auxlearn" / mutant.path
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text.count(mutant.old) != 1 or not (root / "tests" / mutant.tests).is_file():
            found.append(
                f"{mutant.path}: '{mutant.old}' stands there {text.count(mutant.old)} times"
            )
    return found


def run_tests(copy: Path, tests: str, log: Path) -> int:
    """Run a test file on a copy in a child process, which has the heavy libraries already."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 70
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        import pytest

        quiet = "ignore::pytest.PytestAssertRewriteWarning"  # of what is imported already
        options = ["-x", "-m", "not slow", "-p", "no:cacheprovider", "-W", quiet]
        code = int(pytest.main([*options, tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> int:
    """Try the mutants, and print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names of mutants")
    parser.add_argument("--json", type=Path, help="write what became of each mutant")
    parser.add_argument(
        "--control", action="store_true", help="run the tests without a mutant first: they pass"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="another checkout")
    options = parser.parse_args()
    if problems := misplaced(options.root):
        print(*problems, sep="\n")
        return 2
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", PYTHONDONTWRITEBYTECODE="1")
    import datasets  # noqa: F401
    import higher  # noqa: F401
    import scipy.stats  # noqa: F401
    import sklearn.linear_model  # noqa: F401
    import torch
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    chosen = [m for m in MUTANTS if any(part in name_of(m) for part in options.only)]
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as place:
        copy, log = Path(place) / "copy", Path(place) / "log"
        skipped = shutil.ignore_patterns(".git", ".venv", "__pycache__", "*_cache", "site")
        shutil.copytree(options.root, copy, ignore=skipped)
        os.environ["PYTHONPATH"] = str(copy)
        for tests in sorted({mutant.tests for mutant in chosen}) if options.control else ():
            if run_tests(copy, f"tests/{tests}", log):
                print(f"tests/{tests} fails without a mutant", log.read_text("utf-8")[-2000:])
                return 2
        for mutant in chosen:
            started = time.monotonic()
            path = copy / "auxlearn" / mutant.path
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
            code = run_tests(copy, f"tests/{mutant.tests}", log)
            path.write_text(text, encoding="utf-8")
            # pytest's codes: 0 passed, 1 failed; a signal: the mutant runs for ever.
            states = {0: "SURVIVED", 1: "found", -signal.SIGXCPU: "found", -signal.SIGKILL: "found"}
            state = states.get(code, f"BROKEN ({code})")
            found[name_of(mutant)] = state
            print(f"{state:10} {time.monotonic() - started:5.1f} s  {name_of(mutant)}", flush=True)
            if state not in states.values():
                print(log.read_text(encoding="utf-8")[-2000:] if log.exists() else "no output")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    missed = [name for name, state in found.items() if state != "found"]
    print(f"{len(found) - len(missed)} of {len(found)} mutants found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
