"""Exceptions for errors that a user can fix, and how their messages are worded.

Every error caused by user input is a :class:`UserError`; any other one is a bug of this package.
"""

from __future__ import annotations

import difflib
import errno
import re
import reprlib
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

LENGTH = 60  # characters of a name or value in a message
MOST_LISTED = 40  # names of which a message lists all that a misspelt one could be, at most

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # disk, quota, limit of the size of files
MAKE_ROOM = "free some space or raise the limit, then run the same command again"

#: Control characters, separators that some programs take for line breaks, marks that turn the
#: direction of writing, and halves of characters.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_NAMED = {"\t": r"\t", "\n": r"\n", "\r": r"\r"}


class _Repr(reprlib.Repr):
    """That of a whole number of too many digits for Python to write is their number."""

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:
            return f"a number of {x.bit_length():,} bits"

    def repr_DataFrame(self, x: Any, level: int) -> str:
        return f"<{x.shape[0]} rows, {x.shape[1]} columns>"


_REPR = _Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = LENGTH
_REPR.maxlevel = 3


def printable(text: str) -> str:
    """Return a text on one line: control characters are written as escapes."""

    def escape(match: re.Match[str]) -> str:
        number = ord(match[0])
        return _NAMED.get(match[0]) or (f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}")

    return _CONTROL.sub(escape, text)


def is_blank(text: str) -> bool:
    """Return whether a text has no visible character, as a zero-width space alone has none."""
    return not any(character.isprintable() and not character.isspace() for character in text)


def shorten(text: str, limit: int = LENGTH) -> str:
    """Return a text on one line, cut off after some characters."""
    return printable(text[:limit]) + ("..." if len(text) > limit else "")


def shorten_middle(text: str, limit: int) -> str:
    """Return a text with what is beyond a number of characters left out of its middle."""
    if len(text) <= limit:
        return text
    kept = (limit - 3) // 2
    return f"{text[:kept]}...{text[-kept:]}"


def describe(value: Any) -> str:
    """Return ``repr(value)``, shortened before it is made, so that no value takes long to show."""
    return printable(_REPR.repr(value))


def text_of(value: object) -> str:
    """Return ``str(value)``, or what is known of a value that Python cannot write."""
    try:
        return str(value)
    except Exception:  # a class can define it in any way
        return describe(value)


def some_of(names: Iterable[Any], count: int = 8) -> str:
    """Return names separated by commas; of many the first ones and the number of the others."""
    known = names if isinstance(names, Collection) else list(names)
    shown = [shorten(text_of(name)) for name, _ in zip(known, range(count), strict=False)]
    rest = len(known) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def and_more(count: int) -> str:
    """Return how many more there are beside the one that is named; "" for none."""
    return f" (and {count:,} more)" if count else ""


class UserError(Exception):
    """An error that the user can fix; the message says what is wrong, where, and what to do."""


class ConfigError(UserError):
    """An unknown or invalid setting, plug-in or option."""


class PluginError(UserError):
    """A plug-in that raised, or that did not return what it has to."""


class DataError(UserError):
    """A data set that cannot be read or is unsuitable for the task."""


class EncoderError(UserError):
    """An encoder that cannot be loaded or is unsuitable for the task."""


class RunError(UserError):
    """A run folder that cannot be used as requested."""


class RunInUse(RunError):
    """A run folder that is locked by another process."""


class SweepError(UserError):
    """A sweep that cannot be run or read as requested."""


class TrainingDiverged(UserError):
    """A loss became NaN or infinite."""


class Interrupted(UserError):
    """The user interrupted a run; the message says how to resume it."""


#: What settings and values of TrainingArguments of transformers, and of the field, are called here.
SYNONYMS = {
    synonym: meant
    for meant, synonyms in {
        "epochs": "num_epochs num_train_epochs n_epochs max_epochs max_steps steps",
        "encoder": "model model_name model_name_or_path base_model checkpoint backbone",
        "precision": "fp16 bf16 mixed_precision dtype",
        "batch_size": "per_device_train_batch_size train_batch_size bs",
        "learning_rate": "lr",
        "max_length": "max_seq_length max_seq_len",
        "warmup_ratio": "warmup_steps warmup",
        "patience": "early_stopping_patience early_stopping",
        "metric": "metric_for_best_model",
        "output": "output_dir out_dir save_dir",
        "dataset": "data data_dir train_file",
        "aux": "task tasks auxiliary auxiliary_task",
        "macro_f1": "f1 f1_macro",
        "micro_f1": "f1_micro",
        "accuracy": "acc",
    }.items()
    for synonym in synonyms.split()
}


