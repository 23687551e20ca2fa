"""Files on disk: atomic writes, JSON with a checksum, paths of users, manifests of folders."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from auxlearn.core.errors import (
    MAKE_ROOM,
    NO_ROOM,
    EncoderError,
    UserError,
    describe,
    first_fault,
    shorten,
)

#: Ends the names of files, and of folders, that are still being written: ``.NAME.WRITER.part``.
PART = ".part"
CHECKSUM = "sha256"  # key of the checksum in JSON files that :func:`write_checked_json` writes

T = TypeVar("T")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: the new content replaces the old one as a whole or not at all."""
    with replaced_file(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replaced_file(path: Path, temporary: Path | None = None) -> Iterator[Path]:
    """Write a file atomically, by what writes to the path that the block is given: one of its own,
    or that of a writer that no other process writes beside.
    """
    temporary = temporary or _temporary(path)
    try:
        with _told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            mode = temporary.stat().st_mode
            yield temporary
            temporary.chmod(mode)  # libraries write some as 0600
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink()


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say in one line what fails in the block, which writes a path."""
    from safetensors import SafetensorError

    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from None
    except SafetensorError as error:  # its message has the cause, such as a full disk
        raise UserError(f"cannot write {path} ({error}): {MAKE_ROOM}") from None


def cannot_write(path: Path, error: OSError) -> UserError:
    """Return the error of a write, with advice that fits its cause."""
    advice = MAKE_ROOM if error.errno in NO_ROOM else "choose a path that can be written to"
    return UserError(f"cannot write {path} ({error.strerror or error}): {advice}")


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Write a folder atomically."""
    temporary = _temporary(path)
    try:
        with _told(path):
            temporary.mkdir(parents=True)
            yield temporary
            _set_modes(temporary)
            if path.exists():
                shutil.rmtree(path)
            os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def filled_folder(path: Path) -> Iterator[Path]:
    """Write files into a folder that exists and that other files are kept in."""
    written = path / f".export{PART}"
    with replaced_folder(written) as temporary:
        yield temporary
    try:
        for file in sorted(written.iterdir()):
            os.replace(file, path / file.name)
        written.rmdir()
    except OSError as error:
        raise cannot_write(path, error) from None


def _temporary(path: Path) -> Path:
    """Return where a path is written first; delete what killed writers of it have left."""
    begin, machine = f".{path.name[:40]}.", _machine()
    left = re.compile(rf"{re.escape(begin + machine)}-(\d+)-(\d+)-[0-9a-f]{{8}}{re.escape(PART)}")
    names = []
    with suppress(OSError):  # there may be no folder yet
        names = os.listdir(path.parent)
    for found in filter(None, map(left.fullmatch, names)):
        now = _started(int(found[1]))
        if not now or ("0" not in (now, found[2]) and now != found[2]):
            _delete(path.with_name(found[0]))
    writer = f"{machine}-{os.getpid()}-{_started(os.getpid())}"
    return path.with_name(f"{begin}{writer}-{secrets.token_hex(4)}{PART}")


@cache
def _machine() -> str:
    """Return what tells the machine, or container, whose processes a number is one of."""
    space = "/proc/self/ns/pid"
    name = f"{platform.node()} {os.readlink(space) if os.path.exists(space) else ''}"
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _started(pid: int) -> str:
    """Return when a process has started; "0" if that is not known, "" if there is none."""
    with suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    try:
        os.kill(pid, 0)
    except OSError as error:
        return "" if error.errno == errno.ESRCH else "0"
    return "0"


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _set_modes(folder: Path) -> None:
    """Give the files of a folder the mode of a new file; libraries write some as 0600."""
    probe = folder / f".mode{PART}"
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def delete_parts(folder: Path, *, recursive: bool = True) -> None:
    """Delete what writes that were killed have left in a folder; links are not followed."""
    pattern = f".*{PART}"
    for path in folder.rglob(pattern) if recursive else folder.glob(pattern):
        _delete(path)


def content_digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of the relative paths and contents of a folder's files."""
    if not path.is_dir():
        with open(path, "rb", opener=regular) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for inner in sorted(path.rglob("*")):
        if inner.is_file():
            line = f"{inner.relative_to(path).as_posix()} {content_digest(inner)}\n"
            digest.update(line.encode())
    return digest.hexdigest()


def write_text(path: Path, content: str) -> None:
    """Write a UTF-8 file atomically; see :func:`write_bytes`."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON atomically; see :func:`write_bytes`."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def read_json(path: Path) -> Any:
    try:
        with open(path, encoding="utf-8", opener=regular) as file:
            return json.load(file)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None


def write_checked_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object with a checksum of its values, as the key ``sha256``, atomically."""
    write_json(path, {**content, CHECKSUM: _json_digest(content)})


def read_checked_json(path: Path, *, required: bool = False) -> dict[str, Any]:
    """Return what :func:`write_checked_json` has written, without the checksum."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    checksum = content.pop(CHECKSUM, None)
    if (required or checksum is not None) and checksum != _json_digest(content):
        raise ValueError("its checksum is not that of its values")
    return content


def read_record(
    kind: type[T],
    path: Path,
    error: type[UserError],
    advice: str,
    *,
    required: bool = False,
    exact: bool = False,
) -> T:
    """Return what :func:`write_checked_json` has written of a dataclass, checked by its types."""
    known: Any = kind  # no type variable is hashable
    try:
        content = read_checked_json(path, required=required)
        unknown = [key for key in content if key not in known.__dataclass_fields__]
        if exact and unknown:
            raise ValueError(f"unknown key {shorten(unknown[0])}")
        record: T = _adapter(known).validate_python(content)
        return record
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError, TypeError) as fault:
        raise error(unusable(path, fault, advice)) from None


def unusable(path: Path, fault: Exception, advice: str) -> str:
    """Return why a file that was written earlier cannot be used, and what to do about it."""
    if isinstance(fault, PermissionError):
        return f"{path} cannot be read ({fault.strerror}): change its permissions"
    reason = fault.strerror if isinstance(fault, OSError) else first_fault(fault)
    return f"{path} is damaged ({reason}): {advice}"


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _json_digest(content: Any) -> str:
    # As JSON has it: tuples are lists, keys are texts.
    text = json.dumps(json.loads(json.dumps(content)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def check_output(path: Path) -> None:
    """Check that a folder can be made or written into, before any work; nothing is created."""
    try:
        if problem := path_problem(str(path)):
            raise ValueError(problem)
        place = path.absolute()
        while not place.exists():
            place = place.parent
        if not place.is_dir():
            raise ValueError(f"{place} is a file")
        if not os.access(place, os.W_OK | os.X_OK):
            raise ValueError(f"no permission to write into {place}")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        shown = shorten(str(path), 200)
        raise UserError(f"cannot write to {shown} ({reason}): choose another --output") from None


#: Bytes of the longest name of a file, data set or evaluation set that results are stored under.
#: File systems allow 255, of which temporary files and suffixes need some.
LONGEST_NAME = 100


def path_problem(path: str) -> str | None:
    r"""Return why a text cannot be the path of a file; ``None`` if it can."""
    if not path.strip():
        return "a path is needed, not an empty text"
    if "\0" in path:
        return "a path has no null character"
    try:
        longest = max(len(os.fsencode(part)) for part in path.split("/"))
    except UnicodeEncodeError:
        return "a path has no half of a surrogate pair"
    if longest > 255 or len(path) > 4000:
        return "a path, or a name in it, is too long (File name too long)"
    return None


def expand(path: str | os.PathLike[str], error: type[UserError] = UserError) -> Path:
    """Return a path of the user, with ``~`` and ``~name`` replaced by the home folder."""
    if not isinstance(path, str | os.PathLike):
        raise error(f"a path is needed, as text or pathlib.Path, not {describe(path)}")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        shown = shorten(str(path), 200)
        raise error(
            f"there is no home folder for {shown}: write the path in full, or ./{shown} for a "
            "folder of that name"
        ) from None


def user_path(text: str | os.PathLike[str], error: type[UserError] = UserError) -> Path:
    """Return a path of the user that can be one, with ``~`` replaced by the home folder."""
    if isinstance(text, str | os.PathLike) and (problem := path_problem(os.fspath(text))):
        shown = shorten(os.fspath(text).strip())
        raise error(f"{shown}: {problem}" if shown else problem)
    return expand(text, error)


def check_working_folder() -> None:
    """Check that there is a working folder, which paths of the user start from."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the working folder has been deleted: change to another one") from None


