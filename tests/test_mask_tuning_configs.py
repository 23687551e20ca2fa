"""The shipped configurations of Mask-tuning: the paper's settings, and what sets them apart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from auxlearn import load_config
from auxlearn.sweeps.plan import expand_cells, plan_trials
from auxlearn.sweeps.sweep_file import read_sweep
from tests.test_configs import settings as without_seed, trials_of

CONFIGS = Path(__file__).parent.parent / "configs"


def settings(name):
    return load_config(CONFIGS / "mask_tuning" / f"{name}.yaml").resolved()


@pytest.mark.parametrize("encoder", ["bert", "roberta", "bart"])
@pytest.mark.parametrize(
    ("dataset", "alpha", "batch_size"), [("sst2", 0.6, 16), ("mnli", 0.7, 32), ("qqp", 0.8, 32)]
)
def test_settings_of_section_iv(encoder, dataset, alpha, batch_size):
    config = settings(f"{dataset}-{encoder}")
    assert config.encoder == encoder
    assert config.dataset == dataset
    assert config.aux[0].options["probability"] == 0.05
    assert config.weights.options["alpha"] == alpha
    assert (config.epochs, config.batch_size) == (3, batch_size)
    assert 2e-5 <= config.learning_rate <= 5e-5


@pytest.mark.parametrize(
    ("name", "different"),
    [
        ("learned", {"weights"}),
        ("finetuning", {"aux", "weights"}),
        ("augmented", {"aux", "weights", "perturbed_text"}),
        ("no_integrated_loss", {"weights"}),
        ("sequential", {"aux", "weights", "perturbed_text", "encoder"}),
    ],
)
def test_a_variant_differs_in_nothing_else(name, different):
    whole = settings("sst2-bert").model_dump()
    variant = settings(f"sst2-bert-{name}").model_dump()
    assert {key for key in whole if whole[key] != variant[key]} == different


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
    (ours,) = {str(_used(without_seed(settings(f"sst2-bert-{name}"))))}
    theirs = trials_of("mask_tuning_table3", "SST-2", "BERT-base")[method]
    assert {str(_used(without_seed(config))) for config in theirs} == {ours}


@pytest.mark.parametrize(("short", "encoder"), [("bert", "BERT-base"), ("roberta", "RoBERTa-base")])
def test_intermediate_parsing_comes_before_the_fine_tuning_of_the_sweep(short, encoder):
    parser = load_config(CONFIGS / "mask_tuning" / f"ipt-{short}.yaml").resolved()
    assert (parser.kind, parser.metric, parser.aux) == ("dependency", "uas", ())
    whole = settings(f"mnli-{short}")
    assert (parser.encoder, parser.max_length) == (whole.encoder, whole.max_length)
    after = settings(f"mnli-{short}-ipt")
    different = {
        key for key, value in whole.model_dump().items() if after.model_dump()[key] != value
    }
    assert different == {"aux", "weights", "encoder"}
    text = (CONFIGS / "mask_tuning" / f"ipt-{short}.yaml").read_text()
    assert after.encoder == re.search("--output (.*)", text)[1] + "/model"
    theirs = trials_of("mask_tuning_table1", "MNLI", encoder)["IPT-standard"]
    assert len(theirs) == 4 * 5
    assert {str(_used(without_seed(one))) for one in theirs} == {str(_used(without_seed(after)))}
    for dataset in ("SST-2", "QQP"):
        assert "IPT-standard" not in trials_of("mask_tuning_table1", dataset, encoder)


def _used(values):
    return values if values["aux"] else {k: v for k, v in values.items() if k != "weights"}


def test_every_cell_of_the_grid_is_a_configuration():
    sweep = read_sweep(CONFIGS / "sweeps" / "mask_tuning_grid.yaml")
    trials = plan_trials(sweep, expand_cells(sweep))
    configs = [trial.config for trial in trials]
    assert len({config.digest for config in configs}) == 36 * 5
    assert sorted({config.learning_rate for config in configs}) == [2e-5, 3e-5, 4e-5, 5e-5]
    alphas = sorted({config.weights.options["alpha"] for config in configs})
    assert alphas == pytest.approx([tenth / 10 for tenth in range(1, 10)])
    assert sweep.select.over == ("learning_rate", "weights.fixed.alpha")
    assert sweep.select.metric == configs[0].metric
