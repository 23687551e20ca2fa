"""Every configuration that is shipped can be loaded and resolved."""

from __future__ import annotations

from pathlib import Path

import pytest

from auxlearn import load_config

FILES = sorted((Path(__file__).parent.parent / "configs").glob("*.yaml"))


def test_there_are_configurations():
    assert {"demo.yaml", "single_task.yaml", "l3masking_acl_arc.yaml"} <= {f.name for f in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_configuration_loads_resolves_and_survives_a_round_trip(path, tmp_path):
    config = load_config(path).resolved()
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    again = load_config(tmp_path / "config.yaml")
    assert again == config
    assert again.digest == config.digest


def test_table_2_of_l3masking():
    config = load_config(Path(__file__).parent.parent / "configs" / "l3masking_acl_arc.yaml")
    settings = (config.learning_rate, config.max_length, config.batch_size)
    assert settings == (1e-4, 128, 64)
    assert (config.epochs, config.patience) == (150, 3)
    assert config.aux[0].options["probability"] == 0.15
