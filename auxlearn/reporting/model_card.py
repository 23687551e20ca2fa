"""The model card: ``README.md`` of an exported model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from auxlearn.encoder_names import ENCODERS
from auxlearn.reporting.tables import figures_grid, markdown_table, seen_sentences
from auxlearn.results.record import RunResults

_METRICS = {"accuracy": "accuracy", "macro_f1": "f1"}


def model_card(results: RunResults) -> str:
    """Return the card of a run's model: YAML front matter as the hub reads it, then Markdown.

    Paths of the machine that trained the model are left out; a local folder is named by its last
    part.
    """
    front = yaml.safe_dump(_front_matter(results), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n\n".join(_body(results)) + "\n"


def _front_matter(results: RunResults) -> dict[str, Any]:
    config = results.config
    content: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["text-classification", "auxlearn", *dict.fromkeys(_task_names(results))],
        "metrics": list(_METRICS.values()),
    }
    base = _hub_id(config["encoder"])
    if base is not None:
        content["base_model"] = base
    entries = []
    for name, found in results.evaluations.items():
        figures = [
            {"type": _METRICS[key], "name": title, "value": round(value, 6)}
            for key, title, value in (
                ("accuracy", "Accuracy", found.all.accuracy),
                ("macro_f1", "Macro-F1", found.all.macro_f1),
            )
        ]
        # An out-of-distribution set is a data set of its own, of which one split is used.
        other = results.dataset.get("ood", {})
        source, split = (name, other[name]) if name in other else (results.dataset["name"], name)
        entries.append(
            {
                "task": {"type": "text-classification", "name": "Text classification"},
                "dataset": {"type": source, "name": source, "split": split},
                "metrics": figures,
            }
        )
    content["model-index"] = [{"name": _model_name(results), "results": entries}]
    return content


def _body(results: RunResults) -> Iterator[str]:
    config, data = results.config, results.dataset
    labels = ", ".join(f"`{name}`" for name in data["label_names"])
    yield f"# {_model_name(results)}"
    yield (
        f"`{_short(config['encoder'])}`, fine-tuned by auxlearn "
        f"{results.environment.get('versions', {}).get('auxlearn', '')} to classify texts of "
        f"`{data['name']}` into {len(data['label_names'])} classes: {labels}."
    )
    for warning in results.warnings():
        yield f"**Warning: {warning}.**"
    yield "## Use"
    yield (
        "```python\n"
        "from transformers import pipeline\n\n"
        'classify = pipeline("text-classification", "path/of/this/folder")\n'
        'classify("a text", truncation=True)\n'
        "```"
    )
    yield "## Figures"
    yield markdown_table(*figures_grid(results.evaluations))
    yield "\n".join(
        f"- {line}"
        for line in (
            "majority: what always predicting the most frequent class of train would get",
            "macro-F1: mean over the classes that occur in labels or predictions",
            *seen_sentences(results.evaluations),
        )
    )
    yield "## Training"
    yield "\n".join(f"- {name}: {value}" for name, value in _training(results))
    if data["notes"]:
        yield "Notes on the data:"
        yield "\n".join(f"- {note}" for note in data["notes"])
    yield "## Limits"
    yield (
        f"Texts are cut to {config['max_length']} tokens. Every text gets one of the classes "
        "above, also one that belongs to none of them. The figures come from one run with one "
        "seed; texts of another kind, time or source than the training data can fare much worse. "
        "The auxiliary tasks took part in training only; the model has no trace of them but its "
        "weights."
    )


def _training(results: RunResults) -> Iterator[tuple[str, str]]:
    config, data = results.config, results.dataset
    rows = ", ".join(f"{name} {count}" for name, count in data["rows"].items())
    yield "data set", f"`{data['name']}`, fingerprint `{data['fingerprint']}`, rows: {rows}"
    yield "encoder", f"`{_short(config['encoder'])}`"
    if config.get("perturbed_text", "none") != "none":
        how = {"add": "beside the original", "replace": "in place of the original"}
        yield (
            "training text",
            f"perturbed once by the encoder, {how[config['perturbed_text']]} "
            f"({config['perturbed_share']:g} of the tokens)",
        )
    tasks = [_describe(choice) for choice in config["aux"]]
    yield "auxiliary tasks", "; ".join(tasks) or "none"
    if tasks:
        yield "weighting", _describe(config["weights"])
        weights = ", ".join(f"{name} {value:.3f}" for name, value in results.weights.items())
        yield "weights at the end", weights
    metric = config["metric"]
    yield (
        "checkpoint",
        f"step {results.best['step']:.0f} (epoch {results.best['epoch']:.1f}) of "
        f"{results.steps}, chosen by {metric} on dev ({results.best[metric]:.3f})",
    )
    yield (
        "optimizer",
        f"AdamW, learning rate {config['learning_rate']:g}, weight decay "
        f"{config['weight_decay']:g}, batch size {config['batch_size']}, "
        f"warm-up {config['warmup_ratio']:g}, at most {config['epochs']} epochs",
    )
    yield "seed", str(config["seed"])
    yield "configuration hash", f"`{results.digest}`"
    versions = results.environment.get("versions", {})
    shown = ("torch", "transformers")
    yield "versions", ", ".join(f"{name} {versions[name]}" for name in shown if name in versions)


def _describe(choice: dict[str, dict[str, Any]]) -> str:
    ((name, options),) = choice.items()
    shown = ", ".join(
        f"{key} {_short(value) if isinstance(value, str) else value}"
        for key, value in options.items()
        if value is not None
    )
    return f"`{name}`" + (f" ({shown})" if shown else "")


def _task_names(results: RunResults) -> list[str]:
    return [name for choice in results.config["aux"] for name in choice]


def _model_name(results: RunResults) -> str:
    parts = [results.dataset["name"], _short(results.config["encoder"]), *_task_names(results)]
    return "-".join(parts)


def _short(name: str) -> str:
    """Return a local path's last part, and any other name as it is."""
    return Path(name).name if Path(name).exists() or name.startswith(("/", ".", "~")) else name


def _hub_id(encoder: str) -> str | None:
    """Return the hub id of an encoder; a local folder has none."""
    source = ENCODERS[encoder].source if encoder in ENCODERS else encoder
    return None if Path(source).is_absolute() or _short(source) != source else source
