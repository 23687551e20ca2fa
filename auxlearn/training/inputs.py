"""What the results of a run follow from beside its settings: its inputs, each by a digest.

A run records its inputs in ``inputs.json`` of its folder when it begins, and the files that its
tasks read when they read them. They are compared when the run is resumed and when a finished run is
asked for again: results are never given out for data, weights or code that they were not made of.
Comparing reads the data; it tokenises nothing and loads no model.

==============================  ==============================================================
``data set``                    each split, by its rows as they were read
``out-of-distribution set N``   the splits that are evaluated, by their rows
``validation file``             the file that a weighting learns from
``encoder``                     a folder's files; an encoder of the hub by the commit it is at
``plug-in file F``              the file
``task N``, ``weighting N``     of a plug-in: the module it is in, and its distribution's version
``auxlearn``                    the version
``files``                       what tasks read, by task and path
==============================  ==============================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import auxlearn
from auxlearn.config import OODSource, RunConfig
from auxlearn.data.dataset import TextDataset
from auxlearn.data.load import load_dataset
from auxlearn.data.ood import OODSet, load_ood_set
from auxlearn.data.run_data import columns_of, dataset_content, ood_content, validation_file
from auxlearn.encoders.content import encoder_content
from auxlearn.errors import DataError, RunError, UserError
from auxlearn.files import content_digest, write_json
from auxlearn.registry import TASKS, WEIGHTINGS, plugin_digest

if TYPE_CHECKING:
    from auxlearn.weighting.base import Weighting

FILE = "inputs.json"

Content = Mapping[str, str]
"""Digest, or version, by part of an input."""

_OOD = "out-of-distribution set "


@dataclass(frozen=True)
class RunInputs:
    """What a run was made of.

    Attributes:
        inputs: Content by input; see the head of this module for their names.
        files: Digest of each file that a task has read, by task and path.
    """

    inputs: Mapping[str, Content]
    files: Mapping[str, Content] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> RunInputs | None:
        """Read what a run has recorded; ``None`` if it has recorded nothing.

        Raises:
            RunError: The file is damaged.
        """
        path = folder / FILE
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            return cls(inputs=values["inputs"], files=values["files"])
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(f"{path} is damaged ({error}): delete {folder} to train again") from None

    def save(self, folder: Path) -> None:
        """Write ``inputs.json``."""
        write_json(folder / FILE, asdict(self))


@dataclass(frozen=True)
class Comparison:
    """What became of the inputs of a run.

    Attributes:
        changed: The inputs that are others now, in words.
        missing: The inputs that cannot be compared, in words, with the reason.
    """

    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def changes(self) -> str:
        """What has changed, as the subject and verb of a sentence."""
        verb = "has" if len(self.changed) == 1 else "have"
        return f"{', '.join(self.changed)} {verb} changed"


class InputReader:
    """Reads the inputs of runs as they are now; each source once, however many runs share it."""

    def __init__(self) -> None:
        self._known: dict[str, Content | UserError] = {}
        self._datasets: dict[str, tuple[str, tuple[str, ...]]] = {}

    def compare(self, config: RunConfig, recorded: RunInputs) -> Comparison:
        """Compare what a run has recorded with what is there now.

        Args:
            config: The resolved configuration of the run.
            recorded: Its record. Inputs that are not in it do not count: an out-of-distribution
                set that only a data-set card names may have been out of reach then.
        """
        changed, missing = [], []
        code = code_content(config)
        for name, before in recorded.inputs.items():
            try:
                parts = _differing(before, self._content(name, config, before, code))
            except UserError as error:
                if self._is_there(name, config):  # and cannot be read any more
                    changed.append(f"the {name} ({_one_line(error)})")
                else:
                    missing.append(f"the {name} is not there to compare: {_one_line(error)}")
                continue
            if parts:
                changed.append(_in_words(name, parts))
        for task, files in recorded.files.items():
            for path, digest in files.items():
                if not Path(path).exists():
                    missing.append(f"{path}, which {task} has read, is not there to compare")
                elif content_digest(Path(path)) != digest:
                    changed.append(_file_in_words(task, path))
        return Comparison(tuple(changed), tuple(missing))

    def _content(
        self, name: str, config: RunConfig, before: Content, code: Mapping[str, Content]
    ) -> Content:
        """Return what an input is now; nothing of one that is no more a part of the run."""
        if name == "data set":
            return self._dataset(config)
        if name == "encoder":
            return self._once(
                f"encoder {config.encoder}", lambda _: encoder_content(config.encoder), config
            )
        if name == "validation file":
            return {path: _file_digest(Path(path)) for path in before}
        if name.startswith(_OOD):
            return self._ood(config, name.removeprefix(_OOD))
        return code.get(name, {})

    def _is_there(self, name: str, config: RunConfig) -> bool:
        """Say whether a local folder of that input exists, whatever is in it."""
        places = {"data set": config.dataset, "encoder": config.encoder}
        if name.startswith(_OOD) and _dataset_key(config) in self._datasets:
            places[name] = _ood_source(config, name.removeprefix(_OOD)).dataset
        return name in places and Path(places[name]).expanduser().exists()

    def _once(self, key: str, read: Callable[[RunConfig], Content], config: RunConfig) -> Content:
        if key not in self._known:
            try:
                self._known[key] = read(config)
            except UserError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, UserError):
            raise found
        return found

    def _dataset(self, config: RunConfig) -> Content:
        from auxlearn.cache import default_folder

        key = _dataset_key(config)

        def read(config: RunConfig) -> Content:
            folder = Path(config.cache_dir).expanduser() if config.cache_dir else default_folder()
            dataset = load_dataset(config.dataset, columns=columns_of(config), cache_dir=folder)
            self._datasets[key] = dataset.name, dataset.label_names
            return dataset_content(dataset)

        return self._once(key, read, config)

    def _ood(self, config: RunConfig, name: str) -> Content:
        self._dataset(config)  # its classes and its card say how the set is read
        dataset = self._datasets[_dataset_key(config)]
        source = _ood_source(config, name)
        key = f"{_OOD}{source.model_dump_json()} {dataset}"
        return self._once(key, lambda _: ood_content(load_ood_set(source, *dataset)), config)


class InputRecord:
    """The inputs of a run that is being trained, written down as they become known.

    Args:
        folder: The run folder, claimed.
        found: What the run is made of now.
        resumes: Whether there is a checkpoint that the run will be resumed from.

    Raises:
        RunError: The run is to be resumed, and what it began with has changed.
    """

    def __init__(self, folder: Path, found: RunInputs, *, resumes: bool) -> None:
        self._folder = folder
        self._inputs = found
        if resumes:
            before = RunInputs.load(folder)
            if before is None:
                raise RunError(
                    f"{folder} holds a checkpoint but no {FILE}, so its data cannot be compared: "
                    f"delete {folder} to train again"
                )
            changed = [
                _in_words(name, parts)
                for name, content in before.inputs.items()
                if (name in found.inputs or not name.startswith(_OOD))
                and (parts := _differing(content, found.inputs.get(name, {})))
            ]
            changed += [
                _file_in_words(task, path)
                for task, files in before.files.items()
                for path, digest in files.items()
                if not Path(path).exists() or content_digest(Path(path)) != digest
            ]
            self._refuse(changed)
            self._inputs = RunInputs({**before.inputs, **found.inputs}, before.files)
        self._inputs.save(folder)

    def add_file(self, task: str, path: Path) -> Path:
        """Record a file, or a folder with all that is in it, before a task reads it.

        Raises:
            DataError: It is not there or cannot be read.
            RunError: It is another than the one that the task read before the run was resumed.
        """
        try:
            digest = content_digest(path)
        except OSError as error:
            raise DataError(f"task '{task}' cannot read {path} ({error.strerror})") from None
        files = {name: dict(content) for name, content in self._inputs.files.items()}
        if files.setdefault(task, {}).setdefault(str(path), digest) != digest:
            self._refuse([_file_in_words(task, str(path))])
        self._inputs = RunInputs(self._inputs.inputs, files)
        self._inputs.save(self._folder)
        return path

    def _refuse(self, changed: list[str]) -> None:
        if changed:
            raise RunError(
                f"the run in {self._folder} cannot be resumed, as "
                f"{Comparison(tuple(changed)).changes} since it began: choose another --output, or "
                f"delete {self._folder} to train again"
            )


def collect_inputs(
    config: RunConfig, weighting: Weighting, dataset: TextDataset, ood_sets: Sequence[OODSet]
) -> RunInputs:
    """Return what a run that begins now is made of; to be called before the encoder is loaded.

    Args:
        config: The resolved configuration.
        weighting: May learn from a file.
        dataset: The data set as it was read.
        ood_sets: The out-of-distribution sets as they were read.

    Raises:
        UserError: The encoder, a plug-in file or the validation file cannot be read.
    """
    file = validation_file(weighting.validation_split)
    return RunInputs(
        {
            "data set": dataset_content(dataset),
            **{f"{_OOD}{ood.source.name}": ood_content(ood) for ood in ood_sets},
            **({} if file is None else {"validation file": {str(file): _file_digest(file)}}),
            "encoder": encoder_content(config.encoder),
            **code_content(config),
        }
    )


def code_content(config: RunConfig) -> dict[str, Content]:
    """Return the version of this package and the content of every plug-in that a run uses."""
    content: dict[str, Content] = {"auxlearn": {"version": auxlearn.__version__}}
    for path in config.plugins:
        name, number = f"plug-in file {Path(path).name}", 1
        while name in content:
            number += 1
            name = f"plug-in file {Path(path).name} ({number})"
        content[name] = {"content": plugin_digest(path)}
    for choice in config.aux:
        content[f"task {choice.name}"] = TASKS.code_digests(choice.name)
    content[f"weighting {config.weights.name}"] = WEIGHTINGS.code_digests(config.weights.name)
    return {name: parts for name, parts in content.items() if parts}


def verify_finished(folder: Path, config: RunConfig) -> tuple[str, ...]:
    """Compare the inputs of a finished run with what is there now.

    Args:
        folder: The run folder.
        config: Its resolved configuration.

    Returns:
        A sentence for each input that cannot be compared, such as a data set that is gone.

    Raises:
        RunError: An input has changed.
    """
    recorded = RunInputs.load(folder)
    if recorded is None:
        return (f"{folder} holds no {FILE}: whether its data have changed cannot be said",)
    found = InputReader().compare(config, recorded)
    if found.changed:
        raise RunError(
            f"{folder} is finished, but {found.changes} since: choose another --output, or delete "
            f"{folder} to train again"
        )
    return found.missing


def _dataset_key(config: RunConfig) -> str:
    return f"data set {config.dataset} {columns_of(config)}"


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
    """Return the parts that are new, gone or other."""
    return sorted(part for part in {*before, *now} if before.get(part) != now.get(part))


def _in_words(name: str, parts: list[str]) -> str:
    shown = ", ".join(parts[:4]) + (", ..." if len(parts) > 4 else "")
    return f"the {name} ({shown})"


def _file_in_words(task: str, path: str) -> str:
    return f"{path}, which {task} reads,"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
