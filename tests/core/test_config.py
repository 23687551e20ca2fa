"""Settings: faults are named all at once, files come back equal, hashes know what matters."""

from __future__ import annotations

import numpy as np
import pytest
import yaml
from pydantic_core import SchemaError

from auxlearn.core.config import RunConfig, load_config
from auxlearn.core.errors import ConfigError, named_fault
from auxlearn.core.settings import ENCODERS

PLUGIN = """
from auxlearn import MaskedLanguageModelling, Settings, register_task

class Options(Settings):
    size: int = {size}

@register_task("{name}")
class Mine(MaskedLanguageModelling):
    Options = Options

    def mask_probabilities(self, batch):
        raise NotImplementedError
"""


def faults(values, path=None):
    """The lines of the error that a configuration gives."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, **values)
    return str(caught.value).splitlines()


def write(path, content):
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def plugin(path, name, size=3):
    path.write_text(PLUGIN.format(name=name, size=size))
    return str(path)


def test_unknown_names_of_kinds_and_metrics_come_at_once():
    with pytest.raises(ConfigError) as caught:
        RunConfig(kind="regresion", metric="makro_f1").resolved()
    kind, metric = str(caught.value).splitlines()
    assert kind == "unknown kind of labels 'regresion': did you mean 'regression'?"
    assert metric == "metric: makro_f1: did you mean 'macro_f1'?"


def test_a_fault_is_named_where_it_is(tmp_path):
    path = write(tmp_path / "run.yaml", {"epochs": 3})
    (line,) = faults({"epochs": "x"}, path)
    assert line == "settings: epochs: must be a whole number, got 'x'"
    assert faults({"seeds": 1}, path)[0].startswith("settings: unknown key 'seeds'")
    write(path, {"epochs": "x"})
    (line,) = faults({"seed": 1}, path)
    assert line == f"{path}: epochs: must be a whole number, got 'x'"


def test_settings_without_their_names_are_refused():
    for given in ("pydocs", {"epochs": 3}):
        with pytest.raises(ConfigError, match=r"^RunConfig takes settings by name, such as"):
            RunConfig(given)


def test_an_error_with_a_list_of_another_form_is_named():
    assert named_fault(SchemaError("no such field")) == "SchemaError: no such field"


def test_all_faults_come_at_once(tmp_path):
    path = write(
        tmp_path / "run.yaml",
        {"epochs": 0, "learning_rte": 1e-3, "warmup_ratio": 1.0, "seed": "one"},
    )
    lines = faults({}, path)
    assert len(lines) == 4
    assert all(line.startswith(f"{path}: ") for line in lines)
    for part in (
        "epochs: must be greater than or equal to 1, got 0",
        "unknown key 'learning_rte': did you mean 'learning_rate'?",
        "warmup_ratio: must be less than 1, got 1.0",
        "seed: must be a whole number",
    ):
        assert any(part in line for line in lines), part


def test_numbers_in_scientific_notation_and_of_numpy(tmp_path):
    # YAML 1.1 takes 1e-4 for a string.
    path = write(tmp_path / "run.yaml", "learning_rate: 1e-4")
    assert load_config(path).learning_rate == 1e-4
    config = load_config(freeze=np.int64(2), seed=np.int64(3), epochs=np.int32(4))
    assert (config.freeze, config.seed, config.epochs) == ("2", 3, 4)


def test_settings_cannot_be_changed_later():
    config = RunConfig()
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 3
    shares = [0.2, 0.6]
    config = RunConfig(aux=["random_mlm", "span"], weights={"fixed": {"alpha": shares}})
    digest = config.digest
    shares.append(0.9)
    assert config.digest == digest


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("aux: l3mask", [("l3mask", {})]),
        ("aux: [l3mask, random_mlm]", [("l3mask", {}), ("random_mlm", {})]),
        ("aux: [l3mask: {probability: 0.2}]", [("l3mask", {"probability": 0.2})]),
        ("aux: {l3mask: {probability: 0.2}}", [("l3mask", {"probability": 0.2})]),
        ("aux: {l3mask: , random_mlm: {}}", [("l3mask", {}), ("random_mlm", {})]),
        ("aux: [{name: l3mask, options: {probability: 0.2}}]", [("l3mask", {"probability": 0.2})]),
        ("aux:", []),
        ("aux: []", []),
    ],
)
def test_short_forms_of_tasks(tmp_path, written, expected):
    config = load_config(write(tmp_path / "run.yaml", written))
    assert [(choice.name, choice.options) for choice in config.aux] == expected


LIST = "meta: initial: must be a list, such as [a, b], got "


@pytest.mark.parametrize(
    ("aux", "weights", "lines"),
    [
        (
            [{"l3mask": {"probabilty": 0.2}}, {"random_mlm": {"probability": 2}}],
            {"meta": {"evry": 3}},
            [
                "l3mask: unknown key 'probabilty': did you mean 'probability'?",
                "random_mlm: probability: must be less than or equal to 1, got 2",
                "meta: unknown key 'evry': did you mean 'every'?",
            ],
        ),
        (
            "l3msk",
            "meat",
            [
                "unknown auxiliary task 'l3msk': did you mean 'l3mask'?",
                "unknown weighting 'meat': did you mean 'meta'?",
            ],
        ),
        ("random_mlm", {"meta": {"initial": 0.5}}, [f"{LIST}0.5"]),
        ("random_mlm", {"meta": {"initial": "0.9,0.1"}}, [f"{LIST}'0.9,0.1'"]),
    ],
)
def test_all_faults_of_plug_ins_come_at_once(aux, weights, lines):
    with pytest.raises(ConfigError) as caught:
        RunConfig(aux=aux, weights=weights).resolved()
    assert str(caught.value).splitlines() == lines


def test_resolving_fills_in_every_default():
    config = RunConfig(aux="l3mask", weights="meta").resolved()
    assert config.aux[0].options == {
        "probability": 0.15,
        "corpus": None,
        "schedule": "constant",
        "corruption": "bert",
        "unit": "token",
        "reverse": False,
        "score": "complement",
        "passes": None,
        "precision": "fp32",
    }
    assert config.weights.options["split"] == "dev"
    assert config.learning_rate == ENCODERS["tiny"].learning_rate
    assert RunConfig(encoder="roberta").resolved().learning_rate == 1e-4
    assert RunConfig(learning_rate=0.5).resolved().learning_rate == 0.5
    assert config.resolved() == config


def test_a_saved_configuration_is_the_same_run(tmp_path):
    config = RunConfig(
        dataset="some/where",
        text_pair_column="premise",
        aux=[{"l3mask": {"score": "surprisal"}}, "random_mlm", "random_mlm"],
        weights={"fixed": {"alpha": [0.1, 0.2, 0.3]}},
        plugins=[plugin(tmp_path / "mine.py", "round_trip")],
        metric="macro_f1",
        learning_rate=3e-5,
        output="runs/ü",
        report_to=("tensorboard",),
    ).resolved()
    path = write(tmp_path / "config.yaml", config.to_yaml())
    again = load_config(path)
    assert again.model_dump(mode="json") == config.model_dump(mode="json")
    assert again.digest == again.resolved().digest == config.digest
    assert path.read_text().startswith(f"# auxlearn run configuration, hash {config.digest}\n")
    assert again.resolved().to_yaml() == config.to_yaml()


OTHER = {
    "random_head": True,
    "do_lower_case": False,
    "freeze": "embeddings",
    "lora_rank": 4,
    "lora_alpha": 8.0,
    "lora_dropout": 0.5,
    "keep_null_labels": True,
    "kind": "regression",
    "thresholds": "dev",
    "dataset": "other",
    "text_column": "sentence",
    "text_pair_column": "other",
    "label_column": "class",
    "max_length": 64,
    "encoder": "roberta",
    "aux": ["l3mask"],
    "weights": {"fixed": {"alpha": 0.2}},
    "loss": {"cross_entropy": {"label_smoothing": 0.1}},
    "metric": "macro_f1",
    "seed": 1,
    "epochs": 11,
    "batch_size": 16,
    "gradient_accumulation_steps": 2,
    "learning_rate": 0.5,
    "weight_decay": 0.0,
    "warmup_ratio": 0.1,
    "lr_scheduler_type": "cosine",
    "layer_decay": 0.5,
    "gradient_checkpointing": True,
    "max_grad_norm": 0.0,
    "eval_steps": 7,
    "patience": 0,
    "min_epochs": 1,
    "device": "cpu",
    "precision": "bf16",
    "compile": True,
    "ood": ["other"],
    "perturbed_text": "add",
    "perturbed_share": 0.1,
    "attention_dropout": 0.0,
    "head_learning_rate": 0.5,
    "head_weight_decay": 0.5,
    "adam_beta1": 0.5,
    "adam_beta2": 0.5,
    "adam_epsilon": 0.5,
    "ties": "later",
    "final_schedule": "constant",
    "final_epochs": 1,
    "final_learning_rate": 0.5,
    "final_patience": 1,
    "labels": {"positive": [1]},
    "unknown_labels": "count",
    "text_window": "head+tail",
    "window_stride": 8,
    "window_pooling": "max",
    "max_windows": 4,
    "fold": "2/5",
    "init_from": "runs/other",
}
NO_IDENTITY = {
    "output": "elsewhere",
    "cache_dir": "elsewhere",
    "report_to": ("tensorboard",),
    "gradient_log_steps": 5,
    "keep_model": False,
}


def test_a_default_that_differs_is_named():
    changed = RunConfig(layer_decay=0.9, lr_scheduler_type="cosine", gradient_checkpointing=True)
    assert sorted(RunConfig().differs_from(changed)) == [
        "gradient_checkpointing False, not True",
        "layer_decay 1.0, not 0.9",
        "lr_scheduler_type linear, not cosine",
    ]
    assert "layer_decay 0.9, not 1.0" in changed.differs_from(RunConfig())


def test_the_way_a_path_is_written_is_no_part_of_the_hash():
    """The first of each is as it always was: folders of earlier runs are found again."""
    for name, written, digest, other in (
        ("dataset", "data/reviews", "b0521ddf50df", "./data/reviews/"),
        ("encoder", "runs/mlm", "294627709f6c", "runs//mlm/"),
        ("init_from", "runs/one", "6f6405f9f3db", "runs/./one"),
    ):
        config, same = RunConfig(**{name: written}), RunConfig(**{name: other})
        assert config.digest == same.digest == digest
        assert config.differs_from(same) == []
    # Data in memory are known by their fingerprint and name, wherever they are saved.
    saved = [f"{place}data/{'0' * 16}/films" for place in ("", "runs/a/", "/b/", "../")]
    others = [f"a/data/{'1' * 16}/films", f"a/data/{'0' * 16}/books", "a/data/reviews"]
    assert len({RunConfig(dataset=one).digest for one in saved}) == 1
    assert len({RunConfig(dataset=one).digest for one in [*others, saved[0]]}) == 4


def test_the_hash_knows_what_can_change_the_figures(tmp_path):
    """Every field is in one of the two lists, so that a new one must be put into one."""
    assert {*OTHER, *NO_IDENTITY, "plugins"} == set(RunConfig.model_fields)
    base = RunConfig().digest
    digests = {RunConfig(**{name: value}).digest for name, value in OTHER.items()}
    assert len(digests | {base}) == len(OTHER) + 1
    for name, value in NO_IDENTITY.items():
        assert RunConfig(**{name: value}).digest == base, name
    assert len(base) == 12
    int(base, 16)
    orders = [RunConfig(aux=order).digest for order in (["a", "b"], ["b", "a"])]
    assert orders[0] != orders[1]  # the order decides which objective gets which weight


def test_a_plug_in_file_counts_by_its_content(tmp_path):
    one = plugin(tmp_path / "one.py", "counted")
    (tmp_path / "elsewhere").mkdir()
    same = plugin(tmp_path / "elsewhere" / "renamed.py", "counted")
    other = plugin(tmp_path / "other.py", "counted", size=4)
    digest = RunConfig(plugins=[one]).digest
    assert RunConfig(plugins=[same]).digest == digest
    assert RunConfig(plugins=[other]).digest != digest
    assert RunConfig().digest != digest


@pytest.mark.parametrize(
    ("aux", "names"),
    [
        ([], ["primary"]),
        (["l3mask", "random_mlm"], ["primary", "l3mask", "random_mlm"]),
        (["l3mask"] * 3, ["primary", "l3mask", "l3mask_2", "l3mask_3"]),
        (["mlm2", "mlm2", "mlm"], ["primary", "mlm2", "mlm2_2", "mlm"]),
        (["mlm_2", "mlm", "mlm"], ["primary", "mlm_2", "mlm", "mlm_3"]),
        (["primary", "validation"], ["primary", "primary_2", "validation_2"]),
        (["mlm:first-one", {"mlm:b": {"a": 1}}, "mlm"], ["primary", "first_one", "b", "mlm"]),
    ],
)
def test_objectives_have_names_of_their_own(aux, names):
    assert list(RunConfig(aux=aux).objective_names()) == names


def test_a_task_with_a_name_of_its_own_is_written_as_it_was_given():
    config = RunConfig(aux=["random_mlm:words", {"supervised:questions": {"datasets": "a"}}])
    plain = RunConfig(aux=["random_mlm", {"supervised": {"datasets": "a"}}])
    written = config.resolved().model_dump(mode="json")
    assert [list(one) for one in written["aux"]] == [["random_mlm:words"], ["supervised:questions"]]
    assert RunConfig.model_validate(written) == config.resolved()
    assert config.resolved().digest != plain.resolved().digest
