r"""Training with a rule that compares whole runs: its branches, and the one that is taken.

The branches are the single task, a run with each auxiliary task, and the points half-way and all
the way between them: with the parameters :math:`\theta_0` of the best checkpoint of the single
task and :math:`\theta_k` of the run with task k, the point of the levels l is

.. math:: \theta_0 + \sum_k l_k (\theta_k - \theta_0), \quad l_k \in \{0, 1/2, 1\}.

Averages of fine-tuned parameters that share their start are often as good as either or better
(Wortsman et al. 2022, "Model soups", https://arxiv.org/abs/2203.05482). A point costs an
evaluation; it is an ordinary run of no steps.

Each branch has a folder of its own below ``branches/`` of the run folder. All runs have the same
seed: the same initial parameters, the same batches of the primary task and the same dropout masks.
The branch with the best metric on dev is taken, of equal ones that nearest to the single task; test
data play no part. Its model, metrics and predictions become those of the run.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import ConfigError, Interrupted, RunError
from auxlearn.core.files import expand, replaced_folder, write_bytes, write_manifest
from auxlearn.core.metric_names import Quantity
from auxlearn.core.processes import ALONE, Processes
from auxlearn.core.progress import Reporter
from auxlearn.core.settings import PluginChoice
from auxlearn.core.signals import StopRequest
from auxlearn.data.dataset import TextDataset
from auxlearn.data.memory import save_folder
from auxlearn.encoders.device import usual_torch
from auxlearn.executors.jobs import PASSING, Executor, Job, run_jobs
from auxlearn.kinds.base import kind_of
from auxlearn.kinds.metrics import sign
from auxlearn.results.account import account_of_branches
from auxlearn.results.folder import RunFolder, recorded_inputs
from auxlearn.results.loggers import ForwardingReporter
from auxlearn.results.model_card import model_card
from auxlearn.results.plots import plot_run
from auxlearn.results.record import LOGS, Branch, RunResults
from auxlearn.training.checkpoint import write_tensors
from auxlearn.training.inputs import RunInputs, code_content, save_inputs
from auxlearn.training.run import load_finished, train_run
from auxlearn.training.setup import build_weighting, check_shared_parameters, check_source
from auxlearn.training.whole_runs.paired import ExampleErrors
from auxlearn.weighting.base import Branches

Tensors = dict[str, Tensor]
#: Of each auxiliary task, how far from the single task, 0, towards the run with it, 1.
Levels = tuple[float, ...]
LEVELS = (0.0, 0.5, 1.0)

#: Of n tasks 3^n points are evaluated.
MOST_TASKS = 4

#: Of the name of a branch's folder, in characters; a file name may have 255 bytes.
LONGEST_NAME = 100


def points(tasks: int) -> list[Levels]:
    """Return all points, from the single task on."""
    return sorted(product(LEVELS, repeat=tasks), key=sum)


def is_trained(levels: Levels) -> bool:
    """Whether a point is the single task or a run with one task."""
    return sum(levels) in (0, 1) and 0.5 not in levels


def weights_of(levels: Levels, share: float) -> tuple[float, ...]:
    """Return the weights of a run, the primary task first: of a point those with which the steps of
    one run would be its steps, to first order.
    """
    parts = [1 - share, *(level * share for level in levels)]
    return tuple(part / sum(parts) for part in parts)


def point(levels: Levels, single: Tensors, ends: Mapping[int, Tensors]) -> Tensors:
    """Return the parameters of a point, given those of the run with each task that has a level.
    Heads that the single task lacks are means of those of the runs.
    """
    found: Tensors = {}
    for name in dict.fromkeys(name for end in ends.values() for name in end):
        values = [(levels[task], end[name]) for task, end in ends.items() if name in end]
        start = single.get(name)
        if not values[0][1].is_floating_point():
            found[name] = values[0][1]
        elif start is not None:
            found[name] = start + sum(level * (end - start) for level, end in values)
        else:
            total = sum(level for level, _ in values)
            found[name] = torch.stack([level / total * end for level, end in values]).sum(0)
    return found


def branch_config(
    config: RunConfig, rule: Branches, levels: Levels, output: str | None
) -> RunConfig:
    """Return the configuration of a branch: fixed shares of the tasks that have a level."""
    weights = weights_of(levels, rule.share)
    chosen = [(task, w) for task, w in zip(config.aux, weights[1:], strict=True) if w]
    fixed = {"alpha": [w for _, w in chosen], "mix": rule.mix} if chosen else {}
    changes = {
        "aux": tuple(task for task, _ in chosen),
        "weights": PluginChoice(name="fixed", options=fixed),
        "output": output,
    }
    return config.model_copy(update=changes).resolved()


def train_branches(
    config: RunConfig,
    rule: Branches,
    reporter: Reporter,
    dataset: TextDataset | None,
    executor: Executor | None,
    processes: Processes,
) -> RunResults:
    """Train or resume the runs that a rule compares; the best becomes the run itself."""
    if len(config.aux) > MOST_TASKS:
        raise ConfigError(
            f"{config.weights.name} compares runs with at most {MOST_TASKS} auxiliary tasks, not "
            f"{len(config.aux)}: leave some out, or weigh them by another rule"
        )
    folder = RunFolder.of(config)
    if not folder.finished:
        folder.check(config)
        check_source(config, folder.path)
        check_shared_parameters(config)
    with folder.locked(config):
        if folder.finished:
            _delete_models(folder)
            return load_finished(folder, config, reporter)
        if dataset is not None and not expand(config.dataset).is_dir():
            save_folder(dataset, expand(config.dataset), config.columns)
        return _Training(config, rule, folder, reporter, executor, processes).run()


@usual_torch()
def train_branch(
    config: RunConfig, reporter: Reporter | None = None, processes: Processes = ALONE
) -> RunResults:
    """Train a branch and keep its parameters in a file beside its folder."""
    return _branch(config, reporter, processes, keep=parameters_file(config.output))


@usual_torch()
def evaluate_branch(
    config: RunConfig, reporter: Reporter | None = None, processes: Processes = ALONE
) -> RunResults:
    """Evaluate the parameters in the file beside the folder of a branch."""
    return _branch(config, reporter, processes, load_file(parameters_file(config.output)))


def _branch(
    config: RunConfig,
    reporter: Reporter | None,
    processes: Processes,
    parameters: Tensors | None = None,
    keep: Path | None = None,
) -> RunResults:
    weighting, shown = build_weighting(config), reporter or Reporter()
    return train_run(
        config, weighting, shown, processes=processes, parameters=parameters, keep_parameters=keep
    )


def folder_name(title: str, number: int) -> str:
    """Return the name of a branch's folder; long titles that begin alike have different ones."""
    name = title.replace(" + ", "+").replace(" ", "-")
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}-{number}"


