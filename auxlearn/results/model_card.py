"""The model card, ``README.md`` of an exported model."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from auxlearn.core.config import RunConfig
from auxlearn.core.settings import encoder_source
from auxlearn.data.load import HUB_ID, card_names, find_card
from auxlearn.encoders.source import encoder_license
from auxlearn.results.record import RunResults
from auxlearn.results.tables import (
    account_lines,
    branches_table,
    code_span,
    escape_markdown,
    example_sentences,
    metrics_table,
    to_markdown,
)


@cache
def _template() -> Template:
    """Return the template of the body, which takes longer to compile than to fill in."""
    environment = Environment(
        loader=PackageLoader("auxlearn.results"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = {"md": escape_markdown, "code": code_span, "short": _short, "choice": _choice}
    environment.filters |= filters
    return environment.get_template("model_card.md")


def model_card(results: RunResults) -> str:
    """Return the card of a run's model: YAML front matter for the hub, then Markdown."""
    config = RunConfig.model_validate(results.config)
    front = yaml.safe_dump(_front_matter(results), sort_keys=False, allow_unicode=True)
    body = _template().render(
        name=_model_name(results),
        kind=results.kind,
        results=results,
        data=results.dataset,
        best=results.best,
        config=results.config,
        windowing=config.windowing,
        versions=results.environment.versions,
        metrics=to_markdown(metrics_table(results.evaluations)),
        sentences=example_sentences(results.evaluations),
        branches=to_markdown(branches_table(results, seconds=False)),
        account=account_lines(results),
    )
    return f"---\n{front}---\n\n{body}"


def _front_matter(results: RunResults) -> dict[str, Any]:
    config, kind = results.config, results.kind
    task = kind.pipeline or "token-classification"  # the task that the hub lists parsers under
    content: dict[str, Any] = {"library_name": "transformers"}
    if kind.pipeline:
        content["pipeline_tag"] = task
    content |= {
        "tags": [task, "auxlearn", *dict.fromkeys(_task_names(results))],
        "metrics": list(dict.fromkeys(metric.hub_id for metric in kind.metrics.values())),
    }
    if base := _hub_id(config["encoder"]):
        content |= {"base_model": base, "base_model_relation": "finetune"}
    content |= encoder_license(RunConfig.model_validate(config).initial_encoder)
    if hub := _hub_dataset(config["dataset"]):
        content["datasets"] = [hub["type"]]
    entries: list[dict[str, Any]] = []
    other = results.dataset.ood
    for name, evaluation in results.evaluations.items():
        metrics = []
        for metric, value in evaluation.all.metrics.items():
            hub_id, title = kind.metrics[metric].hub_id, kind.metrics[metric].title
            title = title[0].upper() + title[1:]
            metrics.append({"type": hub_id, "name": title, "value": round(value, 6)})
        # An out-of-distribution set is one split of another data set.
        data = name if name in other else results.dataset.name
        source = hub if hub and name not in other else {"type": data}
        entries.append(
            {
                "task": {"type": task, "name": task.capitalize().replace("-", " ")},
                "dataset": source | {"name": data, "split": other.get(name, name)},
                "metrics": metrics,
            }
        )
    content["model-index"] = [{"name": _model_name(results), "results": entries}]
    return content


def _choice(choice: dict[str, dict[str, Any]]) -> str:
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
    source = encoder_source(encoder)
    return None if Path(source).is_absolute() or _short(source) != source else source
