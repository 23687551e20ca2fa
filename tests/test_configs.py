"""Every shipped configuration can be loaded, and each cell of the papers' tables has one."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from auxlearn import load_config
from auxlearn.sweeps.plan import expand_cells, plan_trials
from auxlearn.sweeps.published import read_published
from auxlearn.sweeps.sweep_file import SweepFile, read_sweep
from tests import helpers
from tests.cli.helpers import parse

CONFIGS = Path(__file__).parent.parent / "configs"
FILES = sorted(path for path in CONFIGS.rglob("*.yaml") if path.parent.name != "sweeps")

#: Name of a paper's data set or encoder in the names of the files.
SHORT = {
    "ACL-ARC": "acl_arc",
    "Ohsumed": "ohsumed",
    "IMDb": "imdb",
    "SST-2": "sst2",
    "MNLI": "mnli",
    "QQP": "qqp",
    "BERT-base": "bert",
    "RoBERTa-base": "roberta",
    "SciBERT": "scibert",
    "ClinicalBERT": "clinicalbert",
    "BART-base": "bart",
}


#: Settings that L3Masking's paper leaves open and META-TARTAN's released code has.
OF_THE_RELEASED_CODE = (
    "head_learning_rate",
    "weight_decay",
    "head_weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "warmup_ratio",
    "max_grad_norm",
    "ties",
)


def published_cells(name: str, method: str) -> list[tuple[str, str]]:
    """Data set and encoder of every result that the paper gives for its own method."""
    results, _ = read_published(name)
    cells = [one.labels for one in results if one.labels["method"] == method]
    return list(dict.fromkeys((cell["dataset"], cell["encoder"]) for cell in cells))


CELLS = [
    (folder, sweep, method, *cell)
    for folder, sweep, method in [
        ("l3masking", "l3masking_table3", "L3Masking"),
        ("mask_tuning", "mask_tuning_table1", "Mask-tuning"),
        ("mask_tuning", "mask_tuning_table3", "Mask-tuning"),
    ]
    for cell in published_cells(sweep, method)
]


def settings(config) -> dict:
    """All that the figures depend on but the seed and the sets that a user may have to make."""
    return config.model_dump(mode="json", exclude={"ood", "seed", "learning_rate"})


SWEEPS = sorted(path.stem for path in (CONFIGS / "sweeps").glob("*.yaml"))


@cache
def planned(name: str) -> tuple[SweepFile, list]:
    """A sweep file, and its trials with the first seed."""
    sweep = read_sweep(CONFIGS / "sweeps" / f"{name}.yaml")
    first = sweep.model_copy(update={"seeds": sweep.seeds[:1]})
    return sweep, plan_trials(first, expand_cells(first))


def trials_of(sweep: str, dataset: str, encoder: str) -> dict[str, list]:
    """The configurations of a sweep file in one cell, by method."""
    methods: dict[str, list] = {}
    for trial in planned(sweep)[1]:
        if (trial.cell["dataset"], trial.cell["encoder"]) == (dataset, encoder):
            methods.setdefault(trial.cell["method"], []).append(trial.config)
    return methods


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_has_trials_and_the_axes_of_published_results(name):
    sweep, trials = planned(name)
    assert sweep.name == name
    assert trials
    if sweep.published:
        published, _ = read_published(sweep.published)
        # Every axis of a published result is an axis of the sweep, with one of its labels.
        cells = expand_cells(sweep)
        labels = {axis: {cell.labels[axis] for cell in cells} for axis in sweep.axes}
        found = [one for one in published if all(v in labels[k] for k, v in one.labels.items())]
        assert len(found) >= len(cells) / max(1, 4 * len(sweep.select.over))


def test_there_are_configurations():
    assert len(FILES) >= 2 + 8 + 9
    assert len(CELLS) == 8 + 9 + 9
    assert len(SWEEPS) >= 13


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(CONFIGS).as_posix())
def test_configuration_loads_resolves_and_survives_a_round_trip(path, tmp_path):
    config = load_config(path).resolved()
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    again = load_config(tmp_path / "config.yaml")
    assert again == config
    assert again.digest == config.digest


def commands_of_comments() -> list[str]:
    """The commands that the comments of all configurations name, sweeps included."""
    lines = set()
    for path in CONFIGS.rglob("*.yaml"):
        text = re.sub(r"\\?\n# *", " ", path.read_text())
        lines |= {*re.findall(r"`(auxlearn [^`]+)`", text)}
        lines |= {*re.findall(r"auxlearn pretrain .*? --output \S+", text)}
    assert len(lines) >= 5
    return sorted(lines)


@pytest.mark.parametrize("line", commands_of_comments())
def test_a_command_of_a_comment_can_be_parsed(line):
    parse(line)


@pytest.mark.parametrize(("folder", "sweep", "method", "dataset", "encoder"), CELLS)
def test_each_cell_of_a_paper_has_a_configuration(folder, sweep, method, dataset, encoder):
    """It is the run that the sweep file makes of the cell, seed and learning rate apart."""
    path = CONFIGS / folder / f"{SHORT[dataset]}-{SHORT[encoder]}.yaml"
    config = load_config(path).resolved()
    members = trials_of(sweep, dataset, encoder)[method]
    same = [member for member in members if settings(member) == settings(config)]
    metrics = {member.metric for member in members}
    assert len(same) == len(members) / len(metrics)
    assert config.learning_rate in {member.learning_rate for member in same}


@pytest.mark.parametrize("path", sorted((CONFIGS / "l3masking").iterdir()), ids=lambda p: p.stem)
def test_table_2_of_l3masking(path):
    config = load_config(path)
    values = (config.learning_rate, config.max_length, config.batch_size)
    assert values == (1e-4, 128, 64)
    assert (config.epochs, config.patience) == (150, 3)
    assert config.aux[0].options["probability"] == 0.15
    assert config.final_epochs == 0
    released = load_config(**helpers.released_settings())
    for name in OF_THE_RELEASED_CODE:
        assert getattr(config, name) == getattr(released, name), name
    assert "Table 2" in path.read_text()


def of_mask_tuning(name):
    return load_config(CONFIGS / "mask_tuning" / f"{name}.yaml").resolved()


def different(one, other):
    """The settings in which two configurations differ."""
    first, second = one.model_dump(), other.model_dump()
    return {key for key in first if first[key] != second[key]}


@pytest.mark.parametrize("encoder", ["bert", "roberta", "bart"])
@pytest.mark.parametrize(
    ("dataset", "alpha", "batch_size"), [("sst2", 0.6, 16), ("mnli", 0.7, 32), ("qqp", 0.8, 32)]
)
def test_settings_of_section_iv(encoder, dataset, alpha, batch_size):
    config = of_mask_tuning(f"{dataset}-{encoder}")
    assert config.encoder == encoder
    assert config.dataset == dataset
    assert config.aux[0].options["probability"] == 0.05
    assert config.weights.options["alpha"] == alpha
    assert (config.epochs, config.batch_size) == (3, batch_size)
    assert 2e-5 <= config.learning_rate <= 5e-5


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("learned", {"weights"}),
        ("finetuning", {"aux", "weights"}),
        ("augmented", {"aux", "weights", "perturbed_text"}),
        ("no_integrated_loss", {"weights"}),
        ("sequential", {"aux", "weights", "perturbed_text", "encoder"}),
    ],
)
def test_a_variant_differs_in_nothing_else(name, keys):
    assert different(of_mask_tuning("sst2-bert"), of_mask_tuning(f"sst2-bert-{name}")) == keys


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("finetuning", "Fine-tuning"),
        ("augmented", "Augmented"),
        ("no_integrated_loss", "no integrated loss"),
        ("sequential", "Sequential"),
    ],
)
def test_an_ablation_is_what_the_sweep_of_table_iii_runs(name, method):
    """Apart from a share that a run without auxiliary tasks does not use."""
    (ours,) = {str(_used(settings(of_mask_tuning(f"sst2-bert-{name}"))))}
    theirs = trials_of("mask_tuning_table3", "SST-2", "BERT-base")[method]
    assert {str(_used(settings(config))) for config in theirs} == {ours}


@pytest.mark.parametrize(("short", "encoder"), [("bert", "BERT-base"), ("roberta", "RoBERTa-base")])
def test_intermediate_parsing_comes_before_the_fine_tuning_of_the_sweep(short, encoder):
    parser = load_config(CONFIGS / "mask_tuning" / f"ipt-{short}.yaml").resolved()
    assert (parser.kind, parser.metric, parser.aux) == ("dependency", "uas", ())
    whole = of_mask_tuning(f"mnli-{short}")
    assert (parser.encoder, parser.max_length) == (whole.encoder, whole.max_length)
    after = of_mask_tuning(f"mnli-{short}-ipt")
    assert different(whole, after) == {"aux", "weights", "encoder"}
    text = (CONFIGS / "mask_tuning" / f"ipt-{short}.yaml").read_text()
    assert after.encoder == re.search("--output (.*)", text)[1] + "/model"
    theirs = trials_of("mask_tuning_table1", "MNLI", encoder)["IPT-standard"]
    assert len(theirs) == 4
    assert {str(_used(settings(one))) for one in theirs} == {str(_used(settings(after)))}
    for dataset in ("SST-2", "QQP"):
        assert "IPT-standard" not in trials_of("mask_tuning_table1", dataset, encoder)


def _used(values):
    return values if values["aux"] else {k: v for k, v in values.items() if k != "weights"}
