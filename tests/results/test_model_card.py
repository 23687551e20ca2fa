"""Model cards: the front matter that the hub reads, and the facts for the reader."""

import shutil
from dataclasses import replace

import pytest
import yaml
from huggingface_hub import ModelCard

from auxlearn.results.model_card import model_card
from tests.results import examples


@pytest.fixture
def card():
    return ModelCard(model_card(examples.results("l3mask", seen=4)))


def test_the_front_matter_is_what_the_hub_reads(card):
    assert card.data.library_name == "transformers"
    assert card.data.pipeline_tag == "text-classification"
    assert card.data.metrics == ["accuracy", "f1"]
    assert {"auxlearn", "text-classification", "l3mask"} <= set(card.data.tags)
    found = card.data.eval_results
    assert [(one.dataset_split, one.metric_type, one.metric_value) for one in found] == [
        *(("dev", "accuracy", 0.75), ("dev", "f1", 0.74)),
        *(("test", "accuracy", 0.7), ("test", "f1", 0.69)),
        *(("letters", "accuracy", 0.6), ("letters", "f1", 0.59)),
    ]


def test_the_card_states_what_readers_ask(card):
    for fact in (
        "feedfacecafebeef",  # fingerprint of the data
        "train 80, dev 20, test 40",
        "no dev split: 20 of the 100 rows",
        "`l3mask` (probability 0.15)",
        "`meta` (horizon steps, split dev, every 2)",
        "primary 0.500, l3mask 0.500",  # weights at the end
        "seed: 3",
        "0123456789ab",  # hash of the configuration
        "learning rate 0.001",
        "| test | 40 | 0.700 | 0.690 | 36 | 0.600 | 0.590 | 0.500 | 0.333 |",
        "truncation=True",
        "truncated to 32 tokens",
        "torch 2.13.0",
    ):
        assert fact in card.text


def test_names_of_users_are_no_markup():
    name = "<img src=x onerror=alert(1)>"
    found = examples.results("l3mask", encoder=f"/x/{name}")
    evaluations = found.evaluations | {name: found.evaluations["test"]}
    names = {"name": f"a`{name}", "label_names": [name, "``b`"], "notes": [name]}
    data = replace(found.dataset, **names, examples={name: 1})
    found.config["aux"] = [{"l3mask": {"corpus": f"/y/{name}"}}]
    found = replace(found, dataset=data, evaluations=evaluations, degenerate=name)
    text = ModelCard(model_card(found)).text
    assert text.count(name) == text.count(f"`{name}`") + text.count(f"`` a`{name} ``") == 5
    assert f"{name} ``, fingerprint" in text
    assert "``` ``b` ```" in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") == 7


def test_a_hub_encoder_is_the_base_model():
    assert "base_model" not in model_card(examples.results())
    card = ModelCard(model_card(examples.results(encoder="scibert")))
    assert card.data.base_model == "allenai/scibert_scivocab_uncased"
    card = ModelCard(model_card(examples.results(encoder="someone/some-model")))
    assert card.data.base_model == "someone/some-model"


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ("---\nlicense: apache-2.0\n---\n# It", {"license": "apache-2.0"}),
        (
            "---\nlicense: other\nlicense_name: own\nlicense_link: https://x.org/l\n---\n",
            {"license": "other", "license_name": "own", "license_link": "https://x.org/l"},
        ),
        ("# It\n\nIts licence is MIT.", {}),
        ("---\nlicense: [mit, gpl]\n---\n", {}),
        ("---\nlicense: {a\n---\n", {}),
        ("---\n- license\n---\n", {}),
        (None, {}),
    ],
)
def test_the_licence_is_that_of_the_card_of_the_encoder(card, expected, encoder_folder, tmp_path):
    folder = tmp_path / "encoder"
    shutil.copytree(encoder_folder("bert"), folder)
    if card is not None:
        (folder / "README.md").write_text(card, encoding="utf-8")
    front = model_card(examples.results(encoder=str(folder))).split("---\n")[1]
    content = yaml.safe_load(front)
    assert {key: content[key] for key in content if key.startswith("license")} == expected
    assert "base_model" not in content


def test_local_paths_are_not_published(tmp_path):
    folder = tmp_path / "private" / "mini"
    folder.mkdir(parents=True)
    results = examples.results(
        encoder=str(folder), aux=[{"random_mlm": {"corpus": str(folder / "more.txt")}}]
    )
    text = model_card(results)
    assert "private" not in text
    assert "`mini`" in text
    assert "corpus more.txt" in text
    assert "base_model" not in text


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        ("reviews", None),
        ("data/reviews", {"type": "data/reviews"}),
        ("./data/reviews", None),
        ("nyu-mll/glue:sst2", {"type": "nyu-mll/glue", "config": "sst2"}),
        ("sst2", {"type": "nyu-mll/glue", "config": "sst2"}),
    ],
)
def test_a_data_set_of_the_hub_is_named_by_its_id(dataset, expected):
    card = ModelCard(model_card(examples.results(dataset=dataset)))
    found = {(one.dataset_type, one.dataset_config) for one in card.data.eval_results}
    if expected is None:
        assert card.data.datasets is None
        assert found == {("reviews", None)}
        return
    assert card.data.datasets == [expected["type"]]
    assert found == {(expected["type"], expected.get("config"))}
    assert {one.dataset_name for one in card.data.eval_results} == {"reviews"}