def parameters_file(output: str | None) -> Path:
    return Path(f"{output}.safetensors")


@dataclass
class _Training:
    """The branches of one run, and what becomes of them."""

    config: RunConfig
    rule: Branches
    folder: RunFolder
    reporter: Reporter
    executor: Executor | None
    processes: Processes
    paths: dict[Levels, Path] = field(default_factory=dict)
    branches: dict[Levels, RunResults] = field(default_factory=dict)

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        return self.config.objective_names()[1:]

    def run(self) -> RunResults:
        """Train the runs, evaluate the points between them, and take the best of all."""
        every = points(len(self.tasks))
        for number, levels in enumerate(every):
            name = folder_name(self.title(levels), number)
            self.paths[levels] = self.folder.path / "branches" / name
        # Mistakes in the settings of a task show in its run.
        trained = sorted(filter(is_trained, every), reverse=True)
        shown = _OnceReporter(self.reporter)
        self._run_all(trained, train_branch, shown)
        between = [levels for levels in every if levels not in trained]
        for levels in between:
            self._write_point(levels)
        self._run_all(between, evaluate_branch, shown)
        return self._take(self._best(every) if self._learned else self._single)

    def _best(self, every: Sequence[Levels]) -> Levels:
        better = sign(self.config.metric)
        return max(every, key=lambda levels: better * self.branches[levels].best.value)

    @property
    def _learned(self) -> bool:
        """Whether any branch predicts dev better than by chance; a gain means nothing else."""
        return any(results.degenerate is None for results in self.branches.values())

    @property
    def _single(self) -> Levels:
        return (0.0,) * len(self.tasks)

    def title(self, levels: Levels) -> str:
        """Return what a branch is called: its tasks with the shares of their runs."""
        parts = [
            f"{'half of ' * (level == 0.5)}{task} {self.rule.share:.3g}"
            for task, level in zip(self.tasks, levels, strict=True)
            if level
        ]
        return " + ".join(parts) or "single task"

    def _write_point(self, levels: Levels) -> None:
        """Write the parameters of a point that has not been evaluated."""
        if RunFolder(self.paths[levels]).finished:
            return
        ends = {
            task: load_file(parameters_file(str(self.paths[end])))
            for task, level in enumerate(levels)
            if level
            for end in [tuple(float(other == task) for other in range(len(levels)))]
        }
        single = load_file(parameters_file(str(self.paths[self._single])))
        write_tensors(parameters_file(str(self.paths[levels])), point(levels, single, ends))

    def _run_all(
        self, every: Sequence[Levels], run: Callable[..., RunResults], shown: Reporter
    ) -> None:
        configs = {}
        for levels in every:
            path = self.paths[levels]
            configs[levels] = branch_config(self.config, self.rule, levels, str(path.absolute()))
            branch, needed = RunFolder(path), []
            if self.config.keep_model:
                needed.append(branch.model_path)
            if run is train_branch:
                needed.append(parameters_file(str(path)))
            if branch.finished and not all(map(Path.exists, needed)):
                shutil.rmtree(path)  # what the comparison needs is gone, so it is run again
        if self.executor is None:
            for levels, config in configs.items():
                shown.message(f"branch: {self.title(levels)}")
                self.branches[levels] = run(config, shown, self.processes)
            return
        self._run_in_processes(configs, run, self.executor, shown)
        for levels, config in configs.items():
            self.branches[levels] = run(config)  # they have finished

    def _run_in_processes(
        self,
        configs: Mapping[Levels, RunConfig],
        run: Callable[..., RunResults],
        executor: Executor,
        shown: Reporter,
    ) -> None:
        titles = {config.digest: self.title(levels) for levels, config in configs.items()}
        jobs = deque(
            Job.of(config, run, Path(f"{self.paths[levels].absolute()}.log"), executor.threads)
            for levels, config in configs.items()
        )

        def next_job() -> Job | None:
            return jobs.popleft() if jobs else None

        with StopRequest() as stop:
            for ended in run_jobs(executor, next_job, lambda: bool(jobs), stop, shown.message):
                for outcome in ended:
                    if outcome.state == "interrupted":
                        stop.requested = True
                    elif outcome.state != "finished":
                        executor.stop()
                        again = outcome.state in PASSING
                        advice = ": run the same command again to resume" if again else ""
                        title = titles[outcome.digest]
                        raise RunError(f"branch {title}: {outcome.error}{advice}")
                    else:
                        for line in outcome.messages:
                            shown.message(line)
                        shown.message(f"branch: {titles[outcome.digest]} has finished")
            if stop.requested:
                raise Interrupted("stopped: run the same command again to resume")

    def _take(self, taken: Levels) -> RunResults:
        source, chosen = RunFolder(self.paths[taken]), self.branches[taken]
        branches = [self._record(levels, levels == taken) for levels in self.branches]
        names = self.config.objective_names()
        seconds: dict[str, float] = {}
        for results in self.branches.values():
            for stage, value in results.seconds.items():
                seconds[stage] = seconds.get(stage, 0.0) + value
        results = replace(
            chosen,
            config=self.config.model_dump(mode="json"),
            digest=self.config.digest,
            weights=dict(zip(names, weights_of(taken, self.rule.share), strict=True)),
            seconds=seconds,
            branches=branches,
            account=account_of_branches(
                self.tasks, branches, self.config.metric, learned=self._learned
            ),
        )
        self.folder.check_lock()
        for name in ("predictions", "heads", "adapter"):
            _copy_folder(source.path / name, self.folder.path / name)
        for name in LOGS:
            if (source.path / name).is_file():
                write_bytes(self.folder.path / name, (source.path / name).read_bytes())
        if source.model_path.is_dir():
            card = model_card(results)
            _copy_folder(source.model_path, self.folder.model_path, {"README.md": card})
        save_inputs(self.folder.path, self._inputs())
        plot_run(self.folder.read_metrics(), results, self.folder.plots_path)
        results = results.save(self.folder.path)
        _delete_models(self.folder)
        return results

    def _record(self, levels: Levels, taken: bool) -> Branch:
        path, results = self.paths[levels], self.branches[levels]
        weights = weights_of(levels, self.rule.share)
        single = self.branches[self._single]
        gain = correct = None
        if levels != self._single:
            gain = results.best.value - single.best.value
            base = ExampleErrors.of(self.paths[self._single], single)
            balanced = self.config.metric == kind_of(self.config.kind).balanced
            correct = base.minus(ExampleErrors.of(path, results), balanced)
        key = Quantity.DEV.key(self.config.metric)
        return Branch(
            title=self.title(levels),
            folder=str(path.relative_to(self.folder.path)),
            weights=dict(zip(self.config.objective_names(), weights, strict=True)),
            value=results.best.value,
            gain=gain,
            correct=None if correct is None else correct.mean,
            correct_error=None if correct is None else correct.error,
            taken=taken,
            seconds=results.seconds["training"],
            course=[(e["step"], e[key]) for e in RunFolder(path).read_metrics() if key in e],
        )

    def _inputs(self) -> RunInputs:
        """Return the inputs of all branches as those of this run."""
        inputs: RunInputs = {}
        for path in self.paths.values():
            recorded = recorded_inputs(path)
            inputs |= {k: v for k, v in recorded.items() if not k.startswith("weighting ")}
        return inputs | code_content(self.config)


class _OnceReporter(ForwardingReporter):
    """Shows each message of several runs once, and their progress as it is."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(reporter, ())
        self._messages: set[str] = set()

    def message(self, text: str) -> None:
        if text not in self._messages:
            self._messages.add(text)
            super().message(text)


def _copy_folder(source: Path, target: Path, changed: Mapping[str, str] | None = None) -> None:
    """Copy a folder, with other content of some files, in place of what is there."""
    if not source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        return
    with replaced_folder(target) as temporary:
        shutil.copytree(source, temporary, dirs_exist_ok=True)
        for name, content in (changed or {}).items():
            (temporary / name).write_text(content, encoding="utf-8")
        if changed:
            write_manifest(temporary)


def _delete_models(folder: RunFolder) -> None:
    """Delete the models of branches; that of the branch that was taken is the run's now."""
    for path in (folder.path / "branches").glob("*.safetensors"):
        path.unlink()
    for path in (folder.path / "branches").glob("*/"):
        for name in ("model", "heads", "adapter"):
            shutil.rmtree(path / name, ignore_errors=True)
