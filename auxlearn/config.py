"""Every setting of a run and its default, once.

The fields of :class:`RunConfig` are the keys of a YAML file, the options of the command line
(``learning_rate`` is ``--learning-rate``) and the keys of the ``config.yaml`` of a run folder.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from auxlearn.errors import ConfigError, did_you_mean
from auxlearn.registry import TASKS, WEIGHTINGS, Registry, canonical, load_plugin, plugin_digest

Metric = Literal["accuracy", "macro_f1"]


class Settings(BaseModel):
    """Base of all settings: frozen; unknown keys, NaN and infinity are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PluginChoice(Settings):
    """A plug-in by name with its options; written ``name`` or ``{name: {option: value}}``."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, dict) and set(value) - {"name", "options"}:
            if len(value) != 1:
                raise ValueError("write a name, or one name with its options: {name: {...}}")
            ((name, options),) = value.items()
            if options is not None and not isinstance(options, dict):
                raise ValueError(f"the options of '{name}' are a mapping of option to value")
            return {"name": name, "options": options or {}}
        return value

    @field_validator("name")
    @classmethod
    def _canonical(cls, name: str) -> str:
        return canonical(name)

    @model_serializer
    def _short_form(self) -> dict[str, dict[str, Any]]:
        return {self.name: self.options}


class OODSource(Settings):
    """An out-of-distribution set: where it is and how its labels are to be read.

    Written as a path, card or hub id alone, or as a mapping of the fields below. What is left out
    is taken from the data-set card of that name, if there is one.

    Attributes:
        dataset: Folder, name of a data-set card, or hub id.
        name: Its name in results; by default the last part of ``dataset``.
        split: Which split to evaluate on.
        labels: Which label of the set stands for each label of the model. Several may stand for
            one; labels of the same name, upper and lower case apart, can be left out.
        decision: How several labels of the model become one: ``sum`` adds up their probabilities,
            ``argmax`` takes the likeliest label of the model.
        subsets: Columns by whose values there are figures as well.
        pairs: Split whose rows belong, line by line, with those of ``split``.
        text_column: Column with the text.
        text_pair_column: Column with the second text of a pair.
        label_column: Column with the label.
    """

    dataset: str
    name: str = ""
    split: str = "test"
    labels: dict[str, str] | None = None
    decision: Literal["sum", "argmax"] = "sum"
    subsets: tuple[str, ...] | None = None
    pairs: str | None = None
    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"dataset": value}
        if isinstance(value, dict) and not value.get("name") and value.get("dataset"):
            value = {**value, "name": Path(str(value["dataset"])).name.split(":")[-1]}
        return value


def _field(default: Any, section: str, description: str, **rules: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"section": section}, **rules)


class RunConfig(Settings):
    """One training: what is trained on what, by which objectives, and how."""

    dataset: str = _field("pydocs", "Data", "Folder, name of a data-set card, or hub id.")
    text_column: str | None = _field(None, "Data", "Column with the text; by default text.")
    text_pair_column: str | None = _field(
        None, "Data", "Column with the second text of a pair; text_pair is found by itself."
    )
    label_column: str | None = _field(None, "Data", "Column with the label; by default label.")
    max_length: int = _field(128, "Data", "Tokens per text, special tokens included.", ge=4)

    ood: tuple[OODSource, ...] = _field(
        (),
        "Data",
        "Folder or name of an out-of-distribution set to evaluate on as well; repeatable.",
    )
    perturbed_text: Literal["none", "add", "replace"] = _field(
        "none",
        "Data",
        "Train on text that the untouched encoder has perturbed once: beside the original (add) "
        "or in its place (replace).",
    )
    perturbed_share: float = _field(
        0.05, "Data", "Share of the tokens that are perturbed then.", gt=0, le=1
    )

    encoder: str = _field("tiny", "Model", "Short name, local folder, or hub id.")
    attention_dropout: float | None = _field(
        None,
        "Model",
        "Dropout of attention weights; by default the encoder's own. 0 makes a step on the CPU "
        "quicker.",
        ge=0,
        lt=1,
    )

    aux: tuple[PluginChoice, ...] = _field(
        (), "Objectives", "Auxiliary task; repeat the option for several."
    )
    weights: PluginChoice = _field(
        PluginChoice(name="fixed"),
        "Objectives",
        "Weighting of the objectives.",
        validate_default=True,
    )
    plugins: tuple[str, ...] = _field(
        (), "Objectives", "Python file that registers tasks or weightings; repeatable."
    )

    metric: Metric = _field(
        "accuracy", "Training", "Chooses the checkpoint and steers meta weights."
    )
    seed: int = _field(0, "Training", "Seed of everything random.", ge=0)
    epochs: int = _field(10, "Training", "Passes over the training rows at most.", ge=1)
    batch_size: int = _field(32, "Training", "Rows per objective and update.", ge=1)
    gradient_accumulation_steps: int = _field(
        1, "Training", "Parts a batch is cut into to save memory.", ge=1
    )
    learning_rate: float | None = _field(
        None, "Training", "Peak learning rate; by default what suits the encoder.", gt=0
    )
    head_learning_rate: float | None = _field(
        None,
        "Training",
        "Peak learning rate of the classification head, a pooler included; by default that of "
        "everything else.",
        gt=0,
    )
    weight_decay: float = _field(0.01, "Training", "AdamW's decoupled decay.", ge=0)
    head_weight_decay: float | None = _field(
        None,
        "Training",
        "Decay of the classification head, a pooler included; by default that of everything else.",
        ge=0,
    )
    adam_beta1: float = _field(0.9, "Training", "AdamW's first decay rate.", ge=0, lt=1)
    adam_beta2: float = _field(0.999, "Training", "AdamW's second decay rate.", ge=0, lt=1)
    adam_epsilon: float = _field(1e-8, "Training", "AdamW's epsilon.", gt=0)
    warmup_ratio: float = _field(
        0.06, "Training", "Share of the steps with rising learning rate.", ge=0, lt=1
    )
    max_grad_norm: float = _field(
        1.0, "Training", "Largest norm of the gradient; 0: no limit.", ge=0
    )
    eval_steps: int | None = _field(
        None, "Training", "Steps between evaluations on dev; by default an epoch.", ge=1
    )
    patience: int = _field(
        3,
        "Training",
        "Early stopping: evaluations without improvement on dev before training stops; 0: never. "
        "Evaluations count once dev is above the majority baseline and min_epochs have passed.",
        ge=0,
    )
    min_epochs: int = _field(3, "Training", "Epochs before early stopping counts.", ge=0)
    ties: Literal["earlier", "later"] = _field(
        "earlier", "Training", "Checkpoint that is kept of several with the same dev metric."
    )
    final_epochs: int = _field(
        0,
        "Training",
        "Passes at most of a last stage on the primary task alone, kept if dev improves.",
        ge=0,
    )
    final_learning_rate: float = _field(5e-6, "Training", "Peak rate of the last stage.", gt=0)
    final_schedule: Literal["linear", "constant"] = _field(
        "linear",
        "Training",
        "Learning rate of the last stage: with warm-up and linear decay, or constant.",
    )
    final_patience: int = _field(3, "Training", "Patience of the last stage; 0: none.", ge=0)

    device: Literal["auto", "cpu", "cuda"] = _field("auto", "Machine", "Where to compute.")
    precision: Literal["fp32", "bf16"] = _field("fp32", "Machine", "bf16: mixed precision.")
    compile: bool = _field(
        False,
        "Machine",
        "Train through torch.compile, which takes minutes to start and needs a C++ compiler.",
    )
    output: str | None = _field(
        None, "Machine", "Run folder; by default runs/ and a name made of the settings."
    )
    cache_dir: str | None = _field(
        None, "Machine", "Where tokens and scores are kept; default ~/.cache/auxlearn."
    )
    tensorboard: bool = _field(False, "Machine", "Also write TensorBoard event files.")

    @field_validator("aux", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        if value is None:
            return ()
        if isinstance(value, str):
            return (value,)
        if isinstance(value, dict):
            return tuple({name: options} for name, options in value.items())
        return value

    @field_validator("ood", mode="before")
    @classmethod
    def _one_or_many_sets(cls, value: Any) -> Any:
        return () if value is None else (value,) if isinstance(value, str | dict) else value

    @field_validator("ood")
    @classmethod
    def _names_differ(cls, sets: tuple[OODSource, ...]) -> tuple[OODSource, ...]:
        names = ["train", "dev", "test", *(one.name for one in sets)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the name '{twice[0]}' is taken: give the set another with 'name'")
        return sets

    @model_validator(mode="after")
    def _no_empty_micro_batch(self) -> RunConfig:
        if self.gradient_accumulation_steps > self.batch_size:
            raise ValueError(
                f"a batch of {self.batch_size} examples cannot be split into "
                f"{self.gradient_accumulation_steps} micro-batches: choose "
                "gradient_accumulation_steps of at most batch_size"
            )
        return self

    def resolved(self) -> RunConfig:
        """Return the configuration with every default filled in, those of plug-ins included.

        Raises:
            ConfigError: A plug-in or one of its options is unknown or out of range.
        """
        for plugin in self.plugins:
            load_plugin(plugin)
        problems: list[str] = []

        def fill(registry: Registry, choice: PluginChoice) -> PluginChoice:
            try:
                options = validate(registry.get(choice.name).Options, choice.options, choice.name)
            except ConfigError as error:
                problems.append(str(error))
                return choice
            return PluginChoice(name=choice.name, options=options.model_dump(mode="json"))

        updates: dict[str, Any] = {
            "aux": tuple(fill(TASKS, choice) for choice in self.aux),
            "weights": fill(WEIGHTINGS, self.weights),
        }
        if self.learning_rate is None:
            from auxlearn.encoder_names import recommended_learning_rate

            updates["learning_rate"] = recommended_learning_rate(self.encoder)
        if problems:
            raise ConfigError("\n".join(problems))
        return self.model_copy(update=updates)

    @property
    def digest(self) -> str:
        """Hash of all that can change the figures: 12 hex digits.

        Where the run is written, where caches lie and what is logged do not count;
        a plug-in file counts by its content.
        """
        content = self.model_dump(mode="json", exclude=_NOT_IDENTITY)
        content["plugins"] = [plugin_digest(path) for path in self.plugins]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def differs_from(self, other: RunConfig) -> list[str]:
        """Return the settings that can change the results and are others in ``other``, by name.

        Plug-in files are left out: two paths may lead to one content.
        """
        own, others = (one.model_dump(exclude=_NOT_IDENTITY) for one in (self, other))
        return [name for name, value in own.items() if value != others[name]]

    def objective_names(self) -> tuple[str, ...]:
        """The primary task and the auxiliary ones; a task used twice gets a number."""
        names = ["primary"]
        for choice in self.aux:
            name, number = choice.name, 1
            while name in (*names, "validation"):  # the validation loss is recorded beside them
                number += 1
                name = f"{choice.name}_{number}"
            names.append(name)
        return tuple(names)

    def to_yaml(self) -> str:
        """YAML that :func:`load_config` reads back as an equal configuration."""
        head = f"# auxlearn run configuration, hash {self.digest}\n"
        return head + yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


_NOT_IDENTITY = {"output", "cache_dir", "tensorboard", "plugins"}


def validate(model: type[Settings], values: dict[str, Any], where: str) -> Any:
    """Build ``model`` from ``values``; every fault is one line of a single error.

    Raises:
        ConfigError: One line for each unknown key and each value out of range.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = []
        for fault in error.errors():
            key = ".".join(str(part) for part in fault["loc"]) or "settings"
            if fault["type"] == "extra_forbidden":
                hint = did_you_mean(key, model.model_fields)
                lines.append(f"{where}: unknown key '{key}': {hint}")
            else:
                message = fault["msg"].removeprefix("Value error, ")
                given = "" if fault["loc"] == () else f", got {fault['input']!r}"
                lines.append(f"{where}: {key}: {message}{given}")
        raise ConfigError("\n".join(lines)) from None


def load_config(path: str | Path | None = None, **overrides: Any) -> RunConfig:
    """Read a configuration file; ``overrides`` win over it.

    Raises:
        ConfigError: The file cannot be read or holds unknown or impossible settings.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise ConfigError(f"cannot read configuration {path}: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            line = " ".join(str(error).split())
            raise ConfigError(f"{path} is not valid YAML: {line}") from None
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: a configuration is a mapping of settings to values")
    return validate(RunConfig, {**values, **overrides}, str(path or "settings"))
