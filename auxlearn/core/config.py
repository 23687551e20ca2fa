"""Run configuration: defaults filled in, identity, and YAML."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from auxlearn.core.arguments import UserPath, checked
from auxlearn.core.errors import ConfigError, did_you_mean, shorten
from auxlearn.core.files import expand, regular
from auxlearn.core.metric_names import VALIDATION
from auxlearn.core.registry import (
    KINDS,
    LOSSES,
    REPORTERS,
    TASKS,
    WEIGHTINGS,
    Registry,
    load_plugin,
    plugin_digest,
)
from auxlearn.core.run_settings import RunSettings
from auxlearn.core.settings import PluginChoice, recommended_learning_rate, settings_with
from auxlearn.core.validation import validate
from auxlearn.core.yaml_files import read_yaml

#: Begins the first line of a written configuration; its hash follows.
_HEAD = "# auxlearn run configuration, hash "


class RunConfig(RunSettings):
    """Configuration of one run: data, encoder, objectives, optimisation and machine.

    Each field is described where it is defined, in :mod:`auxlearn.core.run_settings`;
    ``auxlearn train --help`` prints the descriptions.

    Raises:
        ConfigError: A setting is unknown or invalid; the message has one line for each.
    """

    def resolved(self) -> RunConfig:
        """Return the configuration with every default filled in, those of plug-ins included.

        Raises:
            ConfigError: A plug-in or one of its options is unknown or out of range.
        """
        self.load_plugins()
        for name in self.report_to:
            REPORTERS.get(name)
        problems: list[str] = []
        for registry, choice in self.choices():
            try:
                registry.require(choice.name)
            except ConfigError as error:
                problems.append(str(error))
        unknown = bool(problems)
        try:
            KINDS.require(self.kind or "classification")
        except ConfigError as error:
            problems.append(str(error))
        if "metric" in self.model_fields_set:
            by_kind = {name: KINDS.get(name).metrics for name in KINDS.names()}
            metrics = set().union(*by_kind.values())
            if self.metric not in metrics:
                metrics = set(by_kind.get(self.kind or "", metrics))
                similar = sorted(name for name in metrics if self.metric.lower() in name)
                hint = f"write {' or '.join(similar)}" if len(similar) > 1 else ""
                hint = hint or did_you_mean(self.metric, metrics)
                problems.append(f"metric: {self.metric}: {hint}")

        def fill(registry: Registry, choice: PluginChoice) -> PluginChoice:
            if unknown and (choice.name not in registry.names() or not choice.options):
                return choice  # nothing is imported only to refuse the configuration
            try:
                options = validate(registry.options(choice.name), choice.options, choice.name)
            except ConfigError as error:
                problems.append(str(error))
                return choice
            return choice.model_copy(update={"options": options.model_dump(mode="json")})

        filled = self.with_choices(fill)
        updates: dict[str, Any] = {}
        encoder = self.encoder
        if self.init_from is not None:
            updates["encoder"] = encoder = self._encoder_of_run(self.init_from)
        if self.learning_rate is None:
            updates["learning_rate"] = recommended_learning_rate(encoder)
        if problems:
            raise ConfigError("\n".join(problems))
        if self.kind not in (None, "classification") and "metric" not in self.model_fields_set:
            kind = KINDS.get(self.kind)
            if not kind.metric_by_names:  # else the data say it
                updates["metric"] = next(iter(kind.metrics))
        return filled.model_copy(update=updates)

    def load_plugins(self) -> None:
        """Import the plug-in files, whose decorators register what they hold."""
        for path in self.plugins:
            load_plugin(path)

    def refuse_plugins_of_this_process(self) -> None:
        """Refuse plug-ins of a script or notebook, or of what it imports, for another process."""
        named = [(registry, choice.name) for registry, choice in self.choices()]
        named += [(REPORTERS, name) for name in self.report_to]
        named += [] if self.kind is None else [(KINDS, self.kind)]
        for registry, name in named:
            module = registry.get(name).__module__
            if module == "__main__" or not (self.plugins or registry.is_found(name)):
                raise ConfigError(
                    f"{registry.kind} '{name}' is registered by this program ({module}), and the "
                    "processes that train do not know it: write it into a file and name that in "
                    "plugins"
                )

    def choices(self) -> list[tuple[Registry, PluginChoice]]:
        """Return the chosen tasks, weighting and loss."""
        tasks = [(TASKS, choice) for choice in self.aux]
        return [*tasks, (WEIGHTINGS, self.weights), (LOSSES, self.loss)]

    def with_choices(self, change: Callable[[Registry, PluginChoice], PluginChoice]) -> RunConfig:
        """Return the configuration with every task, the weighting and the loss changed."""
        *tasks, weights, loss = (change(registry, choice) for registry, choice in self.choices())
        return self.model_copy(update={"aux": tuple(tasks), "weights": weights, "loss": loss})

    def _encoder_of_run(self, run: str) -> str:
        """Return the encoder of the run to continue from, which is the one given, if any."""
        path = expand(run, ConfigError) / "config.yaml"
        is_named = "encoder" in self.model_fields_set
        if not path.is_file():
            if is_named:  # a finished run may outlive the one it began from
                return self.encoder
            raise ConfigError(f"init_from: {no_run(path.parent)}")
        encoder = load_config(path).encoder
        if is_named and path_identity(encoder) != path_identity(self.encoder):
            raise ConfigError(
                f"init_from: the run in {run} trained the encoder '{encoder}', not "
                f"'{self.encoder}': leave encoder out"
            )
        return encoder

    @property
    def initial_encoder(self) -> str:
        """The encoder whose weights training begins with: that of ``init_from``, or ``encoder``."""
        if self.init_from is None:
            return self.encoder
        return str(expand(self.init_from, ConfigError) / "model")

    @property
    def digest(self) -> str:
        """Hash of every setting that can change the results: 12 hexadecimal digits.

        The run folder, the cache folder and what is logged do not enter the hash. A plug-in
        file enters by its content, not by its path; paths enter as :func:`path_identity` has them.

        Raises:
            ConfigError: A plug-in file cannot be read.
        """
        return digest_of(self.model_dump(mode="json"))

    def differs_from(self, other: RunConfig) -> list[str]:
        """Return the settings that can change the results and differ, as "seed 0, not 1"; plug-in
        files are left out, because two paths may have the same content.
        """
        ours, theirs = self.identity(), other.identity()
        usual = {name: field.default for name, field in type(self).model_fields.items()}
        return [
            difference
            for name in ours | theirs  # some are left out where they have their defaults
            for difference in differences(
                name, ours.get(name, usual[name]), theirs.get(name, usual[name])
            )
        ]

    def identity(self) -> dict[str, Any]:
        """Return every setting that can change the results, but plug-in files, which enter
        :attr:`digest` by their content.
        """
        return identity_of(self.model_dump(mode="json"))

    def objective_names(self) -> tuple[str, ...]:
        """Return the names of the objectives: ``primary``, then the auxiliary tasks in order.

        A task that is used more than once gets a number, unless it has a name of its own.

        Examples:
            >>> RunConfig(aux=("l3mask", "l3mask", "random_mlm:mlm")).objective_names()
            ('primary', 'l3mask', 'l3mask_2', 'mlm')
        """
        names = ["primary"]
        for choice in self.aux:
            name, number = choice.label, 1
            while name in (*names, VALIDATION):  # the validation loss is recorded beside them
                number += 1
                name = f"{choice.label}_{number}"
            names.append(name)
        return tuple(names)

    def to_yaml(self) -> str:
        """Return YAML that :func:`load_config` reads back as an equal configuration."""
        return f"{_HEAD}{self.digest}\n" + yaml.safe_dump(
            self.model_dump(mode="json"), sort_keys=False
        )


def identity_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return :meth:`RunConfig.identity` of resolved settings, written by any version."""
    content = {k: v for k, v in settings.items() if k not in settings_with("record", RunSettings)}
    for key in ("encoder", "init_from", "dataset"):
        content[key] = content[key] and path_identity(content[key])
    content["ood"] = [ood | {"dataset": path_identity(ood["dataset"])} for ood in content["ood"]]
    return content


