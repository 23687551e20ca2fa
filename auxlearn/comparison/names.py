"""Names of single runs: what their settings have in common names the method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from auxlearn.run_settings import COLUMN_SETTINGS
from auxlearn.sweeps.sweep_file import label

#: Settings that say where and on what a run was trained, not how.
_NOT_METHOD = {
    "dataset", "encoder", "metric", "seed", "fold", "output", "cache_dir", "report_to", "device",
    "ood", "plugins", "keep_model", "gradient_log_steps", *COLUMN_SETTINGS,
}  # fmt: skip


def run_names(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name for the method of each run, from its resolved configuration.

    A name has the auxiliary tasks, the weighting and the loss, and every other setting in which
    runs differ that would otherwise have the same name on the same data set.

    Examples:
        >>> base = {"dataset": "a", "encoder": "b", "metric": "c", "weights": {"fixed": {}}}
        >>> run_names([{**base, "aux": [], "epochs": 3}, {**base, "aux": [], "epochs": 5}])
        ['single task, epochs 3', 'single task, epochs 5']
    """
    flat = [_flat(config) for config in configs]
    short = [_short(config) for config in configs]
    names = list(short)
    for name in set(short):
        members = [number for number, one in enumerate(short) if one == name]
        groups: dict[tuple[str, ...], list[int]] = {}
        for number in members:
            place = tuple(str(configs[number][key]) for key in ("dataset", "encoder", "metric"))
            groups.setdefault(place, []).append(number)
        keys = dict.fromkeys(key for number in members for key in flat[number])
        differing = [
            key
            for key in keys
            if any(len({flat[n].get(key) for n in group}) > 1 for group in groups.values())
        ]
        for number in members:
            parts = [f"{key} {flat[number][key]}" for key in differing if key in flat[number]]
            names[number] = ", ".join([name, *parts])
    return names


def _short(config: Mapping[str, Any]) -> str:
    names = [choice if isinstance(choice, str) else next(iter(choice)) for choice in config["aux"]]
    parts = ["+".join(names) or "single task"]
    if names:
        parts.append(next(iter(config["weights"])))
    loss = next(iter(config.get("loss") or ["cross_entropy"]))
    return ", ".join(parts if loss == "cross_entropy" else [*parts, loss])


def _flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a method as labels, one for each option of a plug-in."""
    found = {}
    for key, value in config.items():
        if key in _NOT_METHOD:
            continue
        choices = value if key == "aux" else [value] if key in ("weights", "loss") else None
        if choices is None:
            found[key] = label(value)
            continue
        for number, choice in enumerate(choices):
            for name, options in choice.items() if isinstance(choice, dict) else ():
                extra = f"{number + 1}." if number else ""
                found |= {
                    f"{extra}{name}.{key}": label(one) for key, one in (options or {}).items()
                }
    return found
