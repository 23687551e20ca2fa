"""The model card, ``README.md`` of an exported model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from auxlearn.core.config import RunConfig
from auxlearn.core.encoder_names import ENCODERS
from auxlearn.core.metric_names import METRICS, TITLES
from auxlearn.data.load import HUB_ID, card_names, find_card
from auxlearn.kinds.base import Kind
from auxlearn.kinds.choose import CLASSIFICATION, kind_of
from auxlearn.results.record import RunResults
from auxlearn.results.tables import (
    account_lines,
    branches_grid,
    code_span,
    escape_markdown,
    example_sentences,
    metrics_grid,
)

#: Identifiers of the metrics on the Hugging Face hub.
_HUB_METRICS: dict[str, str] = {
    **{"accuracy": "accuracy", "macro_f1": "f1", "micro_f1": "f1", "span_f1": "f1"},
    **{"pearson": "pearsonr", "spearman": "spearmanr", "mae": "mae", "lrap": "lrap"},
    **{"las": "las", "uas": "uas"},
}

#: What the card says of each kind of labels: the purpose, the baseline, and what is always given.
_SAID: dict[str, tuple[str, str, str]] = {
    "classification": (
        "to classify texts of {data} into {count} classes: {labels}",
        "the most frequent class of train",
        "Every text is assigned one of the classes above, even if none applies.",
    ),
    "multi_label": (
        "to give texts of {data} any of {count} labels: {labels}",
        "the most frequent list of labels of train",
        "A text may be assigned none of the labels above; the pipeline shows the probability of "
        "each with `top_k=None`.",
    ),
    "regression": (
        "to predict a number for texts of {data}",
        "the mean of train",
        "Predictions are not limited to the range of the numbers of train.",
    ),
    "token_classification": (
        "to tag the words of texts of {data} with {count} tags: {labels}",
        "the most frequent tag of train",
        'Tags are those of the first token of a word (`aggregation_strategy="first"`).',
    ),
    "dependency": (
        "to parse sentences of {data} with {count} relations: {labels}",
        "the most frequent distance to a head, with its relation",
        "The parser is the classifier of the weights, which no class of transformers has.",
    ),
}


def model_card(results: RunResults) -> str:
    """Return the card of a run's model: YAML front matter for the hub, then Markdown, without any
    path of the machine that trained it.
    """
    front = yaml.safe_dump(_front_matter(results), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n" + "\n\n".join(_body(results)) + "\n"


def _front_matter(results: RunResults) -> dict[str, Any]:
    config, kind = results.config, kind_of(results.config.get("kind"))
    task = kind.pipeline or "token-classification"  # the task that the hub lists parsers under
    content: dict[str, Any] = {
        "library_name": "transformers",
        **({"pipeline_tag": task} if kind.pipeline else {}),
        "tags": [task, "auxlearn", *dict.fromkeys(_task_names(results))],
        "metrics": list(dict.fromkeys(_HUB_METRICS[name] for name in METRICS[kind.name])),
    }
    base = _hub_id(config["encoder"])
    if base is not None:
        content |= {"base_model": base, "base_model_relation": "finetune"}
    hub = _hub_dataset(config["dataset"])
    if hub is not None:
        content["datasets"] = [hub["type"]]
    entries: list[dict[str, Any]] = []
    for name, found in results.evaluations.items():
        metrics = [
            {
                "type": _HUB_METRICS[metric],
                "name": TITLES[metric][0].upper() + TITLES[metric][1:],
                "value": round(value, 6),
            }
            for metric, value in found.all.metrics.items()
        ]
        # An out-of-distribution set is one split of another data set.
        other = results.dataset.ood
        source = {"type": name if name in other else results.dataset.name}
        if hub is not None and name not in other:
            source = hub
        place = {
            "name": name if name in other else results.dataset.name,
            "split": other.get(name, name),
        }
        entries.append(
            {
                "task": {"type": task, "name": task.capitalize().replace("-", " ")},
                "dataset": source | place,
                "metrics": metrics,
            }
        )
    content["model-index"] = [{"name": _model_name(results), "results": entries}]
    return content


def _use(kind: Kind) -> str:
    """Return lines of Python that use the model."""
    if not kind.pipeline:
        return (
            "from transformers import AutoModel\n\n"
            'encoder = AutoModel.from_pretrained("path/of/this/folder")  # without the parser\n'
        )
    options = "" if kind.per_token else ", truncation=True"
    return (
        "from transformers import pipeline\n\n"
        f'classify = pipeline("{kind.pipeline}", "path/of/this/folder")\n'
        f'classify("a text"{options})\n'
    )


def _body(results: RunResults) -> Iterator[str]:
    config, data = results.config, results.dataset
    kind = kind_of(config.get("kind"))
    purpose, baseline, given = _SAID[kind.name]
    purpose = purpose.format(
        data=code_span(data.name),
        count=len(data.label_names),
        labels=", ".join(map(code_span, data.label_names)),
    )
    yield f"# {escape_markdown(_model_name(results))}"
    yield (
        f"{code_span(_short(config['encoder']))}, fine-tuned by auxlearn "
        f"{results.environment.versions.get('auxlearn', '')} {purpose}."
    )
    for warning in results.warnings():
        yield f"**Warning: {escape_markdown(warning)}.**"
    yield "## Use"
    yield f"```python\n{_use(kind)}```"
    yield "## Metrics"
    yield metrics_grid(results.evaluations).markdown()
    yield "\n".join(
        f"- {escape_markdown(line)}"
        for line in (
            f"majority: the metrics of always predicting {baseline}",
            *(_MACRO if kind is CLASSIFICATION else ()),
            *example_sentences(results.evaluations),
        )
    )
    yield "## Training"
    yield "\n".join(f"- {name}: {value}" for name, value in _training(results))
    if results.branches:
        yield f"Runs that were compared on dev, {_COMPARED[kind.problem_type == 'regression']}:"
        yield branches_grid(results, seconds=False).markdown()
        yield from (f"- {line}" for line in account_lines(results))
    if data.notes:
        yield "Notes on the data:"
        yield "\n".join(f"- {escape_markdown(note)}" for note in data.notes)
    yield "## Limits"
    yield (
        f"{_reading(RunConfig.model_validate(config), kind)}. {given} "
        "The metrics are those of a single run with one seed; on texts of another kind, time or "
        "source than the training data they can be much lower. "
        "The auxiliary tasks are used in training only; the exported model does not contain them."
    )


def _reading(config: RunConfig, kind: Kind) -> str:
    """Return how the model reads long texts."""
    length, windowing = config.max_length, config.windowing
    pipeline = "; the pipeline above keeps the beginning only"
    if windowing.in_windows:
        pooled = (
            "a word is tagged in the window where it is farthest from an end"
            if kind.per_token
            else f"the logits are the {windowing.window_pooling} over the windows"
        )
        return (
            f"Texts are read in at most {windowing.max_windows} windows of {length} tokens, of "
            f"which {windowing.window_stride} are those of the window before; {pooled}, by "
            f"`auxlearn predict` as in training (`config.json` has these settings){pipeline}"
        )
    both_ends = " from their beginning and their end, by `auxlearn predict` as in training"
    how = both_ends + pipeline if windowing.text_window == "head+tail" else ""
    return f"Texts are truncated to {length} tokens{how}"


_MACRO = ("macro-F1: mean over the classes that occur in labels or predictions",)
_COMPARED = ("by log loss after temperature scaling", "by squared error")


def _training(results: RunResults) -> Iterator[tuple[str, str]]:
    config, data = results.config, results.dataset
    examples = ", ".join(
        f"{escape_markdown(name)} {count}" for name, count in data.examples.items()
    )
    yield (
        "data set",
        f"{code_span(data.name)}, fingerprint `{data.fingerprint}`, examples: {examples}",
    )
    yield "encoder", code_span(_short(config["encoder"]))
    if results.init_from is not None:
        source, parts = results.init_from, ", ".join(results.init_from["parts"])
        yield (
            "continued from",
            f"the run {code_span(_short(source['run']))} (configuration hash `{source['digest']}`, "
            f"model digest `{source['model']}`): {parts}",
        )
    if config.get("perturbed_text", "none") != "none":
        how = {"add": "beside the original", "replace": "in place of the original"}
        yield (
            "training text",
            f"perturbed once by the pretrained encoder, {how[config['perturbed_text']]} "
            f"({config['perturbed_share']:g} of the tokens)",
        )
    tasks = [_describe(choice) for choice in config["aux"]]
    yield "auxiliary tasks", "; ".join(tasks) or "none"
    if tasks:
        yield "weighting", _describe(config["weights"])
        weights = ", ".join(f"{name} {value:.3f}" for name, value in results.weights.items())
        yield "weights at the end", weights
    yield (
        "checkpoint",
        f"step {results.best.step} (epoch {results.best.epoch:.1f}) of "
        f"{results.steps}, chosen by {results.best.metric} on dev ({results.best.value:.3f})",
    )
    yield (
        "optimizer",
        f"AdamW, learning rate {config['learning_rate']:g}, weight decay "
        f"{config['weight_decay']:g}, batch size {config['batch_size']}, "
        f"warm-up {config['warmup_ratio']:g}, at most {config['epochs']} epochs",
    )
    yield "seed", str(config["seed"])
    yield "configuration hash", f"`{results.digest}`"
    versions = results.environment.versions
    shown = ("torch", "transformers")
    yield "versions", ", ".join(f"{name} {versions[name]}" for name in shown if name in versions)


def _describe(choice: dict[str, dict[str, Any]]) -> str:
    ((name, options),) = choice.items()
    shown = ", ".join(
        f"{key} {_short(value) if isinstance(value, str) else value}"
        for key, value in options.items()
        if value is not None
    )
    return code_span(name) + (f" ({escape_markdown(shown)})" if shown else "")


def _task_names(results: RunResults) -> list[str]:
    return [name.partition(":")[0] for choice in results.config["aux"] for name in choice]


def _model_name(results: RunResults) -> str:
    parts = [results.dataset.name, _short(results.config["encoder"]), *_task_names(results)]
    return "-".join(parts)


def _short(name: str) -> str:
    """Return the last part of a local path, and any other name unchanged."""
    return Path(name).name if Path(name).exists() or name.startswith(("/", ".", "~")) else name


def _hub_dataset(dataset: str) -> dict[str, str] | None:
    """Return hub id and configuration of a data set; ``None`` for one that is not from the hub."""
    if Path(dataset).exists() or Path(dataset).is_absolute():
        return None
    if dataset in card_names():
        source = find_card(dataset).hub
        if source is None:
            return None
        return {"type": source.id} | ({"config": source.config} if source.config else {})
    hub = HUB_ID.fullmatch(dataset)
    if hub is None or dataset.startswith("."):
        return None
    return {"type": hub["id"]} | ({"config": hub["config"]} if hub["config"] else {})


def _hub_id(encoder: str) -> str | None:
    """Return the hub id of an encoder; ``None`` for a local folder."""
    source = ENCODERS[encoder].source if encoder in ENCODERS else encoder
    return None if Path(source).is_absolute() or _short(source) != source else source
