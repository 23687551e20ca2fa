"""Whether a run is the one that a sweep has planned, told without running plug-ins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from auxlearn.config import RunConfig, validate
from auxlearn.errors import ConfigError
from auxlearn.sweeps.plan import expand_cells, join_settings
from auxlearn.sweeps.sweep_file import SweepFile


class Expected:
    """The settings that a sweep file gives to its trials.

    Args:
        sweep: The sweep.
    """

    def __init__(self, sweep: SweepFile) -> None:
        self._axes: tuple[str, ...] = ()
        self._settings: dict[tuple[str, ...], dict[str, Any]] = {}
        for cell in expand_cells(sweep):
            self._axes = tuple(cell.labels)
            try:
                given = validate(RunConfig, join_settings(cell.settings, ""), "")
            except ConfigError:  # with the values of a search it may be valid
                continue
            searched = {
                key.partition(".")[0] for key in (sweep.search.space if sweep.search else ())
            }
            self._settings[tuple(cell.labels.values())] = {
                name: value
                for name, value in given.identity().items()
                if name in given.model_fields_set - searched
            }

    def differing(
        self, cell: Mapping[str, str], seed: int, config: Mapping[str, Any]
    ) -> str | None:
        """Return the name of a setting of a run that is not that of its trial, if there is one.

        Args:
            cell: Label of each axis of the trial.
            seed: Its seed.
            config: The resolved configuration that the run has recorded.
        """
        settings = self._settings.get(tuple(cell.get(axis, "") for axis in self._axes), {})
        try:
            found = validate(RunConfig, dict(config), "").identity()
        except ConfigError:  # of another version, or with the options of a plug-in
            found = {"seed": config["seed"]}
        for name, value in {**settings, "seed": seed}.items():
            if name in found and not _given(value, found[name]):
                return name
        return None


def _given(value: Any, found: Any) -> bool:
    """Return whether a setting is as it was given; defaults are filled in, also of options."""
    if isinstance(value, dict) and isinstance(found, dict):
        return all(key in found and _given(one, found[key]) for key, one in value.items())
    if isinstance(value, list) and isinstance(found, list):
        return len(value) == len(found) and all(map(_given, value, found))
    if isinstance(value, int | float) and isinstance(found, int | float):
        return value == found
    # Of other types, the value was read as something else than it was given.
    return type(value) is not type(found) or bool(value == found)
