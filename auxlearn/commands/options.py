"""Command-line options generated from classes of settings.

Every field of :class:`~auxlearn.core.config.RunConfig`, and every parameter of a function that a
command calls, is an option. The remaining options of a run belong to the chosen auxiliary tasks,
weighting and loss: ``--l3mask-score surprisal``, or in short ``--score surprisal`` if only one of
them has an option of that name.
"""

from __future__ import annotations

import codecs
import difflib
import inspect
import json
import os
import sys
import types
import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Union

import click
from click.shell_completion import CompletionItem
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from auxlearn.core.arguments import settings_of
from auxlearn.core.config import RunConfig, load_config, written_digest
from auxlearn.core.errors import ConfigError, did_you_mean, shorten, suggestion
from auxlearn.core.files import expand, path_problem
from auxlearn.core.registry import CHOSEN_BY, KINDS, Registry, load_plugin
from auxlearn.core.run_settings import section_of
from auxlearn.core.settings import ENCODERS, PluginChoice
from auxlearn.core.validation import Settings, option_of, validate
from auxlearn.core.yaml_files import parse_yaml


class PathType(click.Path):
    """A path on the command line."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path in full; an empty one would be the working folder."""
        if problem := path_problem(os.fspath(value)):
            self.fail(problem, param, ctx)
        path: Any = super().convert(value, param, ctx)
        return expand(path)


PATH = PathType(path_type=Path)


