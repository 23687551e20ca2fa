"""Every task, loss and weighting passes its checks, and every two of them train together.

The registries are read, so that a new plug-in is tested here; one that cannot be made with its
defaults needs options below. Each goes through the checks that authors use. Every run of the tests
trains each weighting once, and each loss and task twice at least; all pairs of them are slow. The
other settings of a step (precision, metric, dev head, several tasks) have cases of their own: whole
runs that are killed and resumed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import combinations, product
from pathlib import Path

import pytest
import torch

from auxlearn import RunConfig, train
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS
from auxlearn.encoders.load import load_classifier
from auxlearn.plugins import MaskedLanguageModelling
from auxlearn.testing import TinyRun, checks, write_dataset
from auxlearn.testing.tiny_run import LABELS, TRAIN, Circumstances, Objectives
from auxlearn.weighting.learned import LearnedWeighting
from tests import helpers

#: Options that a task, loss or weighting is tested with where its defaults will not do: DATA
#: becomes the folder of a data set, BIAS a file with probabilities of its training examples, TEXTS
#: a file of texts. Learned weights must change within three steps.
OPTIONS: dict[str, dict] = {
    "pmi": {"min_count": 2},
    "difference": {"background": "TEXTS"},
    "mixture": {"strategies": ["span", "typhoon", {"informask": {"by": "token"}}]},
    "supervised": {"datasets": "DATA"},
    "space": {"corpus": "TEXTS", "transform": ["none", "mask"], "per_step": 100},
    "cross_entropy": {"class_weights": "balanced"},
    "poe": {"bias": "BIAS"},
    "learned_mixin": {"bias": "BIAS", "entropy_penalty": 0.03},
    "debiased_focal": {"bias": "BIAS"},
    "confidence": {"teacher": "BIAS", "bias": "BIAS"},
    "meta": {"horizon": "steps", "warmup_steps": 1},
    "ol_aux": {"every": 2},
}


def built_in(registry) -> dict[str, dict]:
    """Every built-in plug-in of a kind, with the options that it is tested with."""
    # Other tests leave plug-ins of their own behind in this process.
    ours = [n for n in registry.names() if registry.get(n).__module__.startswith("auxlearn.")]
    return {name: OPTIONS.get(name, {}) for name in ours}


TASK_OPTIONS, LOSS_OPTIONS, WEIGHTING_OPTIONS = map(built_in, (TASKS, LOSSES, WEIGHTINGS))
STEPS = 3

slow = pytest.mark.slow

ENTRIES = [
    *((TASKS, name) for name in TASK_OPTIONS),
    *((LOSSES, name) for name in LOSS_OPTIONS),
    *((WEIGHTINGS, name) for name in WEIGHTING_OPTIONS),
]

#: Auxiliary tasks of the cases below: each alone, one twice, and one with a corpus of its own.
AUXILIARIES: dict[str, list[dict]] = {
    **{name: [{name: {}}] for name in ("random_mlm", "l3mask", "mask_tuning")},
    "twice": [{"l3mask": {}}, {"l3mask": {"score": "surprisal"}}],
    "corpus": [{"random_mlm": {"corpus": "corpus.txt"}}],
    "space": [{"space": {"corpus": "corpus.txt", "output": ["denoise", "label", "tf_idf"]}}],
}

#: A closed-form head is certain of the few dev examples that it is made from; with more examples
#: there is a gradient.
CLOSED = {"horizon": "steps", "warmup_steps": 1, "dev_head": "closed", "split": "held_out.jsonl"}
FITTED = {"horizon": "steps", "warmup_steps": 1, "dev_head": "fitted"}

#: Weighting, options, auxiliary tasks, gradient accumulation steps, precision, metric.
PAIR_CASES: list[tuple[str, dict, str, int, str, str]] = [
    ("equal", {}, "twice", 2, "bf16", "macro_f1"),
    ("meta", {"horizon": "steps", "warmup_steps": 1}, "random_mlm", 2, "bf16", "accuracy"),
    ("meta", CLOSED, "mask_tuning", 2, "bf16", "macro_f1"),
    ("meta", FITTED, "l3mask", 1, "fp32", "macro_f1"),
    ("tartan_released", {}, "l3mask", 2, "bf16", "macro_f1"),
    ("aang", {}, "space", 2, "bf16", "macro_f1"),
    ("ol_aux", {"every": 2}, "corpus", 2, "bf16", "macro_f1"),
    ("torchjd", {"rule": "UW"}, "mask_tuning", 3, "fp32", "accuracy"),
]


def test_every_built_in_plug_in_takes_part():
    assert len(TASK_OPTIONS) >= 18
    assert len(LOSS_OPTIONS) >= 9
    assert len(WEIGHTING_OPTIONS) >= 10
    unknown = set(OPTIONS) - {*TASK_OPTIONS, *LOSS_OPTIONS, *WEIGHTING_OPTIONS}
    assert not unknown


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("conformance")
    (folder / "corpus.txt").write_text("\n".join(helpers.LINES[4:15]) + "\n")
    rows = helpers.rows()
    return helpers.write_splits(
        folder, train=rows[:12], dev=rows[12:18], test=rows[18:], held_out=rows
    )


@pytest.fixture(scope="module")
def further(tmp_path_factory):
    """Options of a plug-in with paths in place of DATA, BIAS and TEXTS."""
    folder = write_dataset(tmp_path_factory.mktemp("further"))
    bias = folder.parent / "bias.jsonl"
    lines = [
        json.dumps(dict.fromkeys(LABELS, 0.2) | {LABELS[number % 3]: 0.6})
        for number in range(TRAIN)
    ]
    bias.write_text("\n".join(lines) + "\n")
    texts = folder.parent / "texts.txt"
    texts.write_text("\n".join(helpers.LINES))
    paths = {"DATA": str(folder), "BIAS": str(bias), "TEXTS": str(texts)}

    def fill(options):
        return {name: paths.get(str(value), value) for name, value in options.items()}

    return fill


#: What is checked in every run of the tests: each way to make a loss or a step. Other masking
#: strategies are probabilities alone, and other rules and losses are like one of these.
CHECKED = {"random_mlm", "mask_tuning", "supervised", "typhoon", "simcse"}
CHECKED |= {"poe", "confidence", "fixed", "meta", "ol_aux", "torchjd"}


@pytest.mark.parametrize(
    ("registry", "name"),
    [pytest.param(*entry, marks=() if entry[1] in CHECKED else slow) for entry in ENTRIES],
    ids=[f"{registry.kind}-{name}" for registry, name in ENTRIES],
)
def test_a_plug_in_passes_its_checks(registry, name, further, monkeypatch):
    monkeypatch.setattr(checks, "REPEATS", 1)  # nothing is asked of the cost
    tables = {TASKS: TASK_OPTIONS, LOSSES: LOSS_OPTIONS, WEIGHTINGS: WEIGHTING_OPTIONS}
    options = further(tables[registry][name])
    # Whole runs are killed and resumed below, and in the tests of the checks.
    report = checks.report(registry, (name, options), resume=False).require()
    assert len(report.checks) >= 8
    if registry is not WEIGHTINGS:
        detail = {check.name: check.detail for check in report.checks}["accumulation"]
        # The negatives of an example are the others of its micro-batch.
        assert detail.endswith("as the whole batch") == (name != "simcse")


@pytest.fixture
def check(dataset, encoder_folder, tmp_path, monkeypatch):
    """Train, kill and resume a run with some auxiliary tasks, a weighting and further settings."""

    def run(aux, weighting, options, **settings):
        config = RunConfig.model_validate(
            {
                "dataset": str(dataset),
                "encoder": str(encoder_folder("bert")),
                "aux": aux,
                "weights": {weighting: options},
                "epochs": 1,
                "batch_size": 4,
                "eval_steps": 2,
                "learning_rate": 1e-3,
                "device": "cpu",
                "output": str(tmp_path / "run"),
                **settings,
            }
        )
        check_run(config, tmp_path, monkeypatch)

    return run


#: A rule that learns from validation examples, one with sums of its own, and the space of
#: objectives are killed and resumed in every run of the tests.
RESUMED = (("meta", "random_mlm"), ("ol_aux", "corpus"), ("aang", "space"))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            marks=() if (case[0], case[2]) in RESUMED else slow,
            id="-".join(map(str, (case[0], *case[2:]))),
        )
        for case in PAIR_CASES
    ],
)
def test_a_pair_of_settings(case, check, dataset, monkeypatch):
    weighting, options, tasks, accumulation, precision, metric = case
    monkeypatch.chdir(dataset)  # where the additional files are
    settings = {
        "gradient_accumulation_steps": accumulation,
        "precision": precision,
        "metric": metric,
    }
    check(AUXILIARIES[tasks], weighting, options, **settings)


def check_run(config, folder, monkeypatch):
    """Resume a copy of the folder as it was before the last step, which is what a kill leaves."""
    whole, steps = helpers.resume_to_the_same_files(
        monkeypatch, STEPS - 1, folder, lambda: train(config)
    )
    assert steps == [STEPS - 1]
    assert whole.steps == STEPS
    assert sum(whole.weights.values()) > 0

    classifier, tokenizer = load_classifier(folder / "whole" / "model")
    logits = classifier(**tokenizer("The tagger is faster.", return_tensors="pt")).logits
    assert logits.shape == (1, 3)
    assert logits.isfinite().all()
    if issubclass(WEIGHTINGS.get(config.weights.name), LearnedWeighting):
        values = list(whole.weights.values())
        assert max(values) - min(values) > 1e-9, "the weights never changed"


#: Masking strategies differ in their probabilities alone, but for those with state of their own.
PAIRED = [
    name
    for name in TASK_OPTIONS
    if not issubclass(TASKS.get(name), MaskedLanguageModelling)
    or name in ("random_mlm", "l3mask", "typhoon")
]

#: Triples in turn, until each weighting has its turn and each loss and task has two.
SOME = [
    tuple(names[number % len(names)] for names in ([*WEIGHTING_OPTIONS], [*LOSS_OPTIONS], PAIRED))
    for number in range(max(len(WEIGHTING_OPTIONS), 2 * len(LOSS_OPTIONS), 2 * len(PAIRED)))
]
COLUMNS = max(len(LOSS_OPTIONS), len(PAIRED))
#: Every weighting with every loss; the tasks rotate, so that each meets every other name.
ALL = [
    (weighting, [*LOSS_OPTIONS][column % len(LOSS_OPTIONS)], PAIRED[(row + column) % len(PAIRED)])
    for row, weighting in enumerate(WEIGHTING_OPTIONS)
    for column in range(COLUMNS)
]
TRIPLES = [*dict.fromkeys([*SOME, *ALL])]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_every_two_plug_ins_meet():
    tables = (WEIGHTING_OPTIONS, LOSS_OPTIONS, PAIRED)
    for first, second in combinations(range(3), 2):
        met = {(triple[first], triple[second]) for triple in TRIPLES}
        assert met == set(product(tables[first], tables[second]))
    for place, least in enumerate((1, 2, 2)):
        counts = Counter(triple[place] for triple in SOME)
        assert set(counts) == set(tables[place])
        assert min(counts.values()) >= least


@pytest.mark.parametrize(
    "triple",
    [
        pytest.param(triple, marks=() if triple in SOME else slow, id="-".join(triple))
        for triple in TRIPLES
    ],
)
def test_a_weighting_a_loss_and_a_task_train_together(triple, further, cache):
    weighting, loss, task = triple
    objectives = Objectives(
        [(task, further(TASK_OPTIONS[task]))],
        (loss, further(LOSS_OPTIONS[loss])),
        (weighting, WEIGHTING_OPTIONS[weighting]),
    )
    number = TRIPLES.index(triple)
    circumstances = Circumstances(
        cache,
        gradient_accumulation_steps=1 + number % 2,
        metric=("accuracy", "macro_f1")[number % 3 // 2],
    )
    run = TinyRun(objectives, circumstances)
    parameters = dict(run.encoder.named_parameters())
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    for losses in run.train(0, 2):
        assert all(math.isfinite(value) for value in losses.values())
    assert run.weighting.weights.isfinite().all()
    assert all(parameter.isfinite().all() for parameter in parameters.values())
    assert any(not torch.equal(tensor, parameters[name]) for name, tensor in before.items())