def suggestion(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that is meant, or the one most similar; "" if none is.

    >>> suggestion("--num-epochs", ["--min-epochs", "--epochs"])
    "did you mean '--epochs'?"
    >>> [suggestion(name, ["comment_text", "threat", "texts"]) for name in ("text", "comment")]
    ["did you mean 'texts'?", "did you mean 'comment_text'?"]
    """
    bare, word = {_bare(choice): choice for choice in sorted(set(known))}, _bare(name)
    meant = SYNONYMS.get(word.replace("-", "_"))
    near = [choice for choice in bare if choice.replace("-", "_") == meant]
    near = near or difflib.get_close_matches(word, bare, n=1, cutoff=0.85)
    near = near or [choice for choice in bare if word in choice.split("_")]
    near = near or difflib.get_close_matches(word, bare, n=1, cutoff=0.6)
    return f"did you mean {bare[near[0]]!r}?" if near else ""


def _bare(name: str) -> str:
    """Return what a name is compared by: dashes and capitals are no likeness."""
    return name.lower().lstrip("-")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a :func:`suggestion`, or else the names that are known.

    >>> did_you_mean("l3msk", ["l3mask", "random_mlm"])
    "did you mean 'l3mask'?"
    >>> did_you_mean("xyz", ["l3mask", "random_mlm"])
    'known: l3mask, random_mlm'
    >>> did_you_mean("lrate", [f"key_{number}" for number in range(90)] + ["learning_rate"])
    'the most similar of 91: learning_rate, key_9, key_8'
    """
    choices = sorted(set(known))
    if hint := suggestion(name, choices):
        return hint
    if len(choices) > MOST_LISTED:
        bare = {_bare(choice): choice for choice in choices}
        similar = difflib.get_close_matches(_bare(name), bare, n=3, cutoff=0)
        return f"the most similar of {len(choices)}: {', '.join(bare[key] for key in similar)}"
    return "known: " + (", ".join(choices) or "none")


MISSING = "is missing"
#: What is said of a fault in place of pydantic's words, by its type. What users write is a list, in
#: YAML and in the shell.
_WORDS = {
    "missing": MISSING,
    "string_type": "must be text",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("tuple_type", "list_type", "sequence_str"), "must be a list, such as [a, b]"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type"), "must be a mapping"),
}


def plain_words(fault: Any) -> str:
    """Return what is wrong with a value, of a fault as pydantic lists them."""
    message = str(fault["msg"]).removeprefix("Value error, ").replace("Input should be", "must be")
    message = message.replace("an instance of Sequence", "a list").replace("String should", "must")
    return _WORDS.get(fault["type"], message)


def first_fault(error: BaseException) -> str:
    """Return an error of a check as one short line; of several faults the first."""
    from pydantic import ValidationError

    text = text_of(error)
    if isinstance(error, ValidationError) and (listed := error.errors(include_url=False)):
        place = ".".join(str(part) for part in listed[0]["loc"])
        text = f"{place}: {plain_words(listed[0])}"
    elif isinstance(error, KeyError):
        text = f"it has no {text}"
    return shorten_middle(" ".join(text.split()), 300)


def first_line(error: BaseException) -> str:
    """Return the first line of an error message that is not blank; "" if there is none."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def named_fault(error: BaseException) -> str:
    """Return an exception as its type and one short line."""
    return f"{type(error).__name__}: {first_fault(error)}".removesuffix(": ")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that the memory of the machine or of its GPU is full."""
    # torch has an error of its own for a GPU; on the CPU its allocator raises a RuntimeError.
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


#: What to do about an exception of a plug-in.
CORRECT_IT = "correct it; its traceback shows where (with --debug; of a sweep in its failures/)"


@contextmanager
def blamed_on(plugin: object, method: str, name: str | None = None) -> Iterator[None]:
    """Turn an exception of a plug-in's method into one line that names the plug-in."""
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a SystemExit would end the command as if all were well
        full = isinstance(error, OSError) and error.errno in NO_ROOM
        cls = plugin if isinstance(plugin, type) else type(plugin)
        ours = cls.__module__.split(".")[0] == "auxlearn"
        if ours or is_out_of_memory(error) or full:
            raise
        raise PluginError(
            f"{plugin_title(plugin, name)} failed in {method} ({named_fault(error)}): {CORRECT_IT}"
        ) from error


def plugin_title(plugin: object, name: str | None = None) -> str:
    """Return a plug-in, by default with its own name, as it is named in errors."""
    cls = plugin if isinstance(plugin, type) else type(plugin)
    place, module = cls.__module__, sys.modules.get(cls.__module__)
    if place.startswith("auxlearn_plugin_") and module is not None:
        place = str(module.__file__)
    return f"'{name or getattr(plugin, 'name', cls.__name__)}' ({cls.__qualname__} of {place})"
