"""What is refused before a run begins, or as soon as a plug-in does it, in one line."""

import pytest

import auxlearn
from auxlearn.core.errors import ConfigError, DataError, PluginError
from auxlearn.core.validation import Settings
from auxlearn.executors.jobs import executor_maker
from auxlearn.tasks.base import AuxiliaryTask
from auxlearn.training.plugin_checks import numbers_of
from tests.helpers import one_line
from tests.sweeps.conftest import InlineExecutor

UNROLLED = {"meta": {"horizon": "steps", "unroll": 2, "mix": "gradients"}}
COMPILED = {"compile": True, "weights": "fixed"}
CHECKPOINTED = {"gradient_checkpointing": True, "weights": "fixed"}
WINDOWS = {"text_window": "windows", "max_length": 16, "weights": "fixed"}

#: Settings of an encoder with two layers that do not go together, and what is said of them.
REFUSED = [
    ({"lora_rank": 2, "freeze": "body"}, r"lora_rank: .* leave freeze out"),
    ({"lora_rank": 2, "weights": UNROLLED}, "lora_rank: optimizer steps cannot be unrolled"),
    ({"freeze": 50}, "more than the"),
    ({"freeze": "2", "weights": "meta"}, "^freeze: 2 leaves no .* meta .*: use weights fixed$"),
    ({"freeze": "2"} | COMPILED, r"^compile: freeze 2 leaves .*leave compile out$"),
    (
        {"compile": True, "weights": UNROLLED},
        "^compile: optimizer steps cannot be unrolled .* meta",
    ),
    ({"loss": "span_cutoff"} | COMPILED, "the loss span_cutoff .*leave compile out"),
    (CHECKPOINTED | {"weights": UNROLLED}, "computed again through unrolled steps, as meta makes"),
    (CHECKPOINTED | {"loss": "hidden_cut"}, "the loss hidden_cut changes what a layer"),
    (CHECKPOINTED | {"compile": True}, "gradient_checkpointing: leave compile out"),
    ({"precision": "fp16"}, "^precision: fp16 leaves out steps that overflow, which meta does not"),
    (WINDOWS | {"window_stride": 14}, "window_stride: windows of 16 tokens have room for 14"),
    (
        WINDOWS | {"window_stride": 5, "aux": "space"},
        "space reads a text as one row of tokens",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_settings_that_do_not_go_together_are_refused(
    config, tmp_path, monkeypatch, changes, message
):
    monkeypatch.setattr("auxlearn.training.run.check_compiler", lambda *_: None)
    with pytest.raises((ConfigError, ValueError), match=message):
        auxlearn.train(config(**changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "call",
    [
        lambda: auxlearn.train(None),
        lambda: auxlearn.train(dataset=None),
        lambda: auxlearn.train(auxlearn.RunConfig(), dataset=None),
    ],
)
def test_data_that_are_none_are_no_built_in_data_set(call):
    """As after a load that has failed."""
    with one_line(DataError, "is None: give the data set, or leave the argument out"):
        call()


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (["l3mask:"], "'l3mask:' has no name behind the colon"),
        (["l3mask:words", "random_mlm:words"], "the name 'words' is that of two tasks"),
        (["l3mask", "random_mlm:l3mask"], "the name 'l3mask' is that of two tasks"),
    ],
)
def test_names_of_tasks_tell_them_apart(tasks, message):
    with one_line(ConfigError, "aux", message):
        auxlearn.RunConfig(aux=tasks)
    assert auxlearn.RunConfig(aux=["l3mask", "l3mask"]).objective_names()[2] == "l3mask_2"


def test_a_task_with_very_many_metrics_is_named():
    class Talkative(AuxiliaryTask):
        name = "talkative"

        def loss(self, encoder, batch, generator):
            return None

        def evaluate(self, encoder):
            return {str(number): 0.0 for number in range(20_000)}

    with one_line(PluginError, "evaluate of 'talkative'", "20,000 metrics: return at most 1,000"):
        numbers_of(Talkative(Settings()), "evaluate", None)


@pytest.mark.parametrize(
    ("executor", "options", "message"),
    [
        ("slrum", {}, "unknown executor 'slrum': did you mean 'slurm'"),
        ({"slurm": {"minuts": 3}}, {}, "executor slurm: unknown key 'minuts'"),
        (3, {}, "executor: 3 is no name"),
        (InlineExecutor(), {"jobs": 2}, "jobs and threads are those of the executor"),
        (InlineExecutor(), {"threads": 1}, "jobs and threads are those of the executor"),
    ],
)
def test_an_executor_is_known_and_has_the_options_that_are_given(executor, options, message):
    with one_line(ConfigError, message):
        executor_maker(executor, **{"jobs": None, "threads": None} | options)
