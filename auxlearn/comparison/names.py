"""Names of single runs: what their settings have in common names the method.

What a run was trained on, and with which code, is known by what it has recorded: the fingerprint of
the data in ``results.json``, and digests in ``inputs.json``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from auxlearn.errors import RunError
from auxlearn.files import read_checked_json
from auxlearn.results.record import RunResults
from auxlearn.run_settings import COLUMN_SETTINGS
from auxlearn.sweeps.sweep_file import FOLD, label

#: Settings that say where and on what a run was trained, not how; data, encoder and plug-ins are
#: told apart by their content.
_NOT_METHOD = {
    "dataset", "encoder", "metric", "seed", "fold", "output", "cache_dir", "report_to", "device",
    "ood", "plugins", "keep_model", "gradient_log_steps",
    *(name for name in COLUMN_SETTINGS if name not in ("labels", "unknown_labels")),
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


def data_digest(results: RunResults) -> str:
    """Return what tells the data of a run from other data of the same name.

    Each fold of a cross-validation has a fingerprint of its own; what all folds have in common is
    the number of examples and the labels.
    """
    data = results.dataset
    if not results.config.get(FOLD):
        return data.fingerprint
    count = sum(data.examples.get(name, 0) for name in ("train", "dev", "test"))
    return _digest([count, data.label_names])


def encoder_digest(results: RunResults) -> str:
    """Return what tells the encoder of a run from others of its name; "" if that is unknown.

    A run that began from another one has recorded the content of that run instead, which is part of
    its method.
    """
    recorded = _recorded(results)
    known = "encoder" in recorded and results.config.get("init_from") is None
    return _digest(recorded["encoder"]) if known else ""


def code_digests(results: RunResults) -> dict[str, str]:
    """Return short digests of plug-ins, and of the run that a run began from, by their names."""
    kinds = ("plug-in file ", "task ", "loss ", "weighting ")
    recorded = _recorded(results)
    found = {name: one for name, one in recorded.items() if name.startswith(kinds)}
    if results.config.get("init_from") is not None and "encoder" in recorded:
        found["initial weights"] = recorded["encoder"]
    return {name: _digest(one)[:8] for name, one in found.items()}


def _recorded(results: RunResults) -> dict[str, Any]:
    """Return the inputs that a run has recorded; their own class takes torch to import."""
    assert results.folder is not None
    path = results.folder / "inputs.json"
    try:
        return dict(read_checked_json(path)["inputs"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} is damaged ({error}): delete {results.folder} to train again"
        ) from None


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
