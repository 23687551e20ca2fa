"""Training with a rule that compares whole runs: its branches, and the one that is taken.

A branch is an ordinary run with fixed shares, or of the primary task alone, in a folder of its own
below ``branches/`` of the run folder. All branches have the same seed: the same initial parameters,
the same batches of the primary task and the same dropout masks. They are compared on dev by
:mod:`auxlearn.training.whole_runs.paired`; test data play no part. The model, metrics and
predictions of the branch that is taken become those of the run.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import Interrupted, RunError
from auxlearn.core.files import expand, replaced_folder, write_bytes, write_manifest
from auxlearn.core.metric_names import Quantity
from auxlearn.core.processes import ALONE, Processes
from auxlearn.core.progress import Reporter
from auxlearn.core.settings import PluginChoice
from auxlearn.core.signals import StopRequest
from auxlearn.data.dataset import TextDataset
from auxlearn.data.memory import save_folder
from auxlearn.encoders.device import usual_torch
from auxlearn.executors.jobs import Executor, Job, run_jobs
from auxlearn.kinds.base import kind_of
from auxlearn.results.account import account_of_branches
from auxlearn.results.folder import RunFolder, recorded_inputs
from auxlearn.results.loggers import ForwardingReporter
from auxlearn.results.model_card import model_card
from auxlearn.results.plots import plot_run
from auxlearn.results.record import LOGS, Branch, RunResults
from auxlearn.training.inputs import RunInputs, code_content, save_inputs
from auxlearn.training.run import load_finished, train_run
from auxlearn.training.setup import build_weighting, check_shared_parameters, check_source
from auxlearn.training.whole_runs.paired import Difference, ExampleLosses
from auxlearn.weighting.base import Branches

#: Weight of each objective in a branch, the primary task first.
Weights = tuple[float, ...]

#: Smallest difference of the metric, in standard errors, with which a branch can be taken.
LEAST_METRIC = -1.0


@dataclass(frozen=True)
class Gain:
    """How much better than the single task a branch is on dev."""

    loss: Difference  # in calibrated log loss, nats per example
    #: In the share of correct predictions, of which with macro-F1 each class has the same part.
    correct: Difference

    def suffices(self, evidence: float) -> bool:
        """Whether the branch is to be taken, by so many standard errors of the log loss."""
        correct = self.correct.mean >= LEAST_METRIC * self.correct.error
        return self.loss.mean > evidence * self.loss.error and correct


#: What is known of branches: their gain by their weights.
Gains = Mapping[Weights, Gain]


def alone(task: int, share: float, tasks: int) -> Weights:
    """Return the weights of a branch with one of several auxiliary tasks."""
    return (1 - share, *(share if number == task else 0.0 for number in range(tasks)))


def together(branches: Sequence[Weights]) -> Weights:
    """Return weights in which each task keeps its ratio to the primary task."""
    ratios = [
        sum(weights[place] / weights[0] for weights in branches)
        for place in range(1, len(branches[0]))
    ]
    total = 1 + sum(ratios)
    return (1 / total, *(ratio / total for ratio in ratios))


def search(tasks: int, rule: Branches, gains: Gains) -> Iterator[list[Weights]]:
    """Yield branches by the gains so far: each task alone with the first share, then with a higher
    or lower one; at last all that were better.
    """
    first, lower, higher = rule.shares
    begun = [alone(task, first, tasks) for task in range(tasks)]
    single = (1.0, *[0.0] * tasks)
    yield [*begun, single]  # mistakes in the settings of a task show in its first branch
    further = [
        alone(task, higher if gains[weights].loss.mean > 0 else lower, tasks)
        for task, weights in enumerate(begun)
    ]
    yield further
    better = [
        best_of({weights: gains[weights] for weights in pair}, rule.evidence)
        for pair in zip(begun, further, strict=True)
    ]
    taken = [weights for weights in better if weights is not None]
    if len(taken) > 1:
        yield [together(taken)]


def best_of(gains: Gains, evidence: float) -> Weights | None:
    """Return the branch that is to be taken; ``None``: the single task."""
    sufficient = {weights: gain for weights, gain in gains.items() if gain.suffices(evidence)}
    return (
        max(sufficient, key=lambda weights: sufficient[weights].loss.mean) if sufficient else None
    )


def branch_config(
    config: RunConfig, rule: Branches, weights: Weights, output: str | None
) -> RunConfig:
    """Return the configuration of a branch: fixed shares of the tasks that have a weight."""
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
    return train_run(config, build_weighting(config), reporter or Reporter(), processes=processes)


@dataclass
class _Training:
    """The branches of one run, and what becomes of them."""

    config: RunConfig
    rule: Branches
    folder: RunFolder
    reporter: Reporter
    executor: Executor | None
    processes: Processes
    paths: dict[Weights, Path] = field(default_factory=dict)
    trained: dict[Weights, RunResults] = field(default_factory=dict)
    gains: dict[Weights, Gain] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.config.objective_names()[1:]

    def run(self) -> RunResults:
        """Train the branches round by round, take the best, and write the results of the run."""
        shown = _OnceReporter(self.reporter)
        for branches in search(len(self.tasks), self.rule, self.gains):
            self._train_all(branches, shown)
            self._compare()
        best = best_of(self.gains, self.rule.evidence) if self._learned else None
        return self._take(best or self._single)

    @property
    def _learned(self) -> bool:
        """Whether any branch predicts dev better than by chance; a gain means nothing else."""
        return any(results.degenerate is None for results in self.trained.values())

    @property
    def _balanced(self) -> bool:
        """Whether every class counts alike."""
        return self.config.metric == kind_of(self.config.kind).balanced

    @property
    def _single(self) -> Weights:
        return (1.0, *[0.0] * len(self.tasks))

    def title(self, weights: Weights) -> str:
        """Return what a branch is called: its tasks with their shares."""
        shares = zip(self.tasks, weights[1:], strict=True)
        return " + ".join(f"{task} {share:.3g}" for task, share in shares if share) or "single task"

    def _train_all(self, branches: Sequence[Weights], shown: Reporter) -> None:
        configs = {}
        for weights in branches:
            name = self.title(weights).replace(" + ", "+").replace(" ", "-")[:100]
            self.paths[weights] = path = self.folder.path / "branches" / name
            output = str(path.absolute())
            configs[weights] = branch_config(self.config, self.rule, weights, output)
            branch = RunFolder(path)
            if branch.finished and self.config.keep_model and not branch.model_path.is_dir():
                shutil.rmtree(path)  # its model is gone, so it is trained again
        if self.executor is None:
            for weights, config in configs.items():
                shown.message(f"branch: {self.title(weights)}")
                self.trained[weights] = train_branch(config, shown, self.processes)
            return
        self._run_in_processes(configs, self.executor, shown)
        for weights, config in configs.items():
            self.trained[weights] = train_branch(config)  # they have finished

    def _run_in_processes(
        self, configs: Mapping[Weights, RunConfig], executor: Executor, shown: Reporter
    ) -> None:
        titles = {config.digest: self.title(weights) for weights, config in configs.items()}
        jobs = deque(
            Job.of(
                config,
                train_branch,
                Path(f"{self.paths[weights].absolute()}.log"),
                executor.threads,
            )
            for weights, config in configs.items()
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
                        raise RunError(f"branch {titles[outcome.digest]}: {outcome.error}")
                    else:
                        shown.message(f"branch: {titles[outcome.digest]} has finished")
            if stop.requested:
                raise Interrupted("stopped: run the same command again to resume")

    def _compare(self) -> None:
        """Compute the gain of every branch over the single task."""
        base = ExampleLosses.of(self.paths[self._single], self.trained[self._single])
        for weights, results in self.trained.items():
            if weights != self._single and weights not in self.gains:
                other = ExampleLosses.of(self.paths[weights], results)
                self.gains[weights] = Gain(*base.minus(other, self._balanced))

    def _take(self, taken: Weights) -> RunResults:
        source, chosen = RunFolder(self.paths[taken]), self.trained[taken]
        branches = [self._record(weights, weights == taken) for weights in self.trained]
        names = self.config.objective_names()
        seconds: dict[str, float] = {}
        for results in self.trained.values():
            for stage, value in results.seconds.items():
                seconds[stage] = seconds.get(stage, 0.0) + value
        results = replace(
            chosen,
            config=self.config.model_dump(mode="json"),
            digest=self.config.digest,
            weights=dict(zip(names, taken, strict=True)),
            seconds=seconds,
            branches=branches,
            account=account_of_branches(
                self.tasks,
                branches,
                self.rule.evidence,
                kind_of(self.config.kind).unit,
                metric=self.config.metric,
                learned=self._learned,
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

    def _record(self, weights: Weights, taken: bool) -> Branch:
        path, results = self.paths[weights], self.trained[weights]
        gain = self.gains.get(weights)
        key = Quantity.DEV.key(self.config.metric)
        return Branch(
            title=self.title(weights),
            folder=str(path.relative_to(self.folder.path)),
            weights=dict(zip(self.config.objective_names(), weights, strict=True)),
            value=results.best.value,
            gain=None if gain is None else gain.loss.mean,
            gain_error=None if gain is None else gain.loss.error,
            correct=None if gain is None else gain.correct.mean,
            correct_error=None if gain is None else gain.correct.error,
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
    for path in (folder.path / "branches").glob("*/"):
        for name in ("model", "heads", "adapter"):
            shutil.rmtree(path / name, ignore_errors=True)
