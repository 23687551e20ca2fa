"""The run folder: its files, and the lock that one process at a time holds.

=====================  ==========================================================
``config.yaml``        the resolved configuration and its hash
``inputs.json``        digests of the data, encoder and plug-ins that the results depend on
``environment.json``   versions, git revision, hardware
``metrics.jsonl``      losses, weights, dev metrics by step, see :mod:`auxlearn.core.metric_names`
``results.json``       the results; written last, so its presence means that the run is finished
``model/``             the classifier and tokenizer as transformers reads them; missing, as are
                       the next two, if the run keeps no model
``heads/``             heads of auxiliary tasks and losses, where they have any, and the
                       masked-language-model head unless it is newly initialised
``adapter/``           low-rank adapters and the head as peft reads them, if it trained some
``checkpoint/``        checkpoints that an unfinished run resumes from
``plots/``             plots of losses, weights and dev metrics
``predictions/``       class probabilities of every evaluated example
``branches/``          a run folder for each run that a rule has compared, without models
``tracker_id.txt``     the id of the run at experiment trackers, if it is reported to any
``data/``              the data set, if it was in memory: a folder that ``config.yaml`` names
=====================  ==========================================================
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from auxlearn.core.arguments import UserPath, checked
from auxlearn.core.config import RunConfig, digest_of, no_run, path_identity, written_digest
from auxlearn.core.errors import ConfigError, PluginError, RunError, RunInUse, UserError
from auxlearn.core.files import (
    MANIFEST,
    cannot_write,
    check_output,
    delete_parts,
    expand,
    read_checked_json,
    unusable,
    user_path,
    verify_export,
    write_bytes,
    write_text,
)
from auxlearn.core.locks import Lock, LockHeld, holder, is_held
from auxlearn.core.validation import validate
from auxlearn.core.version import __version__
from auxlearn.core.yaml_files import read_yaml
from auxlearn.results.environment import Environment, describe_environment
from auxlearn.results.outputs import check_no_split, check_unowned
from auxlearn.results.record import FILE, RunResults, recorded_file

#: Name of the file with the traceback of an unforeseen error, so that one line is enough on the
#: screen, and the attribute of an error that says where it is.
FAULT, _LOG = "error.log", "_auxlearn_log"

PLUGIN_FILE = "plug-in file "  # begins the names of such inputs in ``inputs.json``


def default_output(config: RunConfig) -> Path:
    """Return the folder in ``runs/`` named by the settings; equal settings have the same folder."""
    parts = [
        Path(config.dataset).name,
        Path(config.encoder).name,
        "+".join(choice.label for choice in config.aux) or "single",
        config.weights.name,
        f"seed{config.seed}",
        config.digest[:8],
    ]
    return Path("runs") / "-".join(parts)


class RunFolder:
    """Access to the files of a run, with a lock for the process that runs it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metrics_path = path / "metrics.jsonl"
        self.model_path = path / "model"
        self.heads_path = path / "heads"
        self.adapter_path = path / "adapter"
        self.checkpoint_path = path / "checkpoint"
        self.plots_path = path / "plots"
        self.predictions_path = path / "predictions"
        self.data_path = path / "data"
        self.branches_path = path / "branches"
        self.lock: Lock | None = None  # while it is held

    @property
    def finished(self) -> bool:
        """Whether the run has written its results; what is no regular file is refused when read."""
        return (self.path / FILE).exists() or (self.path / FILE).is_symlink()

    def verify_exports(self) -> None:
        """Check that model, heads and adapter, where there are any, are those that it has written.

        Raises:
            RunError: One is of another run.
            EncoderError: One is damaged.
        """
        for path in (self.model_path, self.heads_path, self.adapter_path):
            if path.is_dir():
                recorded_file(self.path, f"{path.name}/{MANIFEST}")
                verify_export(path)

    @classmethod
    def of(cls, config: RunConfig) -> RunFolder:
        return cls(expand(config.output) if config.output else default_output(config))

    def read_config(self) -> RunConfig:
        """Return the configuration of the run in this folder; see :meth:`with_own_data`."""
        file = self.path / "config.yaml"
        if not file.is_file():
            raise RunError(no_run(self.path))
        settings = read_yaml(file, "configuration", ConfigError)
        config: RunConfig = validate(RunConfig, settings, str(file))
        # What plug-in files held, which is part of the hash, is known of a run that has finished.
        inputs = recorded_inputs(self.path).items() if self.finished else ()
        plugins = [file["content"] for name, file in inputs if name.startswith(PLUGIN_FILE)]
        try:
            digest = digest_of(settings, plugins)
        except (KeyError, TypeError):  # some are missing, although all were written
            digest = None
        known = plugins or not settings.get("plugins")
        if known and written_digest(self.path) != digest:
            raise RunError(
                f"{file} has been changed since it was written (its settings are not those of the "
                f"hash in its first line): restore it, or delete {self.path} to train again"
            )
        return self.with_own_data(config)

    def with_own_data(self, config: RunConfig) -> RunConfig:
        """Return a configuration with data that were in memory where they are now."""
        saved = path_identity(config.dataset)
        if saved == os.path.normpath(config.dataset) or expand(config.dataset).is_dir():
            return config
        places = [folder / saved for folder in (self.path, self.path.absolute().parents[1])]
        place = next((str(place) for place in places if place.is_dir()), config.dataset)
        return config.model_copy(update={"dataset": place})

    @property
    def in_use(self) -> bool:
        """Whether a process has locked the folder at this moment."""
        return is_held(self.lock_path)

    @property
    def lock_owner(self) -> str:
        """The process that holds the lock; see :func:`auxlearn.core.locks.holder`."""
        return holder(self.lock_path)

    @property
    def lock_path(self) -> Path:
        return self.path / ".lock"

    def check(self, config: RunConfig) -> None:
        """Check, before any work is done, that the run of a configuration can use the folder."""
        check_output(self.path)
        if self.path.parent.name not in ("trials", "branches"):  # of a sweep, of a run
            check_unowned(self.path)
            check_no_split(self.path)
        self._check_folder_belongs_to(config)

    @contextmanager
    def locked(self, config: RunConfig) -> Iterator[None]:
        """Lock the folder within the block; create it, or free it if the block fails before a
        step. A finished run that cannot be written to is only read.
        """
        if self.finished and not os.access(self.path, os.W_OK):
            self._check_folder_belongs_to(config)
            yield
            return
        self.check(config)
        self._working_folder = Path.cwd()
        with locked_folder(self.path) as self.lock:
            existing = self.path / "config.yaml"
            added = [place for place in self._first_files(config) if not place.exists()]
            if self.finished:
                pass
            elif existing.is_file() and (self.checkpoint_path / "latest.json").exists():
                Environment.load(self.path)  # it becomes part of the results at the end
            else:
                describe_environment().save(self.path)
                write_text(existing, config.to_yaml())
            try:
                yield
            except Exception:
                try:
                    self.check_lock()  # its error would be the cause
                finally:
                    if self.lock.in_place and not self.begun:
                        for place in added:
                            if place.is_dir():
                                shutil.rmtree(place, ignore_errors=True)
                            else:
                                place.unlink(missing_ok=True)
                raise

    def check_lock(self) -> None:
        """Refuse to write into a folder that is no longer the one that was locked."""
        if self.lock is None:
            return
        if (place := Path.cwd()) != self._working_folder:
            os.chdir(self._working_folder)
            raise PluginError(
                f"the working folder was changed to {place} while the run was in {self.path}, by "
                "one of its plug-ins: leave it as it is"
            )
        self.lock.check()

    @property
    def begun(self) -> bool:
        """Whether the run or one of its branches has made a step that is recorded."""
        latest = (self.checkpoint_path / "latest.json").is_file()
        logged = self.metrics_path.is_file() and self.metrics_path.stat().st_size > 0
        branches = any(RunFolder(path).begun for path in self.branches_path.glob("*/"))
        return self.finished or latest or logged or branches

    def _first_files(self, config: RunConfig) -> list[Path]:
        """Return what a run writes before its first step; a folder after what is in it."""
        names = ("config.yaml", "inputs.json", "environment.json", "metrics.jsonl")
        saved = expand(config.dataset)  # if it was in memory
        data = (saved, saved.parent, self.data_path)
        inside = [place for place in data if place.is_relative_to(self.data_path)]
        return [*(self.path / name for name in names), self.branches_path, *inside]

    def _check_folder_belongs_to(self, config: RunConfig) -> None:
        """Raise ``RunError`` unless the folder is empty or has a run of the configuration."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file: choose another --output")
        if (self.path / "config.yaml").is_file():
            try:
                differing = self.read_config().differs_from(config)
            except ConfigError as error:
                raise RunError(
                    f"{self.path} holds a run whose config.yaml cannot be read "
                    f"({' '.join(str(error).split())}): choose another --output, or restore that "
                    "file"
                ) from None
            if differing:
                raise RunError(
                    f"{self.path} holds the run of another configuration (it has "
                    f"{'; '.join(differing)}): choose another --output or delete the folder"
                )
        elif self.path.is_dir() and any(
            # A run killed at its very start leaves its lock, temporary files or environment.json.
            not entry.name.startswith(".") and entry.name not in ("environment.json", FAULT)
            for entry in self.path.iterdir()
        ):
            raise RunError(
                f"{self.path} is not empty and is not a run folder: choose another --output"
            )

    def read_metrics(self) -> list[dict[str, Any]]:
        """Return the entries of ``metrics.jsonl``; an incomplete last line is left out."""
        return read_jsonl(recorded_file(self.path, self.metrics_path.name))


def finished_folder(run: str | os.PathLike[str]) -> Path:
    """Return the folder of a finished run, which others may have made."""
    path = expand(run)
    folder = RunFolder(path)
    if not user_path(path, RunError).is_dir():
        raise RunError(f"there is no run folder {path}: check the path")
    if (path / "config.yaml").is_file():
        check_contained(path)
    folder.read_config()
    if not folder.finished:
        raise RunError(
            f"the run in {path} is not finished: resume it with "
            f"`auxlearn train --config {path / 'config.yaml'} --output {path}`"
        )
    return path


def recorded_inputs(run: Path) -> dict[str, Mapping[str, str]]:
    """Return the inputs that a run has recorded, see :mod:`auxlearn.training.inputs`."""
    path = run / "inputs.json"
    try:
        content = read_checked_json(path)["inputs"]
        return TypeAdapter(dict[str, Mapping[str, str]]).validate_python(content)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(unusable(path, error, f"delete {run} to train again")) from None


@checked
def load_run(path: UserPath) -> RunResults:
    """Return the results of a finished run.

    Args:
        path: The run folder.

    Raises:
        RunError: It is not a run folder, or the run is not finished.

    Examples:
        ``auxlearn.load_run("runs/first").to_frame()``
    """
    return RunResults.load(finished_folder(path))


def model_of(run: Path) -> Path:
    folder = RunFolder(finished_folder(run))
    if not folder.model_path.is_dir() and folder.path.absolute().parent.name == "branches":
        raise RunError(f"{run} is a run that {run.parent.parent} has compared, and keeps no model")
    RunResults.load(folder.path)  # whose files are those of the model
    recorded_file(folder.path, f"model/{MANIFEST}")
    if not folder.model_path.is_dir() and not folder.read_config().keep_model:
        raise RunError(
            f"the run in {run} kept no model (keep_model is off): train it with --keep-model and "
            "another --output"
        )
    return folder.model_path


@contextmanager
def locked_folder(path: Path) -> Iterator[Lock]:
    """Create a folder, lock it within the block, and delete what killed writes have left in it."""
    lock = Lock(path.absolute() / ".lock")
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except LockHeld as owner:
        raise RunInUse(f"{owner} is running in {path}: wait until it has ended") from None
    except OSError as error:
        raise RunError(
            f"cannot write to {path} ({error.strerror}): choose another --output"
        ) from None
    try:
        if not lock.in_place:  # the folder was moved after it had been locked
            raise RunInUse(f"another process has just moved {path}: try again")
        delete_parts(path)
        with logged_into(path):
            yield lock
    finally:
        lock.release()
        with suppress(OSError):  # the first one that is not empty
            for folder in new:
                folder.rmdir()


def check_contained(folder: Path) -> None:
    """Check that a folder, which others may have made, holds nothing that leads out of it."""
    try:
        home = folder.resolve()
        for place, folders, files in os.walk(folder):
            for path in (Path(place, name) for name in (*folders, *files)):
                try:
                    mode = path.lstat().st_mode
                except FileNotFoundError:
                    continue  # another process is deleting its temporary files
                if stat.S_ISLNK(mode):
                    if not path.resolve().is_relative_to(home):
                        raise RunError(
                            f"{path} is a link that leads out of {folder}, which is neither read "
                            "nor written through: delete the link"
                        )
                elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise RunError(f"{path} is neither a file nor a folder: delete it")
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot read {folder} ({reason}): check its permissions") from None


def append_jsonl(path: Path, entries: list[dict[str, Any]]) -> None:
    try:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
    except OSError as error:
        raise cannot_write(path, error) from None


def truncate_jsonl(path: Path, last_step: int) -> None:
    """Remove the entries after a step, which a resumed run will write again."""
    kept = [entry for entry in read_jsonl(path) if entry["step"] <= last_step] if last_step else []
    write_text(path, "".join(json.dumps(entry) + "\n" for entry in kept))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a JSON-lines file; an empty list if there is no file."""
    if not path.is_file():
        return []
    entries: list[dict[str, Any]] = []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        for line in lines[:-1]:
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise ValueError("not an object")
            entries.append(entry)
    except UnicodeDecodeError:
        raise RunError(f"{path} is damaged: it is not UTF-8") from None
    except (ValueError, RecursionError):
        raise RunError(f"{path} is damaged: line {len(entries) + 1} is no JSON object") from None
    return entries


@contextmanager
def logged_into(folder: Path) -> Iterator[None]:
    """Write the traceback of an unforeseen error in the block into ``error.log`` of a folder."""
    with suppress(OSError):
        (folder / FAULT).unlink()
    try:
        yield
    except BaseException as error:
        # The command line explains these in one line.
        if not isinstance(error, UserError | OSError | KeyboardInterrupt | SystemExit):
            _write_fault(folder / FAULT, error)
        raise


def log_of(error: BaseException) -> Path | None:
    """Return the file with the traceback of an error, written now if it has none; else ``None``."""
    known: Path | None = getattr(error, _LOG, None)
    if known is not None:
        return known
    try:
        folder = Path(tempfile.mkdtemp(prefix="auxlearn-"))
    except OSError:
        return None
    return _write_fault(folder / FAULT, error)


def _write_fault(path: Path, error: BaseException) -> Path | None:
    lines = [
        f"auxlearn {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
        f"command: {' '.join(sys.argv)}\n",
        f"folder: {os.getcwd()}\n\n",
        *traceback.format_exception(error),
    ]
    try:
        write_bytes(path, "".join(lines).encode(errors="backslashreplace"))
        setattr(error, _LOG, path)
    except (UserError, AttributeError):
        return None
    return path