def digest_of(settings: Mapping[str, Any], plugins: Sequence[str] = ()) -> str:
    """Return :attr:`RunConfig.digest` of resolved settings, written by any version; ``plugins`` are
    the digests of the plug-in files, if not those of now.
    """
    content = identity_of(settings)
    content["plugins"] = [*plugins] or [plugin_digest(path) for path in settings["plugins"]]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def written_digest(folder: Path) -> str:
    """Return the hash in the first line of the ``config.yaml`` of a run; "" if there is none."""
    try:
        with open(folder / "config.yaml", "rb", opener=regular) as file:
            head, _, digest = file.readline(200).decode(errors="replace").rpartition(" ")
    except OSError:
        return ""
    return digest.strip() if f"{head} " == _HEAD else ""


def differences(name: str, left: Any, right: Any) -> list[str]:
    """Return where two values of a setting differ, each as "NAME VALUE, not OTHER".

    >>> differences("weights", {"fixed": {"alpha": 0.3}}, {"fixed": {"alpha": 0.4}})
    ['weights.fixed.alpha 0.3, not 0.4']
    >>> differences("aux", [{"l3mask": {}}], [])
    ['aux l3mask, not none']
    >>> differences("ood", [{"name": "a"}, {"name": "b"}], [{"name": "a"}])
    ['ood a+b, not a']
    """
    if left == right:
        return []
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        return [line for k in left for line in differences(f"{name}.{k}", left[k], right[k])]
    lists = isinstance(left, list) and isinstance(right, list) and len(left) == len(right)
    if lists and (len(left) == 1 or all(isinstance(entry, dict) for entry in left + right)):
        pairs = zip(left, right, strict=True)
        return [line for before, after in pairs for line in differences(name, before, after)]

    def shown(value: Any) -> str:
        if isinstance(value, dict) and "name" in value:
            return shorten(str(value["name"]))
        if isinstance(value, dict | list):
            return "+".join(map(shown, value)) or "none"
        return "none" if value is None else shorten(str(value))

    return [f"{name} {shown(left)}, not {shown(right)}"]


