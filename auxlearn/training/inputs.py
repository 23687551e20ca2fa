"""The inputs of a run: digests of the data, encoder and code that its results depend on.

``inputs.json`` of a run's folder is compared when the run is resumed, and when its results are
requested again: they are never returned for other data, weights or code than produced them. Each
input has a digest, commit or version of each of its components:

==============================  ==============================================================
``data set``                    each split, by its examples as they were read
``out-of-distribution set N``   the evaluated splits, by their examples
``validation file``             the file of examples that drive the weights
``encoder``                     the files of a folder, or of the run that training begins from;
                                the commit of an encoder on the hub
``plug-in file F``              the file
``task N``, ``weighting N``     of a plug-in: its module, and the version of its distribution
``loss L``, ``kind K``          likewise
``auxlearn``                    the version
``file P that O reads``         a file that an objective has read
``further data D that O ...``   each split of a data set that an objective has loaded
==============================  ==============================================================
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from auxlearn.core.config import RunConfig
from auxlearn.core.errors import DataError, RunError, UserError
from auxlearn.core.files import content_digest, write_checked_json
from auxlearn.core.registry import KINDS, LOSSES, TASKS, WEIGHTINGS, plugin_digest
from auxlearn.core.settings import Columns, OODSource, ValidationSource
from auxlearn.core.version import __version__
from auxlearn.data.dataset import TextDataset
from auxlearn.data.load import load_dataset
from auxlearn.data.ood import load_ood_set
from auxlearn.data.run_data import RunData, check_data_settings, dataset_content, ood_content
from auxlearn.encoders.load import check_capacity
from auxlearn.kinds.base import Kind
from auxlearn.objectives.context import InputTracker
from auxlearn.results.folder import PLUGIN_FILE, recorded_inputs
from auxlearn.training.setup import initial_content

FILE = "inputs.json"

#: Digest or version of each component of an input.
Content = Mapping[str, str]

#: Content by input; the docstring of this module lists their names.
RunInputs = dict[str, Content]

_OOD, _FILE, _FURTHER = "out-of-distribution set ", "file ", "further data "


def save_inputs(folder: Path, inputs: RunInputs) -> None:
    write_checked_json(folder / FILE, {"inputs": inputs})


@dataclass(frozen=True)
class InputChanges:
    """The inputs of a run compared with those that exist now."""

    changed: tuple[str, ...] = ()  # descriptions of the inputs that differ now
    missing: tuple[str, ...] = ()  # inputs that cannot be compared, and why

    @property
    def changes(self) -> str:
        """The changed inputs, as the subject and verb of a sentence."""
        verb = "has" if len(self.changed) == 1 else "have"
        return f"{', '.join(self.changed)} {verb} changed"


def changes_in(
    recorded: RunInputs,
    now: Callable[[str, Content], Content],
    exists: Callable[[str], bool] = lambda name: True,
) -> InputChanges:
    """Compare recorded inputs with what ``now`` returns for each by name and content; what
    ``exists`` and cannot be read has changed.
    """
    changed, missing = [], []
    for name, before in recorded.items():
        try:
            present = now(name, before)
        except UserError as error:
            reason = " ".join(str(error).split())
            if exists(name):
                changed.append(f"the {name} ({reason})")
            else:
                missing.append(f"the {name} is not there to compare: {reason}")
        else:
            both = {*before, *present}
            if differing := sorted(part for part in both if before.get(part) != present.get(part)):
                shown = ", ".join(differing[:4]) + (", ..." if len(differing) > 4 else "")
                changed.append(f"the {name} ({shown})")
    return InputChanges(tuple(changed), tuple(missing))


def _source(name: str) -> str:
    """Return the path of a file or the source of a data set that an objective reads."""
    return name.removeprefix(_FILE).removeprefix(_FURTHER).rpartition(" that ")[0]


class InputReader:
    """Reads the present inputs of runs; each source once, however many runs share it."""

    def __init__(self) -> None:
        self._contents: dict[str, Content | UserError] = {}
        self._datasets: dict[str, tuple[str, tuple[str, ...], Kind, bool]] = {}

    def compare(self, config: RunConfig, recorded: RunInputs) -> InputChanges:
        code = code_content(config)
        return changes_in(
            recorded,
            lambda name, before: self._content(name, config, before, code),
            lambda name: self._exists(name, config),
        )

    def read(self, config: RunConfig) -> None:
        """Read what a run is to be trained on; what cannot be read, and settings that do not fit
        it, are a :class:`UserError`.
        """
        self._dataset(config)
        check_data_settings(config, *self._datasets[_dataset_key(config)])
        for source in config.ood:
            self._ood(config, source.name)
        self._encoder(config)
        layers = int(config.freeze) if config.freeze.isdecimal() else 0
        asked = config.initial_encoder, config.max_length, layers

        def capacity() -> Content:
            check_capacity(*asked)
            return {}

        self._once(f"capacity {asked}", capacity)

    def _content(
        self, name: str, config: RunConfig, before: Content, code: Mapping[str, Content]
    ) -> Content:
        """Return the present content of an input; none for one that the run no longer has."""
        if name == "data set":
            return self._dataset(config)
        if name == "encoder":
            return self._encoder(config)
        if name == "validation file":
            return {path: _file_digest(Path(path)) for path in before}
        if name.startswith(_OOD):
            return self._ood(config, name.removeprefix(_OOD))
        if name.startswith(_FILE):
            return _read_again(name)
        if name.startswith(_FURTHER):
            return self._loaded(_source(name), config)
        return code.get(name, {})

    def _exists(self, name: str, config: RunConfig) -> bool:
        """Return whether a local folder of that input exists, whatever it contains."""
        paths = {"data set": config.dataset, "encoder": config.initial_encoder}
        if name.startswith(_FILE):
            paths[name] = _source(name)
        if name.startswith(_OOD) and _dataset_key(config) in self._datasets:
            paths[name] = _ood_source(config, name.removeprefix(_OOD)).dataset
        return name in paths and os.path.exists(os.path.expanduser(paths[name]))

    def _once(self, key: str, read: Callable[[], Content]) -> Content:
        if key not in self._contents:
            try:
                self._contents[key] = read()
            except UserError as error:
                self._contents[key] = error
        content = self._contents[key]
        if isinstance(content, UserError):
            raise content
        return content

    def _encoder(self, config: RunConfig) -> Content:
        return self._once(f"encoder {config.initial_encoder}", lambda: initial_content(config))

    def _dataset(self, config: RunConfig) -> Content:
        key = _dataset_key(config)

        def read() -> Content:
            dataset = load_dataset(config.dataset, columns=config.columns, fold=config.fold)
            has_pairs = dataset.splits["train"].text_pairs is not None
            self._datasets[key] = dataset.name, dataset.label_names, dataset.kind, has_pairs
            return dataset_content(dataset)

        return self._once(key, read)

    def _loaded(self, source: str, config: RunConfig) -> Content:
        spec, names = json.loads(source)
        columns = Columns.model_validate(names or {})
        return self._once(
            f"data set of an objective {source}",
            lambda: dataset_content(load_dataset(spec, columns=columns)),
        )

    def _ood(self, config: RunConfig, name: str) -> Content:
        self._dataset(config)  # its classes and its card determine how the set is read
        dataset, names, kind, _ = self._datasets[_dataset_key(config)]
        source = _ood_source(config, name)
        key = f"{_OOD}{source.model_dump_json()} {_dataset_key(config)}"
        return self._once(key, lambda: ood_content(load_ood_set(source, dataset, names, kind)))


class InputRecord(InputTracker):
    """Records the inputs of a run that is being trained, as they become known."""

    def __init__(self, folder: Path, present: RunInputs, *, resumes: bool) -> None:
        self._folder = folder
        self._inputs = present
        if resumes:
            before = recorded_inputs(folder)
            kept = {
                name: content
                for name, content in before.items()
                if name in present or not name.startswith((_OOD, _FURTHER))
            }
            self._refuse(
                changes_in(kept, lambda name, _: _read_again(name) or present.get(name, {}))
            )
            self._inputs = {**before, **present}
        save_inputs(folder, self._inputs)

    def file(self, objective: str, path: Path) -> None:
        """Record a file, or a folder with its contents, before an objective reads it."""
        try:
            digest = content_digest(path)
        except OSError as error:
            raise DataError(f"'{objective}' cannot read {path} ({error.strerror})") from None
        self._add(f"{_FILE}{path} that {objective} reads", {"content": digest})

    def dataset(self, objective: str, source: str, columns: Columns, dataset: TextDataset) -> None:
        key = json.dumps([source, columns.model_dump(exclude_defaults=True) or None])
        self._add(f"{_FURTHER}{key} that {objective} reads", dataset_content(dataset))

    def _add(self, name: str, content: Content) -> None:
        recorded = self._inputs.get(name, content)
        self._refuse(changes_in({name: recorded}, lambda *_: content))
        self._inputs = {**self._inputs, name: recorded}
        save_inputs(self._folder, self._inputs)

    def _refuse(self, comparison: InputChanges) -> None:
        if comparison.changed:
            raise RunError(
                f"the run in {self._folder} cannot be resumed, as {comparison.changes} since it "
                f"began: choose another --output, or delete {self._folder} to train again"
            )


def collect_inputs(
    config: RunConfig, data: RunData, validation: ValidationSource | None
) -> RunInputs:
    """Return the present inputs of a run; call this before the encoder is loaded."""
    file = None if validation is None else validation.file
    return {
        "data set": dataset_content(data.dataset),
        **{f"{_OOD}{ood.source.name}": ood_content(ood) for ood in data.ood_sets},
        **({} if file is None else {"validation file": {str(file): _file_digest(file)}}),
        "encoder": initial_content(config),
        **code_content(config),
    }


def code_content(config: RunConfig) -> dict[str, Content]:
    """Return the version of this package and the content of every plug-in that a run uses."""
    content: dict[str, Content] = {"auxlearn": {"version": __version__}}
    for path in config.plugins:
        name, number = f"{PLUGIN_FILE}{Path(path).name}", 1
        while name in content:
            number += 1
            name = f"{PLUGIN_FILE}{Path(path).name} ({number})"
        content[name] = {"content": plugin_digest(path)}
    for choice in config.aux:
        content[f"task {choice.name}"] = TASKS.code_digests(choice.name)
    if config.kind is not None:
        content[f"kind {config.kind}"] = KINDS.code_digests(config.kind)
    content[f"loss {config.loss.name}"] = LOSSES.code_digests(config.loss.name)
    content[f"weighting {config.weights.name}"] = WEIGHTINGS.code_digests(config.weights.name)
    return {name: components for name, components in content.items() if components}


def verify_finished(folder: Path, config: RunConfig) -> tuple[str, ...]:
    """Refuse a finished run whose inputs have changed; return which cannot be compared, and why."""
    recorded = recorded_inputs(folder)
    if not recorded:
        return (f"warning: {folder} has no inputs.json: whether its data have changed is unknown",)
    comparison = InputReader().compare(config, recorded)
    if comparison.changed:
        raise RunError(
            f"{folder} is finished, but {comparison.changes} since: choose another --output, or "
            f"delete {folder} to train again"
        )
    return comparison.missing


def _dataset_key(config: RunConfig) -> str:
    return f"data set {config.dataset} {config.columns} {config.fold}"


def _ood_source(config: RunConfig, name: str) -> OODSource:
    known = {source.name: source for source in config.ood}
    return known.get(name) or OODSource(dataset=name, name=name)


def _read_again(name: str) -> Content:
    """Return the present content of a file that an objective has read; nothing for other inputs."""
    return {"content": _file_digest(Path(_source(name)))} if name.startswith(_FILE) else {}


def _file_digest(path: Path) -> str:
    try:
        return content_digest(path)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}: check the path") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
