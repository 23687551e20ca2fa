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
