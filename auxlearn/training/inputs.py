"""The inputs of a run: digests of the data, encoder and code that its results depend on.

A run records its inputs in ``inputs.json`` of its folder when it begins, and the files and data
sets that its objectives read when they read them. They are compared when the run is resumed and
when the results of a finished run are requested again: results are never returned for data, weights
or code other than those that produced them. Comparing reads the data; it tokenises nothing and
loads no model.

==============================  ==============================================================
``data set``                    each split, by its examples as they were read
``out-of-distribution set N``   the evaluated splits, by their examples
``validation file``             the file of examples that drive the weights
``encoder``                     the files of a folder, or of the run that training begins from;
                                the commit of an encoder on the hub
``plug-in file F``              the file
``task N``, ``weighting N``     of a plug-in: its module, and the version of its distribution
``auxlearn``                    the version
``loss L``                      likewise
``files``                       files that objectives read, by objective and path
``datasets``                    data sets that objectives read, by objective and source
==============================  ==============================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter

from auxlearn.core.config import OODSource, RunConfig
from auxlearn.core.errors import DataError, RunError, UserError, first_fault
from auxlearn.core.files import content_digest, expand, read_checked_json, write_checked_json
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS, plugin_digest
from auxlearn.core.settings import ValidationSource
from auxlearn.core.version import __version__
from auxlearn.data.dataset import TextDataset
from auxlearn.data.examples import ColumnNames, columns_of
from auxlearn.data.load import load_dataset
from auxlearn.data.ood import load_ood_set
from auxlearn.data.run_data import RunData, dataset_content, ood_content
from auxlearn.objectives.context import InputTracker
from auxlearn.training.setup import initial_content

FILE = "inputs.json"

Content = Mapping[str, str]
"""Digest or version of each component of an input, such as each split of a data set."""

_OOD = "out-of-distribution set "


@dataclass(frozen=True)
class RunInputs:
    """The inputs of a run.

    Attributes:
        inputs: Content by input; the docstring of this module lists their names.
        files: Digest of each file that an objective has read, by objective and path.
        datasets: Content of each data set that an objective has read, by objective and source.
    """

    inputs: Mapping[str, Content]
    files: Mapping[str, Content] = field(default_factory=dict)
    datasets: Mapping[str, Mapping[str, Content]] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> RunInputs | None:
        """Read the inputs that a run has recorded; ``None`` if it has recorded none."""
        path = folder / FILE
        try:
            return TypeAdapter(RunInputs).validate_python(read_checked_json(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError) as error:
            reason = error.strerror if isinstance(error, OSError) else first_fault(error)
            raise RunError(
                f"{path} is damaged ({reason}): delete {folder} to train again"
            ) from None

    def save(self, folder: Path) -> None:
        """Write ``inputs.json``."""
        write_checked_json(folder / FILE, asdict(self))


@dataclass(frozen=True)
class Comparison:
    """The inputs of a run compared with those that exist now.

    Attributes:
        changed: Descriptions of the inputs that differ now.
        missing: Descriptions of the inputs that cannot be compared, with the reason.
    """

    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def changes(self) -> str:
        """The changed inputs, as the subject and verb of a sentence."""
        verb = "has" if len(self.changed) == 1 else "have"
        return f"{', '.join(self.changed)} {verb} changed"


class InputReader:
    """Reads the present inputs of runs; each source once, however many runs share it."""

    def __init__(self) -> None:
        self._contents: dict[str, Content | UserError] = {}
        self._datasets: dict[str, tuple[str, tuple[str, ...]]] = {}

    def compare(self, config: RunConfig, recorded: RunInputs) -> Comparison:
        """Compare the recorded inputs of a run with those that exist now."""
        changed, missing = [], []
        code = code_content(config)
        for name, before in recorded.inputs.items():
            try:
                differing = _differing(before, self._content(name, config, before, code))
            except UserError as error:
                if self._exists(name, config):  # but can no longer be read
                    changed.append(f"the {name} ({_one_line(error)})")
                else:
                    missing.append(f"the {name} is not there to compare: {_one_line(error)}")
                continue
            if differing:
                changed.append(_describe(name, differing))
        for task, files in recorded.files.items():
            for path, digest in files.items():
                if not Path(path).exists():
                    missing.append(f"{path}, which {task} has read, is not there to compare")
                elif content_digest(Path(path)) != digest:
                    changed.append(_describe_file(task, path))
        for objective, datasets in recorded.datasets.items():
            for source, before in datasets.items():
                try:
                    differing = _differing(before, self._objective_dataset(source, config))
                except UserError as error:
                    missing.append(
                        f"a data set that {objective} has read cannot be compared: "
                        f"{_one_line(error)}"
                    )
                    continue
                if differing:
                    changed.append(_describe_dataset(objective, source, differing))
        return Comparison(tuple(changed), tuple(missing))

    def read(self, config: RunConfig) -> None:
        """Read what a run is to be trained on; what cannot be read is a :class:`UserError`."""
        self._dataset(config)
        for source in config.ood:
            self._ood(config, source.name)
        self._content("encoder", config, {}, {})

    def _content(
        self, name: str, config: RunConfig, before: Content, code: Mapping[str, Content]
    ) -> Content:
        """Return the present content of an input; none for one that the run no longer has."""
        if name == "data set":
            return self._dataset(config)
        if name == "encoder":
            return self._once(
                f"encoder {config.initial_encoder}", lambda _: initial_content(config), config
            )
        if name == "validation file":
            return {path: _file_digest(Path(path)) for path in before}
        if name.startswith(_OOD):
            return self._ood(config, name.removeprefix(_OOD))
        return code.get(name, {})

    def _exists(self, name: str, config: RunConfig) -> bool:
        """Return whether a local folder of that input exists, whatever it contains."""
        paths = {"data set": config.dataset, "encoder": config.initial_encoder}
        if name.startswith(_OOD) and _dataset_key(config) in self._datasets:
            paths[name] = _ood_source(config, name.removeprefix(_OOD)).dataset
        return name in paths and expand(paths[name]).exists()

    def _once(self, key: str, read: Callable[[RunConfig], Content], config: RunConfig) -> Content:
        if key not in self._contents:
            try:
                self._contents[key] = read(config)
            except UserError as error:
                self._contents[key] = error
        content = self._contents[key]
        if isinstance(content, UserError):
            raise content
        return content

    def _dataset(self, config: RunConfig) -> Content:
        key = _dataset_key(config)

        def read(config: RunConfig) -> Content:
            dataset = load_dataset(
                config.dataset,
                columns=columns_of(config),
                cache_dir=_cache_folder(config),
                fold=config.fold,
            )
            self._datasets[key] = dataset.name, dataset.label_names
            return dataset_content(dataset)

        return self._once(key, read, config)

    def _objective_dataset(self, source: str, config: RunConfig) -> Content:
        spec, names = json.loads(source)
        columns = None if names is None else ColumnNames(**names)

        def read(config: RunConfig) -> Content:
            return dataset_content(
                load_dataset(spec, columns=columns, cache_dir=_cache_folder(config))
            )

        return self._once(f"data set of an objective {source}", read, config)

    def _ood(self, config: RunConfig, name: str) -> Content:
        self._dataset(config)  # its classes and its card determine how the set is read
        dataset = self._datasets[_dataset_key(config)]
        source = _ood_source(config, name)
        key = f"{_OOD}{source.model_dump_json()} {dataset}"
        return self._once(key, lambda _: ood_content(load_ood_set(source, *dataset)), config)


class InputRecord(InputTracker):
    """Records the inputs of a run that is being trained, as they become known."""

    def __init__(self, folder: Path, present: RunInputs, *, resumes: bool) -> None:
        self._folder = folder
        self._inputs = present
        if resumes:
            before = RunInputs.load(folder)
            if before is None:
                raise RunError(
                    f"{folder} holds a checkpoint but no {FILE}, so its data cannot be compared: "
                    f"delete {folder} to train again"
                )
            changed = [
                _describe(name, differing)
                for name, content in before.inputs.items()
                if (name in present.inputs or not name.startswith(_OOD))
                and (differing := _differing(content, present.inputs.get(name, {})))
            ]
            changed += [
                _describe_file(task, path)
                for task, files in before.files.items()
                for path, digest in files.items()
                if not Path(path).exists() or content_digest(Path(path)) != digest
            ]
            self._refuse(changed)
            self._inputs = replace(before, inputs={**before.inputs, **present.inputs})
        self._inputs.save(folder)

    def file(self, objective: str, path: Path) -> None:
        """Record a file, or a folder with its contents, before an objective reads it."""
        try:
            digest = content_digest(path)
        except OSError as error:
            raise DataError(f"'{objective}' cannot read {path} ({error.strerror})") from None
        files = {name: dict(content) for name, content in self._inputs.files.items()}
        if files.setdefault(objective, {}).setdefault(str(path), digest) != digest:
            self._refuse([_describe_file(objective, str(path))])
        self._inputs = replace(self._inputs, files=files)
        self._inputs.save(self._folder)

    def dataset(
        self, objective: str, source: str, columns: ColumnNames | None, dataset: TextDataset
    ) -> None:
        """Record a data set that an objective has loaded."""
        key = json.dumps([source, None if columns is None else asdict(columns)])
        datasets = {name: dict(content) for name, content in self._inputs.datasets.items()}
        content = dataset_content(dataset)
        before = datasets.setdefault(objective, {}).setdefault(key, content)
        if differing := _differing(before, content):
            self._refuse([_describe_dataset(objective, key, differing)])
        self._inputs = replace(self._inputs, datasets=datasets)
        self._inputs.save(self._folder)

    def _refuse(self, changed: list[str]) -> None:
        if changed:
            raise RunError(
                f"the run in {self._folder} cannot be resumed, as "
                f"{Comparison(tuple(changed)).changes} since it began: choose another --output, or "
                f"delete {self._folder} to train again"
            )


def collect_inputs(
    config: RunConfig, data: RunData, validation: ValidationSource | None
) -> RunInputs:
    """Return the present inputs of a run; call this before the encoder is loaded."""
    file = None if validation is None else validation.file
    return RunInputs(
        {
            "data set": dataset_content(data.dataset),
            **{f"{_OOD}{ood.source.name}": ood_content(ood) for ood in data.ood_sets},
            **({} if file is None else {"validation file": {str(file): _file_digest(file)}}),
            "encoder": initial_content(config),
            **code_content(config),
        }
    )


def code_content(config: RunConfig) -> dict[str, Content]:
    """Return the version of this package and the content of every plug-in that a run uses."""
    content: dict[str, Content] = {"auxlearn": {"version": __version__}}
    for path in config.plugins:
        name, number = f"plug-in file {Path(path).name}", 1
        while name in content:
            number += 1
            name = f"plug-in file {Path(path).name} ({number})"
        content[name] = {"content": plugin_digest(path)}
    for choice in config.aux:
        content[f"task {choice.name}"] = TASKS.code_digests(choice.name)
    content[f"loss {config.loss.name}"] = LOSSES.code_digests(config.loss.name)
    content[f"weighting {config.weights.name}"] = WEIGHTINGS.code_digests(config.weights.name)
    return {name: components for name, components in content.items() if components}


def verify_finished(folder: Path, config: RunConfig) -> tuple[str, ...]:
    """Compare the inputs of a finished run with those that exist now."""
    recorded = RunInputs.load(folder)
    if recorded is None:
        return (f"{folder} holds no {FILE}: whether its data have changed cannot be said",)
    comparison = InputReader().compare(config, recorded)
    if comparison.changed:
        raise RunError(
            f"{folder} is finished, but {comparison.changes} since: choose another --output, or "
            f"delete {folder} to train again"
        )
    return comparison.missing


def _cache_folder(config: RunConfig) -> Path:
    from auxlearn.core.cache import default_folder

    return expand(config.cache_dir) if config.cache_dir else default_folder()


def _dataset_key(config: RunConfig) -> str:
    return f"data set {config.dataset} {columns_of(config)} {config.fold}"


def _ood_source(config: RunConfig, name: str) -> OODSource:
    known = {source.name: source for source in config.ood}
    return known.get(name) or OODSource(dataset=name, name=name)


def _file_digest(path: Path) -> str:
    try:
        return content_digest(path)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}: check the path") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None


def _differing(before: Content, now: Content) -> list[str]:
    """Return the components that were added, removed or changed."""
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def _describe(name: str, components: list[str]) -> str:
    shown = ", ".join(components[:4]) + (", ..." if len(components) > 4 else "")
    return f"the {name} ({shown})"


def _describe_file(objective: str, path: str) -> str:
    return f"{path}, which {objective} reads,"


def _describe_dataset(objective: str, source: str, components: list[str]) -> str:
    return f"{_describe(f'data set {json.loads(source)[0]}', components)} that {objective} reads"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
