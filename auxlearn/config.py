"""Run configuration: every setting of a run with its default, range and description.

A field of :class:`RunConfig` is a key of a YAML configuration file, a command-line option
(``learning_rate`` is ``--learning-rate``) and a key of ``config.yaml`` in the run folder. Settings
of the optimizer have the names that they have in transformers' ``TrainingArguments``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from auxlearn.errors import ConfigError
from auxlearn.local_files import expand
from auxlearn.metric_keys import VALIDATION
from auxlearn.registry import (
    LOSSES,
    REPORTERS,
    TASKS,
    WEIGHTINGS,
    Registry,
    load_plugin,
    plugin_digest,
)
from auxlearn.settings import (
    ClassLabels,
    Metric,
    OODSource,
    PluginChoice,
    Settings,
    TextWindow,
    config_error,
    validate,
)
from auxlearn.yaml_files import read_yaml

__all__ = [
    "Metric",
    "OODSource",
    "PluginChoice",
    "RunConfig",
    "Settings",
    "load_config",
    "validate",
]


def _field(default: Any, section: str, description: str, **rules: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"section": section}, **rules)


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _Checked
else:

    class _Checked(type(Settings)):
        """Reports faults of ``RunConfig(...)`` as those of a file are reported."""

        def __call__(cls, *args: Any, **values: Any) -> Any:
            try:
                return super().__call__(*args, **values)
            except ValidationError as error:
                raise config_error(error, cls, "settings") from None


class RunConfig(Settings, metaclass=_Checked):
    """Configuration of one run: data, encoder, objectives, optimisation and machine.

    Each field is described where it is defined; ``auxlearn train --help`` prints the descriptions.

    Raises:
        ConfigError: A setting is unknown or invalid; the message has one line for each.
    """

    dataset: str = _field(
        "pydocs", "Data", "Data set: folder, name of a data-set card, or Hugging Face hub id."
    )
    text_column: str | None = _field(None, "Data", "Column of the text; by default 'text'.")
    text_pair_column: str | None = _field(
        None,
        "Data",
        "Column of the second text of a pair; by default 'text_pair' if there is such a column.",
    )
    label_column: str | None = _field(None, "Data", "Column of the label; by default 'label'.")
    keep_null_labels: bool = _field(
        False,
        "Data",
        "Accept labels such as nan, None, null and NA, which usually stand for a missing value, as "
        "names of classes.",
    )
    labels: ClassLabels = _field(
        {},
        "Data",
        "Label of the data that a class stands for; repeatable, also for one class. A label that "
        "is not named is a class itself.",
    )
    unknown_labels: Literal["error", "count"] = _field(
        "error",
        "Data",
        "Labels of dev and test that train lacks: they are an error, or their examples count as "
        "wrong.",
    )
    fold: str | None = _field(
        None,
        "Data",
        "Cross-validation: part of train to test on, such as 2/5 for the second of five folds; the "
        "others are trained on, and the data set's own test split is not read.",
        pattern=r"^[1-9]\d{0,2}/[1-9]\d{0,2}$",
    )
    max_length: int = _field(
        128,
        "Data",
        "Maximum number of tokens per example, special tokens included; longer texts are "
        "truncated.",
        ge=4,
    )

    text_window: TextWindow = _field(
        "head",
        "Data",
        "Which tokens of a longer text are kept: its first ones (head), or a quarter from its "
        "beginning and the others from its end (head+tail); for single texts.",
    )
    ood: tuple[OODSource, ...] = _field(
        (),
        "Data",
        "Out-of-distribution data set to evaluate on as well (folder, card or hub id); repeatable.",
    )
    perturbed_text: Literal["none", "add", "replace"] = _field(
        "none",
        "Data",
        "Train on texts perturbed once, before training, by the pretrained encoder: in addition "
        "to the original texts (add) or instead of them (replace).",
    )
    perturbed_share: float = _field(
        0.05,
        "Data",
        "Share of the tokens that are masked to perturb a text (with --perturbed-text).",
        gt=0,
        le=1,
    )

    encoder: str = _field(
        "tiny", "Model", "Pretrained encoder: short name, local folder, or Hugging Face hub id."
    )
    init_from: str | None = _field(
        None,
        "Model",
        "Finished run to continue from: its encoder, its classification head if the labels are the "
        "same, and its heads of the objectives that this run has too. Weights of objectives begin "
        "anew.",
    )
    random_head: bool = _field(
        False,
        "Model",
        "Train masked objectives with a newly initialised masked-language-model head where the "
        "encoder has no pretrained one.",
    )
    freeze: str = _field(
        "none",
        "Model",
        "Parameters to keep as pretrained: none, embeddings, body (all but the heads), or a number "
        "n: the embeddings and the n lowest layers.",
        pattern=r"^(none|embeddings|body|[1-9]\d{0,3})$",
    )
    lora_rank: int = _field(
        0,
        "Model",
        "Train LoRA adapters of this rank in the linear layers of the body, and keep "
        "the body as pretrained; 0: no adapters.",
        ge=0,
    )
    lora_alpha: float = _field(
        16.0,
        "Model",
        "Scale of the LoRA adapters; their output is multiplied by alpha / rank.",
        gt=0,
    )
    lora_dropout: float = _field(
        0.0, "Model", "Dropout probability of the inputs of the LoRA adapters.", ge=0, lt=1
    )
    attention_dropout: float | None = _field(
        None,
        "Model",
        "Dropout probability of the attention weights; by default the encoder's own. 0 speeds up "
        "training on CPU.",
        ge=0,
        lt=1,
    )

    aux: tuple[PluginChoice, ...] = _field(
        (), "Objectives", "Auxiliary task; repeatable. `auxlearn list tasks` lists them."
    )
    weights: PluginChoice = _field(
        PluginChoice(name="fixed"),
        "Objectives",
        "Weighting of the objectives. `auxlearn list weightings` lists them.",
        validate_default=True,
    )
    loss: PluginChoice = _field(
        PluginChoice(name="cross_entropy"),
        "Objectives",
        "Loss of the primary task. `auxlearn list losses` lists them.",
        validate_default=True,
    )
    plugins: tuple[str, ...] = _field(
        (), "Objectives", "Python file that registers tasks, losses or weightings; repeatable."
    )

    metric: Metric = _field(
        "accuracy",
        "Training",
        "Metric on dev that selects the best checkpoint; meta-learned weights optimise it.",
    )
    seed: int = _field(0, "Training", "Random seed of the run.", ge=0)
    epochs: int = _field(10, "Training", "Maximum number of epochs.", ge=1)
    batch_size: int = _field(32, "Training", "Examples per objective per optimizer step.", ge=1)
    gradient_accumulation_steps: int = _field(
        1,
        "Training",
        "Gradient accumulation: micro-batches per optimizer step. They share the batch_size "
        "examples, so more of them need less memory.",
        ge=1,
    )
    learning_rate: float | None = _field(
        None,
        "Training",
        "Peak learning rate; by default the one recommended for the encoder.",
        gt=0,
    )
    head_learning_rate: float | None = _field(
        None,
        "Training",
        "Peak learning rate of the classification head, pooler included; by default learning_rate.",
        gt=0,
    )
    weight_decay: float = _field(0.01, "Training", "Weight decay of AdamW.", ge=0)
    head_weight_decay: float | None = _field(
        None,
        "Training",
        "Weight decay of the classification head, pooler included; by default weight_decay.",
        ge=0,
    )
    adam_beta1: float = _field(0.9, "Training", "Beta1 of AdamW.", ge=0, lt=1)
    adam_beta2: float = _field(0.999, "Training", "Beta2 of AdamW.", ge=0, lt=1)
    adam_epsilon: float = _field(1e-8, "Training", "Epsilon of AdamW.", gt=0)
    warmup_ratio: float = _field(
        0.06,
        "Training",
        "Ratio of the optimizer steps used for a linear warm-up of the learning rate; it decays "
        "linearly to 0 afterwards.",
        ge=0,
        lt=1,
    )
    max_grad_norm: float = _field(
        1.0, "Training", "Maximum gradient norm (0 disables clipping).", ge=0
    )
    eval_steps: int | None = _field(
        None,
        "Training",
        "Optimizer steps between two evaluations on dev; by default one epoch.",
        ge=1,
    )
    patience: int = _field(
        3,
        "Training",
        "Early stopping: number of evaluations on dev without improvement after which training "
        "stops (0 disables it). Evaluations count once dev exceeds the majority baseline and "
        "min_epochs have passed.",
        ge=0,
    )
    min_epochs: int = _field(
        3, "Training", "Minimum number of epochs before early stopping counts.", ge=0
    )
    ties: Literal["earlier", "later"] = _field(
        "earlier", "Training", "Which of several checkpoints with the same dev metric is kept."
    )
    final_epochs: int = _field(
        0,
        "Training",
        "Maximum number of epochs of a primary-only fine-tuning phase after training (0 disables "
        "it); its result is kept if dev improves.",
        ge=0,
    )
    final_learning_rate: float = _field(
        5e-6, "Training", "Peak learning rate of the primary-only phase.", gt=0
    )
    final_schedule: Literal["linear", "constant"] = _field(
        "linear",
        "Training",
        "Learning-rate schedule of the primary-only phase: warm-up and linear decay, or constant.",
    )
    final_patience: int = _field(
        3,
        "Training",
        "Early stopping of the primary-only phase: number of evaluations without improvement "
        "(0 disables it).",
        ge=0,
    )

    device: Literal["auto", "cpu", "cuda"] = _field(
        "auto", "Machine", "Device to train on; auto takes a GPU if there is one."
    )
    precision: Literal["fp32", "bf16"] = _field(
        "fp32", "Machine", "Numerical precision; bf16 is mixed precision with float32 weights."
    )
    compile: bool = _field(
        False,
        "Machine",
        "Compile the encoder with torch.compile. Compilation takes minutes and needs a C++ "
        "compiler.",
    )
    keep_model: bool = _field(
        True,
        "Machine",
        "Keep the trained model. Without it, a run keeps its results and predictions, and no "
        "weights; predict and evaluate need the model.",
    )
    output: str | None = _field(
        None, "Machine", "Run folder; by default a folder in runs/ named after the settings."
    )
    cache_dir: str | None = _field(
        None,
        "Machine",
        "Cache of tokenised texts and pseudo-likelihood scores; by default ~/.cache/auxlearn.",
    )
    report_to: tuple[str, ...] = _field(
        (),
        "Machine",
        "Experiment tracker to report to as well: tensorboard, wandb, mlflow or a plug-in; "
        "repeatable.",
    )
    gradient_log_steps: int | None = _field(
        None,
        "Machine",
        "Record norms and cosines of the gradients of all objectives and of the loss on dev every "
        "so many optimizer steps; by default only every 10 steps under weightings that compute the "
        "gradients anyway. Results do not change.",
        ge=1,
    )

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

    @field_validator("ood", "plugins", "report_to", mode="before")
    @classmethod
    def _one_or_many_sets(cls, value: Any) -> Any:
        return () if value is None else (value,) if isinstance(value, _SINGLE) else value

    @field_validator("ood")
    @classmethod
    def _names_differ(cls, sets: tuple[OODSource, ...]) -> tuple[OODSource, ...]:
        names = ["train", "dev", "test", *(one.name for one in sets)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the name '{twice[0]}' is taken: give the set another one by 'name'")
        return sets

    @field_validator("fold")
    @classmethod
    def _one_of_several(cls, fold: str | None) -> str | None:
        number, count = map(int, (fold or "1/2").split("/"))
        if count < 2 or number > count:
            raise ValueError(f"{fold} is no fold: the folds of five are 1/5, 2/5, ..., 5/5")
        return fold

    @field_validator("freeze", mode="before")
    @classmethod
    def _number_as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _adapters_or_frozen(self) -> RunConfig:
        if self.lora_rank and self.freeze != "none":
            raise ValueError("lora_rank: the body is kept as pretrained then: leave freeze out")
        if self.freeze == "body" and self.aux and self.weights.name not in ("fixed", "equal"):
            raise ValueError(
                f"freeze: body leaves no parameter that the objectives share, so that "
                f"{self.weights.name} has nothing to weigh: use weights fixed"
            )
        return self

    @model_validator(mode="after")
    def _no_empty_micro_batch(self) -> RunConfig:
        if self.gradient_accumulation_steps > self.batch_size:
            raise ValueError(
                f"a batch of {self.batch_size} examples cannot be split into "
                f"{self.gradient_accumulation_steps} micro-batches: choose "
                "gradient_accumulation_steps of at most batch_size"
            )
        return self

    @property
    def renamed(self) -> Mapping[str, str]:
        """Class by label of the data, for the labels that ``labels`` names."""
        return {label: name for name, labels in self.labels.items() for label in labels}

    def resolved(self) -> RunConfig:
        """Return the configuration with every default filled in, those of plug-ins included.

        Raises:
            ConfigError: A plug-in or one of its options is unknown or out of range.
        """
        for plugin in self.plugins:
            load_plugin(plugin)
        for name in self.report_to:
            REPORTERS.get(name)
        problems: list[str] = []

        def fill(registry: Registry, choice: PluginChoice) -> PluginChoice:
            try:
                options = validate(registry.options(choice.name), choice.options, choice.name)
            except ConfigError as error:
                problems.append(str(error))
                return choice
            return PluginChoice(name=choice.name, options=options.model_dump(mode="json"))

        updates: dict[str, Any] = {
            "aux": tuple(fill(TASKS, choice) for choice in self.aux),
            "weights": fill(WEIGHTINGS, self.weights),
            "loss": fill(LOSSES, self.loss),
        }
        encoder = self.encoder
        if self.init_from is not None:
            updates["encoder"] = encoder = self._encoder_of_run(self.init_from)
        if self.learning_rate is None:
            from auxlearn.encoder_names import recommended_learning_rate

            updates["learning_rate"] = recommended_learning_rate(encoder)
        if problems:
            raise ConfigError("\n".join(problems))
        return self.model_copy(update=updates)

    def _encoder_of_run(self, run: str) -> str:
        """Return the name of the encoder of the run to continue from.

        Raises:
            ConfigError: It is no run folder, or trained another encoder than the one given.
        """
        path = expand(run, ConfigError) / "config.yaml"
        given = "encoder" in self.model_fields_set
        if not path.is_file():
            if given:  # a finished run may outlive the one it began from
                return self.encoder
            raise ConfigError(f"init_from: {run} is not a run folder: it has no config.yaml")
        encoder = load_config(path).encoder
        if given and encoder != self.encoder:
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
        file enters by its content, not by its path.

        Raises:
            ConfigError: A plug-in file cannot be read.
        """
        content = self.model_dump(mode="json", exclude=_NOT_IDENTITY)
        content["plugins"] = [plugin_digest(path) for path in self.plugins]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def differs_from(self, other: RunConfig) -> list[str]:
        """Return the names of the settings that can change the results and differ in ``other``.

        Plug-in files are left out, because two paths may have the same content.
        """
        own, others = (one.model_dump(exclude=_NOT_IDENTITY) for one in (self, other))
        return [name for name, value in own.items() if value != others[name]]

    def objective_names(self) -> tuple[str, ...]:
        """Return the names of the objectives: ``primary``, then the auxiliary tasks in order.

        A task that is used more than once gets a number.

        Examples:
            >>> RunConfig(aux=("l3mask", "random_mlm", "l3mask")).objective_names()
            ('primary', 'l3mask', 'random_mlm', 'l3mask_2')
        """
        names = ["primary"]
        for choice in self.aux:
            name, number = choice.name, 1
            while name in (*names, VALIDATION):  # the validation loss is recorded beside them
                number += 1
                name = f"{choice.name}_{number}"
            names.append(name)
        return tuple(names)

    def to_yaml(self) -> str:
        """Return YAML that :func:`load_config` reads back as an equal configuration."""
        head = f"# auxlearn run configuration, hash {self.digest}\n"
        return head + yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


_SINGLE = (str, dict, os.PathLike)
_NOT_IDENTITY = {"output", "cache_dir", "report_to", "gradient_log_steps", "plugins", "keep_model"}


def load_config(path: str | Path | None = None, **overrides: Any) -> RunConfig:
    """Return the configuration of a YAML file and of keyword arguments.

    Args:
        path: Configuration file; without one, every setting has its default.
        overrides: Settings by name; they take precedence over the file.

    Raises:
        ConfigError: The file cannot be read, or a setting is unknown or invalid.

    Examples:
        >>> config = load_config(aux="l3mask", weights={"fixed": {"alpha": 0.3}}, epochs=3)
        >>> config.aux[0].name, config.weights.options, config.epochs
        ('l3mask', {'alpha': 0.3}, 3)
        >>> load_config(batchsize=8)
        Traceback (most recent call last):
        auxlearn.errors.ConfigError: settings: unknown key 'batchsize': did you mean 'batch_size'?
    """
    values: dict[str, Any] = {}
    if path is not None:
        values = read_yaml(path, "configuration", ConfigError) or {}
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: a configuration is a mapping of settings to values")
    return validate(RunConfig, {**values, **overrides}, str(path or "settings"))
