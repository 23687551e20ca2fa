"""Published results: those of the package, and their place in the tables."""

import pytest
import yaml

from auxlearn.comparison.compare import compare
from auxlearn.core.errors import ConfigError, RunError
from auxlearn.sweeps.published import published_names, read_published
from tests.comparison.conftest import METHODS, right_by_method


def shown(comparison):
    table, _ = comparison.published_table()
    return table.to_dict("records")


def test_published_results_are_shown_with_the_difference(make_sweep, tmp_path):
    path = tmp_path / "paper.yaml"
    content = {
        "source": "A paper",
        "row_axis": "method",
        "tables": [
            {
                "cell": {"encoder": "tiny"},
                "columns": [[{}, "test"], [{"metric": "macro_f1"}, "test"]],
                "rows": {"STL": [[50.0, 0.5], None], "RTM": [60.5, 70.0], "Other": [80.0, None]},
            }
        ],
    }

    def write():
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return str(path)

    folder = make_sweep(right_by_method, grid=METHODS, seeds=2).path
    comparison = compare(folder, published=write())
    found = shown(comparison)
    assert [(row["method"], row["published"]) for row in found] == [
        ("STL", "50.00 ± 0.50"),
        ("RTM", "60.50"),
        ("Other", "80.00"),
    ]
    assert [row["difference"] for row in found] == ["+1.25", "+0.75", "-"]
    assert "A paper" in comparison.to_markdown()
    rest = "1 more are for settings that were not run here; the first is for encoder tiny, "
    assert f"{rest}metric macro_f1, method RTM." in comparison.to_markdown()
    content["tables"].append({"cell": {"encoder": "BERT-base"}, "columns": [[{}, "test"]]})
    content["tables"][1]["rows"] = {"STL": [90.0]}
    more = compare(folder, published=write())
    assert shown(more) == shown(comparison)
    assert "2 more are for settings that were not run here" in more.to_markdown()
    del content["tables"][1]
    content["tables"][0]["cell"] = {"encoder": "BERT-base"}
    folder = make_sweep(right_by_method, "elsewhere", grid=METHODS, seeds=2).path
    elsewhere = compare(folder, published=write())
    assert "None of the 4 published results is for a setting that was" in elsewhere.to_markdown()
    assert shown(elsewhere) == []
    for row, message in (
        ([1.0], "row 'STL' has 1 results for 2 columns"),
        ([[1.0], 2.0], r"rows.STL.0.*1 is missing"),
    ):
        content["tables"][0]["rows"]["STL"] = row
        with pytest.raises(ConfigError, match=message):
            read_published(write())


def test_a_sweep_names_no_file_outside_its_folder(make_sweep, tmp_path):
    """A sweep that was received may name any file of this machine."""
    table = {"cell": {"encoder": "tiny"}, "columns": [[{}, "test"]], "rows": {"STL": [50.0]}}
    text = yaml.safe_dump({"source": "A secret", "row_axis": "method", "tables": [table]})
    outside = tmp_path / "secret.yaml"
    outside.write_text(text)
    folder = make_sweep(right_by_method, grid=METHODS, seeds=2).path
    original = (folder / "sweep.yaml").read_text()

    def named(name):
        (folder / "sweep.yaml").write_text(original + yaml.safe_dump({"published": str(name)}))
        return compare(folder)

    for name in (outside, "../secret.yaml"):
        found = named(name)
        assert found.published == []
        (note,) = found.notes
        assert f"name {name} by --published" in note
        assert "A secret" not in found.to_markdown()
        assert compare(folder, published=str(outside)).notes == []
    for name in (outside.with_suffix(""), "../secret", "secret"):
        with pytest.raises(ConfigError, match="there are no published results"):
            named(name)
    (folder / "link.yaml").symlink_to(outside)
    with pytest.raises(RunError, match="leads out of"):
        named("link.yaml")
    (folder / "link.yaml").unlink()
    (folder / "paper.yaml").write_text(text)
    for name in ("paper.yaml", folder / "paper.yaml"):
        assert named(name).source == "A secret"
    assert "L3Masking" in named("l3masking_table3").source


def test_the_published_results_of_the_package_are_those_of_the_papers():
    """Compared with results read off the papers, at the corners of their tables."""
    expected = {
        "l3masking_table3 BERT-base ACL-ARC STL test accuracy": (71.34, 0.35),
        "l3masking_table3 RoBERTa-base IMDb L3Masking test macro_f1": (91.13, 0.09),
        "l3masking_table3 SciBERT ACL-ARC L3Masking test macro_f1": (74.1, 2.4),
        "l3masking_table3 ClinicalBERT Ohsumed STL test accuracy": (71.02, 0.42),
        "mask_tuning_table1 BERT-base MNLI PoE hans accuracy": (66.31, None),
        "mask_tuning_table1 BART-base QQP Mask-tuning paws accuracy": (45.71, 0.5),
        "mask_tuning_table3 BERT-base MNLI Sequential test_mismatched accuracy": (84.0, None),
        "mask_tuning_table3 RoBERTa-base SST-2 Augmented imdb_cad accuracy": (89.76, None),
    }
    found, counts = {}, {}
    for name in published_names():
        results, _ = read_published(name)
        counts[name] = len(results)
        for result in results:
            labels = [result.labels[axis] for axis in ("encoder", "dataset", "method")]
            key = " ".join((name, *labels, result.set, result.metric))
            assert key not in found
            found[key] = (result.mean, result.sd)
    assert {key: found[key] for key in expected} == expected
    assert counts == {
        "l3masking_table3": 48,
        "mask_tuning_table1": 29 + 36 + 18 + 4,
        "mask_tuning_table3": 3 * 5 * 9,
    }