def path_identity(path: str) -> str:
    """Return what a path or name is known by: of data in memory fingerprint and name."""
    plain = os.path.normpath(path)
    saved = _SAVED.fullmatch(plain)
    return saved[1] if saved else plain


#: Where data in memory are saved: in the folder of the run or sweep.
_SAVED = re.compile(r"(?:.*/)?(data/[0-9a-f]{16}/[^/]+)")


def no_run(folder: Path) -> str:
    """Say that a folder is not that of a run, and which may be meant."""
    if not folder.exists():
        return f"run folder {folder} does not exist"
    problem = f"{folder} is not a run folder: it has no config.yaml"
    if (folder / "trials").is_dir():
        return f"{problem}; it is a sweep, whose runs are in {folder / 'trials'}"
    if (folder.parent / "config.yaml").is_file():
        return f"{problem}; the run is {folder.parent}"
    return problem


@checked
def load_config(path: UserPath | None = None, **overrides: Any) -> RunConfig:
    """Return the configuration of a YAML file and of keyword arguments.

    Args:
        path: Configuration file; without one, every setting has its default.
        overrides: Settings by name; they take precedence over the file.

    Raises:
        ConfigError: The file cannot be read, or a setting is unknown or invalid. Whether there are
            such plug-ins, options and metrics is checked by :meth:`RunConfig.resolved`, with which
            training begins.

    Examples:
        >>> config = load_config(aux="l3mask", weights={"fixed": {"alpha": 0.3}}, epochs=3)
        >>> config.aux[0].name, config.weights.options, config.epochs
        ('l3mask', {'alpha': 0.3}, 3)
        >>> load_config(epoch=8)
        Traceback (most recent call last):
        auxlearn.core.errors.ConfigError: settings: unknown key 'epoch': did you mean 'epochs'?
    """
    values = {} if path is None else read_yaml(str(path), "configuration", ConfigError)
    try:
        return validate(RunConfig, {**values, **overrides}, "settings")
    except ConfigError:
        if path is not None:
            validate(RunConfig, values, str(path))  # where the fault is one of the file, name it
        raise
