"""``auxlearn train``: command-line options, configuration files and options of plug-ins."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from auxlearn.core.config import RunConfig
from auxlearn.core.run_settings import section_of
from auxlearn.results.folder import default_output
from auxlearn.results.record import Branch
from auxlearn.training import train as train_module
from tests.cli.helpers import call, error
from tests.results import examples


@pytest.fixture
def trained(monkeypatch) -> list[RunConfig]:
    """Replace the training; return the list of the configurations that it is called with."""
    configs: list[RunConfig] = []

    def train(config, reporter, dataset=None, executor=None):
        configs.append(config)
        reporter.message("a note on the data")
        with reporter.progress("training", 40) as advance:
            for entry in examples.entries("l3mask"):
                reporter.log(entry)
                advance(5)
        return examples.results("l3mask", seen=4)

    monkeypatch.setattr(train_module, "train_resolved", train)
    return configs


@pytest.fixture
def config_file(tmp_path):
    def write(**settings: object) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    return write


def config_of(trained: list[RunConfig], *arguments: object) -> RunConfig:
    result = call("train", *arguments)
    assert result.exit_code == 0, result.stderr
    return trained[-1]


def test_without_options_the_defaults_are_trained_in_the_default_folder(trained):
    assert config_of(trained) == RunConfig().resolved()
    result = call("train", "--seed", "4")
    assert f"run folder: {default_output(trained[-1])}\n" in result.stdout


def test_settings_of_a_trial_need_no_effect(trained, tmp_path):
    path = tmp_path / "config.yaml"  # its sweep sets them for others
    path.write_text(RunConfig(window_stride=8).resolved().to_yaml())
    assert config_of(trained, "--config", path).window_stride == 8


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--weights fixed", ""),
        ("--fixed-alpha 0.3", "--fixed-alpha: it has no effect without an auxiliary task"),
        ("--weights equal", "has nothing to weigh: name an auxiliary task"),
    ],
)
def test_weights_without_a_task_have_no_effect(trained, arguments, expected):
    for aux in ([], ["--aux", "l3mask"]):
        said = call("train", *aux, *arguments.split()).stderr
        assert (expected in said) == (not expected or not aux)
        assert expected or "without an auxiliary task" not in said


def test_plug_ins_of_a_file_are_announced_before_they_run(trained, config_file, tmp_path):
    plugin = tmp_path / "mine.py"
    plugin.write_text("import sys\nprint('it runs', file=sys.stderr)\n")
    path = config_file(plugins=[str(plugin)])
    said = call("train", "--config", path).stderr.splitlines()
    announced = f"running the Python file {plugin}, which {path} names as a plug-in"
    assert said[:2] == [announced, "it runs"]
    assert "running the Python file" not in call("train", "--plugin", plugin).stderr


def test_plug_ins_of_a_sweep_are_announced(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "{name: s, base: {plugins: [a.py]}, cases: [{name: x, plugins: [b.py]}], "
        "grid: {method: {m: {plugins: [c.py]}}}}"
    )
    result = call("sweep", path, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[:3] == [
        f"running the Python file {name}, which {path} names as a plug-in"
        for name in ("a.py", "b.py", "c.py")
    ]


def test_every_setting_is_an_option_with_its_help_and_default():
    text = call("train", "--help").stdout
    flat = " ".join(text.split())
    for name, field in RunConfig.model_fields.items():
        flag = "--plugin" if name == "plugins" else f"--{name.replace('_', '-')}"
        assert f"  {flag} " in text
        assert field.description, name
        assert field.description in flat
        assert f"\nFurther options, {section_of(name).lower()}:\n" in text
    assert "Maximum number of epochs. [default: 10]" in flat
    assert "`auxlearn list weightings` lists them. [default: fixed]" in flat
    assert "[default: False]" not in flat
    chosen = call("train", "--aux", "random_mlm", "--weights", "meta", "--help").stdout.split()
    for flag in ("--random-mlm-corpus", "--meta-share"):
        assert flag in chosen
        assert flag not in text


def test_the_help_has_the_options_of_a_plug_in_file(tmp_path):
    plugin = tmp_path / "told.py"
    plugin.write_text(
        "from auxlearn.plugins import register_task\n"
        "from auxlearn.tasks.simcse import SimCSE\n"
        '@register_task("told_in_help")\nclass Told(SimCSE):\n    pass\n'
    )
    for given in (
        ("--plugin", plugin, "--aux", "told_in_help"),
        (f"--plugin={plugin}", "--aux=told_in_help:mine"),
    ):
        assert "--told-in-help-temperature" in call("train", *given, "--help").stdout
    assert "--aux" in call("train", "--plugin", tmp_path / "nowhere.py", "--help").stdout


def test_options_take_precedence_over_the_file_key_by_key(trained, config_file):
    path = config_file(
        epochs=7, seed=5, report_to=["tensorboard"], compile=True, weights="equal", aux=["l3mask"]
    )
    config = config_of(trained, "--config", path, "--seed", 0, "--no-compile")
    expected = RunConfig(
        epochs=7, seed=0, report_to=("tensorboard",), weights="equal", aux="l3mask"
    )
    assert config == expected.resolved()


@pytest.mark.parametrize("file", [{"window_stride": 8}, {"text_window": "windows"}])
def test_a_setting_of_the_file_may_need_an_option(trained, config_file, file):
    option = "head" if "text_window" in file else "windows"
    path = config_file(**{"window_stride": 8, **file})
    config = config_of(trained, "--config", path, "--text-window", option)
    assert (config.text_window, config.window_stride) == (option, 8)


SURPRISED = [{"l3mask": {"score": "surprisal"}}]
OFTEN = [{"random_mlm": {"probability": 0.2}}]


@pytest.mark.parametrize(
    ("arguments", "aux", "weights"),
    [
        ("--aux l3mask --l3mask-score surprisal", SURPRISED, "fixed"),
        ("--aux l3mask --score=surprisal", SURPRISED, "fixed"),
        ("--aux l3mask --alpha 0.3", ["l3mask"], {"fixed": {"alpha": 0.3}}),
        (
            "--aux l3mask --aux random_mlm --alpha '[0.2, 0.1]'",
            ["l3mask", "random_mlm"],
            {"fixed": {"alpha": (0.2, 0.1)}},
        ),
        ("--aux random_mlm --random-mlm-probability 0.2 --weights meta", OFTEN, "meta"),
        (  # a core option keeps its name; the plug-in's needs the full form
            "--aux l3mask --weights meta --learning-rate 1e-3 --meta-learning-rate 1e-2 "
            "--horizon steps",
            ["l3mask"],
            {"meta": {"learning_rate": 0.01, "horizon": "steps"}},
        ),
        (
            "--aux l3mask --aux l3mask --probability 0.3",
            [{"l3mask": {"probability": 0.3}}] * 2,
            "fixed",
        ),
        (
            "--aux random_mlm:words --aux random_mlm:rare --words-probability 0.3 "
            "--rare-probability 0.1",
            [{"random_mlm:words": {"probability": 0.3}}, {"random_mlm:rare": {"probability": 0.1}}],
            "fixed",
        ),
        # A field of text takes what YAML would read as a number or a truth value.
        ("--aux random_mlm --corpus 2024", [{"random_mlm": {"corpus": "2024"}}], "fixed"),
    ],
)
def test_options_of_plug_ins(trained, arguments, aux, weights):
    config = config_of(trained, *shlex.split(arguments))
    expected = RunConfig(aux=aux, weights=weights, learning_rate=config.learning_rate).resolved()
    assert (config.aux, config.weights) == (expected.aux, expected.weights)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--probability", "0.3"], {"score": "surprisal", "probability": 0.3}),
        (["--score", "complement"], {"score": "complement", "probability": 0.2}),
        (["--aux", "l3mask"], {"score": "surprisal", "probability": 0.2}),
    ],
)
def test_plug_in_options_of_the_file_are_kept_key_by_key(trained, config_file, arguments, expected):
    path = config_file(aux=[{"l3mask": {"score": "surprisal", "probability": 0.2}}])
    (choice,) = config_of(trained, "--config", path, *arguments).aux
    assert {key: choice.options[key] for key in expected} == expected


def test_another_task_than_that_of_the_file_has_its_own_defaults(trained, config_file):
    weights = {"meta": {"horizon": "steps", "every": 3}}
    path = config_file(aux=[{"l3mask": {"probability": 0.2}}], weights=weights)
    config = config_of(trained, "--config", path, "--aux", "random_mlm", "--weights", "meta")
    assert config.aux == RunConfig(aux=("random_mlm",)).resolved().aux
    assert config.weights.options["every"] == 3


def test_a_plug_in_file_adds_its_options(trained, tmp_path):
    path = tmp_path / "my_task.py"
    path.write_text(
        "from auxlearn import MaskedLanguageModelling, Settings, register_task\n"
        "class Options(MaskedLanguageModelling.Options):\n"
        "    sharpness: int = 3\n"
        "@register_task('cli_sharp')\n"
        "class Sharp(MaskedLanguageModelling):\n"
        "    Options = Options\n"
        "    def mask_probabilities(self, batch): ...\n"
    )
    config = config_of(
        trained, "--plugin", path, "--aux", "cli_sharp", "--cli-sharp-sharpness", "9"
    )
    assert config.plugins == (str(path),)
    assert config.aux[0].options["sharpness"] == 9


#: By kind: an option that is unknown, of another plug-in, without its value, or out of range.
WRONG = {
    "--num_train_epochs 3": "unknown option '--num_train_epochs': did you mean '--epochs'?",
    "--weights meta --meta-evry 2": "unknown option '--meta-evry': did you mean '--meta-every'?",
    "--qqq x": "unknown option '--qqq': see `auxlearn train --help`",
    "l3mask": "unexpected argument 'l3mask': see `auxlearn train --help`",
    "--weight meta": "option '--weight' is one of a plug-in that is not chosen: --loss r_drop; "
    "or did you mean '--weights'?",
    "--aux l3mask --weights meta --alpha 0.3": "option '--alpha' is one of a plug-in that is not "
    "chosen: --weights fixed",
    "--weights meta --every": "option '--every' needs a value",
    "--epohcs": "unknown option '--epohcs': did you mean '--epochs'?",
    "--resume --seed 1": "unknown option '--resume': see",
    "--weights meta --every 2 --meta-every 3": "option '--meta-every' is given twice",
    "--keep-model --seed 1 --no-keep-model": "option '--keep-model' is given twice",
    "--dataset a --seed 1 --dataset b": "option '--dataset' is given twice: leave one of them out",
    "--aux l3mask --aux random_mlm --probability 0.2": "option '--probability' is ambiguous: write "
    "--l3mask-probability or --random-mlm-probability",
    "--weights 0.3": "unknown weighting '0.3': for a share write --weights fixed --fixed-alpha 0.3",
    "--aux --output x": "unknown auxiliary task '--output': known: ",
    "--aux l3mask,simcse": "unknown auxiliary task 'l3mask,simcse': several are named one by one",
    "--aux random_mlm:a --random-mlm-probability 0.2": "option '--random-mlm-probability' goes by "
    "the name given: write --a-probability",
    "--metric f1": "metric: f1: write macro_f1 or micro_f1 or span_f1",
    "--metric f1 --kind token_classification": "metric: f1: did you mean 'span_f1'?",
    "--weights meta,tartan": "unknown weighting 'meta,tartan': did you mean 'tartan'",
    "--aux {random_mlm:{probability:0.3}}": "command line: aux.0: write its name alone: "
    "options are a mapping in a file or in Python, and flags of their own on the command line",
    "--weights {meta:{every:2}}": "command line: weights: write its name alone: options are",
    "--kind a,b": "unknown kind of labels 'a,b': known: classification, dependency",
    "--report-to -x": "unknown reporter '-x': known: mlflow",
    "--plugin nowhere.py": "plug-in file nowhere.py does not exist",
    "--epochs 0": "command line: epochs: must be greater than or equal to 1",
    "--aux l3mask --score high": "l3mask: score: must be 'complement' or 'surprisal', got ",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_a_wrong_option_is_one_line(trained, arguments):
    assert error("train", *arguments.split()).startswith(WRONG[arguments])
    assert trained == []


def test_results_go_to_standard_output_and_messages_to_standard_error(
    trained, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("runs/x/model").mkdir(parents=True)
    result = call("train", "--aux", "l3mask", "--output", "runs/x")
    lines = result.stdout.splitlines()
    table = [" ".join(line.split()) for line in lines]
    assert "dev 20 0.750 0.740 20 0.750 0.740 0.500 0.333" in table
    assert "test 40 0.700 0.690 36 0.600 0.590 0.500 0.333" in table
    assert "letters 30 0.600 0.590 30 0.600 0.590 0.500 0.333" in table
    assert lines[-5:] == [
        "test: the text of 4 of 40 examples is also in train; the unseen columns leave these out",
        "best checkpoint: step 20 of 40, dev accuracy 0.750",
        "run folder: runs/x",
        "model:      runs/x/model",
        "plots:      runs/x/plots",
    ]
    said = result.stderr.splitlines()
    assert said[0] == "a note on the data"
    assert said[1] == (
        "step 10  epoch 1.0  loss primary 2.750 l3mask 1.750  "
        "weights primary 0.500 l3mask 0.500  dev accuracy 0.650 macro-F1 0.700"
    )
    assert [line.split()[1] for line in said[1:5]] == ["10", "20", "30", "40"]
    assert said[5].startswith("training: 40 in ")
    assert len(said) == 6
    assert "\x1b" not in result.output


def test_a_point_between_runs_is_not_called_a_checkpoint(monkeypatch, tmp_path):
    weights = {"primary": 0.67, "l3mask": 0.33}
    title = "half of l3mask 0.5"
    taken = Branch(title, f"branches/{title}", weights, 0.75, 0.1, 0.1, 0.01, True, [(0, 0.75)], 0)
    results = replace(examples.results("l3mask"), branches=[taken])
    monkeypatch.setattr(train_module, "train_resolved", lambda *given, **named: results)
    shown = call("train", "--aux", "l3mask", "--output", str(tmp_path / "x")).stdout
    assert f"\nbest of runs and points between them: {title}, dev accuracy 0.750\n" in shown
    assert "checkpoint" not in shown