class SettingOption(click.Option):
    """An option for a field of a class of settings; one that is not given is not passed on."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        value, rest = super().handle_parse_result(ctx, opts, args)
        if value in (None, ()):  # the default of the settings applies
            ctx.params.pop(str(self.name), None)
        return value, rest


#: What a first run needs; the help lists the other settings by section after these.
_FIRST = [
    "dataset",
    "text_column",
    "label_column",
    "max_length",
    "encoder",
    "aux",
    "weights",
    "metric",
    "epochs",
    "batch_size",
    "learning_rate",
    "seed",
    "device",
    "output",
]

_OF_PLUGINS = (
    "Such as --fixed-alpha 0.3 and --l3mask-probability 0.2; --OPTION alone (--alpha 0.3) if only "
    "one of them has it. `auxlearn train --aux TASK --weights WEIGHTING --help` shows those of "
    "what it names, `auxlearn list tasks NAME` those of a task."
)


#: Settings of commands that take options of plug-ins, which are known only after parsing.
TAKES_PLUGIN_OPTIONS = {"ignore_unknown_options": True, "allow_extra_args": True}


class RunCommand(click.Command):
    """A command that takes the settings of a run, by section, and options of its plug-ins."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse them; the help, which is shown before any has a value, knows them as well."""
        ctx.meta["arguments"] = list(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List what a first run needs, options of plug-ins, then the other settings."""
        sections: dict[str, list[tuple[str, str]]] = {
            "Options": [],
            "Options of the chosen tasks, loss and weighting": _plugin_records(ctx),
        }
        known = {str(param.name): param for param in self.get_params(ctx)}
        for name, param in ({name: known[name] for name in _FIRST} | known).items():
            title = "Options"
            if name in RunConfig.model_fields and name not in _FIRST:
                title = f"Further options, {section_of(name).lower()}"
            if record := param.get_help_record(ctx):
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _plugin_records(ctx: click.Context) -> list[tuple[str, str]]:
    """Return how options of plug-ins are written, and those of the plug-ins that are named."""
    records = [("--NAME-OPTION VALUE", _OF_PLUGINS)]
    arguments = ctx.meta.get("arguments", [])
    joined = [argument.split("=", 1) for argument in arguments if "=" in argument]
    given = [*pairwise(arguments), *joined]
    for flag, path in given:
        if flag == flag_of("plugins"):
            with suppress(ConfigError):  # the help is shown whatever a file is like
                load_plugin(path)
    for setting, registry in CHOSEN_BY.items():
        for flag, name in given:
            name = name.partition(":")[0]  # without one of its own
            if flag == flag_of(setting) and name in registry.names():
                records += option_records(registry, name)
    return records


def json_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option for output that programs read, by :func:`print_json`."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what} as JSON.")


def print_json(content: Any, indent: int | None = 2) -> None:
    """Print results as JSON, which escapes other characters than ASCII unless they are UTF-8."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    escaped = codecs.lookup(encoding).name != "utf-8"
    click.echo(json.dumps(content, indent=indent, ensure_ascii=escaped))


def flag_of(name: str, field: FieldInfo | None = None) -> str:
    """Return the flag of a setting, by default of a run."""
    field = field or RunConfig.model_fields[name]
    return option_of(field).flag or f"--{name.replace('_', '-')}"


#: Parameters of functions that commands have no use for: data in memory, and who shows progress.
_PYTHON_ONLY = ("dataset_name", "split_column", "reporter", "view", "verbose")


def options_of(
    source: type[Settings] | Callable[..., Any],
    *names: str,
    prefix: str = "",
    negatable: bool = False,
    **helps: str,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds options for fields of settings, or keywords of a function: some
    or all; ``--no-NAME`` stands for false; ``helps`` replace descriptions.
    """
    settings: type[Settings]
    if isinstance(source, type) and issubclass(source, Settings):
        settings, usual = source, list(source.model_fields)
    else:
        parameters = inspect.signature(source).parameters.items()
        usual = [name for name, parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        settings = settings_of(source)
    chosen = names or [name for name in usual if name not in _PYTHON_ONLY]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(chosen):
            field = settings.model_fields[name]
            flag, attributes = flag_of(f"{prefix}{name}", field), _form(name, field)
            if attributes.get("is_flag") and negatable:
                flag = f"{flag}/--no-{flag[2:]}"
            text = helps.get(name, field.description or "")
            if "multiple" in attributes and "repeatable" not in text:
                text = f"{text.rstrip('.')}; repeatable."
            function = click.option(
                flag,
                f"{prefix}{name}",
                cls=SettingOption,
                default=None,
                required=field.is_required(),
                help=text + _default(field),
                **attributes,
            )(function)
        return function

    return decorate


def label_map(pairs: Sequence[str], classes: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the labels by class that options of the form CLASS=LABEL give."""
    labels: dict[str, list[str]] = {}
    for pair in pairs:
        known = [name for name in classes if pair.startswith(f"{name}=")]
        name = max(known, key=len, default=pair.partition("=")[0])
        if "=" not in pair:
            raise ConfigError(f"--labels {shorten(pair)}: write CLASS=LABEL")
        if classes and not known:
            hint = did_you_mean(shorten(name), classes)
            raise ConfigError(f"--labels: the run has no class '{shorten(name)}': {hint}")
        labels.setdefault(name, []).append(pair[len(name) + 1 :])
    return labels


def run_config(
    file: Path | None,
    options: Mapping[str, Any],
    extra: Sequence[str],
    *,
    announce: Callable[[str], None] | None = None,
) -> RunConfig:
    """Merge a configuration file, options of the run and options of plug-ins."""
    config = load_config(file)
    by_run = file is not None and file.name == "config.yaml" and written_digest(file.parent)
    in_file = () if by_run else config.model_fields_set
    if announce is not None and not options.get("plugins"):
        announce_plugins(config.plugins, str(file), announce)
    overrides = dict(options)
    if "labels" in overrides:
        overrides["labels"] = label_map(overrides["labels"])
    if "aux" in overrides:
        overrides["aux"] = _keep_options(overrides["aux"], config.aux)
    for kind in ("weights", "loss"):
        if kind in overrides:
            overrides[kind] = _keep_options([overrides[kind]], [getattr(config, kind)])[0]
    if overrides:
        values = config.model_dump(mode="json", exclude_unset=True)
        config = validate(RunConfig, {**values, **overrides}, "command line")
    config.check_effect(overrides, in_file)
    if not extra:
        return config
    extended = with_plugin_options(config, extra)
    before, after = config.weights.options, extended.weights.options
    if not config.aux and (given := [name for name in after if name not in before]):
        flag = option_flag(config.weights.label, given[0])
        raise ConfigError(f"{flag}: it has no effect without an auxiliary task: add --aux")
    return extended


def announce_plugins(plugins: Iterable[str], source: str, announce: Callable[[str], None]) -> None:
    """Say which files are about to be run as plug-ins because a file names them."""
    for path in plugins:
        announce(f"running the Python file {path}, which {source} names as a plug-in")


def with_plugin_options(config: RunConfig, extra: Sequence[str]) -> RunConfig:
    """Assign options to the chosen plug-ins."""
    for path in config.plugins:
        load_plugin(path)
    chosen = dict.fromkeys((kind, choice.name, choice.label) for kind, choice in config.choices())
    owners = _owners(chosen)
    assigned: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for flag, text in _pairs(extra):
        owner = _owner(flag, owners)
        if text is None:
            raise ConfigError(f"option '{flag}' needs a value")
        options = assigned[owner.kind, owner.plugin]
        if owner.option in options:
            raise ConfigError(f"option '{flag}' is given twice: leave one of them out")
        options[owner.option] = _parse(text, owner.field)

    def extended(registry: Registry, choice: PluginChoice) -> PluginChoice:
        options = {**choice.options, **assigned[registry.kind, choice.label]}
        return choice.model_copy(update={"options": options})

    return config.with_choices(extended)


def option_flag(plugin: str, option: str) -> str:
    """Return the full flag of a plug-in's option, such as ``--random-mlm-probability``."""
    return f"--{plugin}-{option}".replace("_", "-")


def option_records(registry: Registry, plugin: str) -> list[tuple[str, str]]:
    """Return the options of a plug-in, each with what it is and its default."""
    records = []
    for option, field in registry.options(plugin).model_fields.items():
        default: Any = field.get_default(call_default_factory=True)
        shown = f"  [default: {default}]" if default is not None else ""
        shown = "  [required]" if field.is_required() else shown
        records.append((option_flag(plugin, option), f"{field.description or ''}{shown}".strip()))
    return records


#: Flags of the settings of a run, which no option of a plug-in takes.
RUN_FLAGS = tuple(map(flag_of, RunConfig.model_fields))


@dataclass(frozen=True)
class _Owner:
    """An option of a chosen plug-in."""

    kind: str
    name: str  # that it is registered under
    plugin: str  # its name in the run
    option: str
    field: FieldInfo


def _owners(plugins: Iterable[tuple[Registry, str, str]]) -> dict[str, list[_Owner]]:
    """Return the options by flag: a full flag names one option, a short flag one or more."""
    full: dict[str, list[_Owner]] = defaultdict(list)
    short: dict[str, list[_Owner]] = defaultdict(list)
    for registry, name, label in plugins:
        options: type[BaseModel] = registry.options(name)
        for option, field in options.model_fields.items():
            owner = _Owner(registry.kind, name, label, option, field)
            full[option_flag(label, option)].append(owner)
            short[f"--{option}".replace("_", "-")].append(owner)
    return {**{flag: who for flag, who in short.items() if flag not in RUN_FLAGS}, **full}


def _owner(flag: str, owners: Mapping[str, list[_Owner]]) -> _Owner:
    written = flag.replace("_", "-")
    who = owners.get(written, [])
    if len(who) > 1:
        choices = " or ".join(option_flag(owner.plugin, owner.option) for owner in who)
        raise ConfigError(f"option '{flag}' is ambiguous: write {choices}")
    if not who:
        chosen = {owner for members in owners.values() for owner in members}
        named = [
            option_flag(owner.plugin, owner.option)
            for owner in chosen
            if option_flag(owner.name, owner.option) == written
        ]
        if named:
            raise ConfigError(f"option '{flag}' goes by the name given: write {' or '.join(named)}")
        raise ConfigError(_not_chosen(written) or _unknown(flag, owners))
    return who[0]


def _not_chosen(flag: str) -> str:
    """Return which plug-ins that are not chosen have an option; "" if none has it."""
    choices = [
        f"{flag_of(setting)} {owner.plugin}"
        for setting, registry in CHOSEN_BY.items()
        for owner in _owners((registry, name, name) for name in registry.names()).get(flag, [])
    ]
    if not choices:
        return ""
    similar = difflib.get_close_matches(flag, RUN_FLAGS, 1, 0.85)
    near = f"; or did you mean '{similar[0]}'?" if similar else ""
    return f"option '{flag}' is one of a plug-in that is not chosen: {' or '.join(choices)}{near}"


def _unknown(flag: str, owners: Iterable[str]) -> str:
    context = click.get_current_context(silent=True)
    params = context.command.params if context else []
    known = [name for param in params for name in param.opts if name.startswith("--")]
    return f"unknown option '{flag}': {suggestion(flag, [*known, *owners]) or _help()}"


def _help() -> str:
    """Return where the arguments of the command that runs are described."""
    context = click.get_current_context(silent=True)
    return f"see `auxlearn {context.info_name if context else 'train'} --help`"


def _pairs(extra: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Split the remaining arguments into flags and values, ``None`` where one is missing."""
    left = iter(extra)
    for argument in left:
        if not argument.startswith("--"):
            what = "unknown option" if argument.startswith("-") else "unexpected argument"
            raise ConfigError(f"{what} '{argument}': {_help()}")
        flag, equals, value = argument.partition("=")
        if not equals:
            value = next(left, "--")
        yield flag, None if not equals and value.startswith("--") else value


def _parse(text: str, field: FieldInfo) -> Any:
    """Parse a value as YAML; a text field takes "2024" or "no" literally."""
    if not text.strip():  # in YAML it is null, the default of many fields
        return text
    try:
        value = parse_yaml(text)
    except ValueError:
        return text
    annotation: Any = field.annotation
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    for candidate in (value, text):
        try:
            adapter.validate_python(candidate)
        except ValidationError:
            continue
        return candidate
    return value


def _keep_options(
    names: Sequence[str], known: Sequence[PluginChoice]
) -> list[str | dict[str, dict[str, Any]]]:
    """Choose plug-ins by name; those that the file chooses as well keep their options."""
    left = list(known)
    chosen: list[str | dict[str, dict[str, Any]]] = []
    for name in names:
        same = next((choice for choice in left if choice.written == name), None)
        if same is None:
            chosen.append(name)
        else:
            left.remove(same)
            chosen.append({name: same.options})
    return chosen


def _complete(
    name: str, ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the names that a setting takes and that begin so, or else folders."""
    from auxlearn.data.load import BUILT_IN, card_names

    known = {
        "encoder": list(ENCODERS),
        "dataset": [*BUILT_IN, *card_names()],
        "kind": KINDS.names(),
        "metric": {metric for kind in KINDS.names() for metric in KINDS.get(kind).metrics},
    }.get(name)
    names = known or CHOSEN_BY[name].names()
    items = [CompletionItem(choice) for choice in names if choice.startswith(incomplete)]
    return items or [CompletionItem(incomplete, type="dir")]


def _form(name: str, field: FieldInfo) -> dict[str, Any]:
    """Return the attributes of the option for a field."""
    option, kinds = option_of(field), set(_kinds(field.annotation))
    form: dict[str, Any] = {"metavar": option.metavar}
    if option.completes:
        form["shell_complete"] = partial(_complete, name)
    if option.flag_value is not None:
        form |= {"is_flag": False, "flag_value": option.flag_value}
    origins = {typing.get_origin(kind) for kind in kinds}
    if origins & {tuple, dict, Sequence, Mapping}:
        form["multiple"] = True
    elif bool in kinds:
        form["is_flag"] = True
    elif Literal in origins:
        form["type"] = click.Choice([value for kind in kinds for value in typing.get_args(kind)])
    elif PathLike[str] in kinds and not option.completes:
        form["type"] = PATH
    elif kinds <= {int, float}:
        (form["type"],) = kinds
    return form


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the types that a value may have, but for ``None``."""
    if hasattr(annotation, "__metadata__"):
        yield from _kinds(annotation.__origin__)
    elif typing.get_origin(annotation) in (Union, types.UnionType):
        for kind in typing.get_args(annotation):
            yield from _kinds(kind)
    elif annotation is not type(None):
        yield annotation


def _default(field: FieldInfo) -> str:
    default = field.default.name if isinstance(field.default, PluginChoice) else field.default
    nothing = default is None or default is False or default in ((), {}, PydanticUndefined)
    return "" if nothing else f"  [default: {default}]"