def from_here(path: Path) -> str:
    """Return a path from the working folder, where it is in that, as a user writes it."""
    here = Path.cwd()
    return os.fspath(path.relative_to(here) if path.is_relative_to(here) else path)


class _NotRegularError(OSError):
    """A pipe, a device or a folder in place of a file."""


def regular(path: str, flags: int) -> int:
    """Open a file if it is a regular one; for ``open(opener=)``."""
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    handle = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _NotRegularError(errno.EINVAL, "not a regular file", path)
    return handle


@contextmanager
def opened(path: Path, error: type[UserError] = UserError) -> Iterator[BufferedReader]:
    """Open a regular file within the block, and say in one line what is wrong with it."""
    shown = shorten(str(path), 300)
    try:
        with open(path, "rb", opener=regular) as file:
            yield file
    except FileNotFoundError:
        raise error(f"there is no file {shown}: check the path") from None
    except _NotRegularError:
        raise error(f"{shown} is not a regular file: name a file") from None
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or fault
        raise error(f"{shown} cannot be read ({reason})") from None


def read_file(path: Path, limit: int, error: type[UserError] = UserError) -> bytes:
    with opened(path, error) as file:
        if (size := os.fstat(file.fileno()).st_size) <= limit:
            content = file.read(limit + 1)
            size = len(content)  # it may grow, as some files of /proc do
    if size > limit:
        shown = shorten(str(path), 300)
        raise error(f"{shown} is too large: {size:,} bytes, of which at most {limit:,} are read")
    refuse_lfs_pointer(path, content, error)
    return content


