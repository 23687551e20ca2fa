"""The command-line option ``--ood``."""

from __future__ import annotations

from auxlearn.commands.options import run_config


def test_sets_of_the_command_line_replace_those_of_the_file(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("ood: [{dataset: data/hans, decision: argmax}]\nmax_length: 64\n")
    kept = run_config(str(file), {"seed": 3}, [])
    assert [(one.name, one.decision) for one in kept.ood] == [("hans", "argmax")]
    given = run_config(str(file), {"ood": ("data/imdb_cad", "anli")}, [])
    assert [(one.name, one.dataset) for one in given.ood] == [
        ("imdb_cad", "data/imdb_cad"),
        ("anli", "anli"),
    ]
    assert given.max_length == 64
