"""Reading files that users name: regular files only, and no more than fits into memory.

A folder that was received from elsewhere may hold anything: a pipe, which would block for ever, a
device, a link to a file outside the folder, or a file of any size.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from auxlearn.errors import UserError
from auxlearn.wording import shorten

#: Bytes of the longest name of a file, data set or evaluation set that results are stored under.
#: File systems allow 255, of which temporary files and suffixes need some.
LONGEST_NAME = 100


def expand(path: str | os.PathLike[str], error: type[UserError] = UserError) -> Path:
    """Return a path of the user, with ``~`` and ``~name`` replaced by the home folder.

    Args:
        path: The path; it need not exist.
        error: Class of the error.

    Raises:
        UserError: There is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        shown = shorten(str(path), 200)
        raise error(
            f"there is no home folder for {shown}: write the path in full, or ./{shown} for a "
            "folder of that name"
        ) from None


def user_path(text: str | os.PathLike[str], error: type[UserError] = UserError) -> Path:
    """Return the path of something to read, with ``~`` replaced by the home folder.

    Args:
        text: The path; what is there is checked by its reader.
        error: Class of the error.

    Raises:
        UserError: It cannot be the name of a file.
    """
    try:
        path = expand(text, error)
        os.lstat(path)
    except FileNotFoundError:
        pass
    except (ValueError, UnicodeError):
        raise error(f"{shorten(str(text))} is not a path: check its spelling") from None
    except OSError as fault:
        raise error(
            f"{shorten(str(text), 200)} cannot be opened ({fault.strerror}): check the path"
        ) from None
    return path


def read_file(path: Path, limit: int, error: type[UserError] = UserError) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file; a link to one is followed.
        limit: Bytes that it may have.
        error: Class of the error.

    Raises:
        UserError: It does not exist, is not a regular file, cannot be read or is too large.
    """
    shown = shorten(str(path), 300)
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise error(f"{shown} is not a regular file: name a file")
            if status.st_size > limit:
                raise error(_too_large(shown, status.st_size, limit))
            with open(handle, "rb", closefd=False) as file:
                content = file.read(limit + 1)
        finally:
            os.close(handle)
    except FileNotFoundError:
        raise error(f"there is no file {shown}: check the path") from None
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or fault
        raise error(f"{shown} cannot be read ({reason})") from None
    if len(content) > limit:  # it grows, as some files of /proc do
        raise error(_too_large(shown, len(content), limit))
    return content


def check_inside(path: Path, folder: Path, error: type[UserError] = UserError) -> None:
    """Check that a path in a folder does not lead out of it through a link.

    Args:
        path: A file of the folder.
        folder: The folder, which may be a link itself.
        error: Class of the error.

    Raises:
        UserError: It does.
    """
    if path.is_symlink():
        try:
            inside = path.resolve(strict=True).is_relative_to(folder.resolve(strict=True))
        except (OSError, RuntimeError):
            raise error(f"{shorten(str(path), 300)} is a link that leads nowhere") from None
        if not inside:
            raise error(
                f"{shorten(str(path), 300)} is a link out of the folder, which is not followed: "
                "copy the file into the folder"
            )


def name_problem(name: str) -> str | None:
    r"""Return why a name cannot name a file of results; ``None`` if it can.

    A name is a single component of a path: no separators, not hidden, of bounded length.

    Examples:
        >>> name_problem("hans"), name_problem("../x")
        (None, "'../x' is not a plain name: leave out slashes and control characters")
    """
    if not name or name != name.strip():
        return f"'{shorten(name)}' is not a plain name: it is empty or begins or ends with a space"
    if re.search(r"[/\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", name):
        return f"'{shorten(name)}' is not a plain name: leave out slashes and control characters"
    if name.startswith("."):
        return f"'{shorten(name)}' is not a plain name: it begins with a dot"
    if len(name.encode()) > LONGEST_NAME:
        return f"'{shorten(name)}' is too long for a name: at most {LONGEST_NAME} bytes"
    return None


def _too_large(shown: str, size: int, limit: int) -> str:
    return f"{shown} is too large: {size:,} bytes, of which at most {limit:,} are read"