def refuse_lfs_pointer(path: Path, content: bytes, error: type[UserError]) -> None:
    """Refuse what git leaves of a file without git-lfs, by the first bytes."""
    if content.startswith(b"version https://git-lfs"):
        raise error(
            f"{path} is a pointer of git-lfs and not the file itself: run `git lfs pull` in that "
            "folder, or download it with `hf download`"
        )


def name_problem(name: str) -> str | None:
    """Return why a name cannot be that of a file of results; ``None`` if it can."""
    if not name or name != name.strip():
        return f"'{shorten(name)}' is not a plain name: it is empty or begins or ends with a space"
    if re.search(r"[/\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", name):
        return f"'{shorten(name)}' is not a plain name: leave out slashes and control characters"
    if name.startswith("."):
        return f"'{shorten(name)}' is not a plain name: it begins with a dot"
    if len(name.encode()) > LONGEST_NAME:
        return f"'{shorten(name)}' is too long for a name: at most {LONGEST_NAME} bytes"
    return None


#: The file of an exported folder that names every other one with its size and SHA-256, and the
#: tensors of a safetensors file; a checkpoint has the same in the file that names it.
MANIFEST = "manifest.json"

#: Size and checksum of a file; of a safetensors file also ``tensors``, by name.
Description = dict[str, Any]


class Damaged(ValueError):
    """A file is not what its manifest describes; the message says how."""


def describe_bytes(content: bytes) -> Description:
    """Describe the content of a file that is not a safetensors file."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def tensors_of(path: Path) -> dict[str, dict[str, Any]]:
    """Return shape and dtype of the tensors of a safetensors file, by name, from its header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: {"dtype": part.get_dtype(), "shape": part.get_shape()}
                for name, part in slices.items()
            }
    except SafetensorError:
        raise Damaged(f"{path.name} is no safetensors file") from None


def verify_file(path: Path, expected: Description) -> None:
    """Check that a file is what its description says, by all of its bytes."""
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise Damaged(f"{path.name} is no file")
        if size != expected["bytes"]:
            raise Damaged(f"{path.name} has {size:,} bytes instead of {expected['bytes']}")
        if content_digest(path) != expected["sha256"]:
            raise Damaged(f"the checksum of {path.name} differs")
        if "tensors" in expected and tensors_of(path) != expected["tensors"]:
            raise Damaged(f"{path.name} has other tensors")
    except PermissionError:
        raise
    except OSError as error:
        raise Damaged(f"{path.name}: {error.strerror}") from None
    except (KeyError, TypeError):
        raise Damaged(f"the description of {path.name} is incomplete") from None


def write_manifest(folder: Path) -> None:
    """Write ``manifest.json``, which describes all other files of a folder."""
    files: dict[str, Description] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path != folder / MANIFEST:
            description: Description = {
                "bytes": path.stat().st_size,
                "sha256": content_digest(path),
            }
            if path.suffix == ".safetensors":
                description["tensors"] = tensors_of(path)
            files[path.relative_to(folder).as_posix()] = description
    write_checked_json(folder / MANIFEST, {"files": files})


def verify_export(folder: Path) -> None:
    """Check the files of an exported model against its manifest, if there is one, before use."""
    try:
        files = read_checked_json(folder / MANIFEST, required=True)["files"]
        for name, expected in files.items():
            inner = Path(name)
            if inner.is_absolute() or ".." in inner.parts:
                raise Damaged(f"{MANIFEST} names {name!r}, which is outside")
            verify_file(folder / inner, expected)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError, KeyError, AttributeError) as error:
        reason = error if isinstance(error, Damaged) else f"{MANIFEST}: {error}"
        raise EncoderError(
            f"the model in {folder} is damaged ({reason}): copy it again from where it is "
            "complete, or train it again into another --output"
        ) from None
