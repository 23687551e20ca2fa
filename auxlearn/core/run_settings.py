"""Every setting of a run with its default, range and description, by group.

Settings of the optimizer have the names that they have in transformers' ``TrainingArguments``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from numbers import Integral
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from auxlearn.core.arguments import KEYWORDS, Column
from auxlearn.core.errors import ConfigError
from auxlearn.core.settings import (
    MAX_WINDOWS,
    Columns,
    Fold,
    OODSource,
    PathText,
    PluginChoice,
    TextWindow,
    Windowing,
    WindowPooling,
    setting,
)
from auxlearn.core.validation import Described, OneOrMany, Option, Settings, one_or_many

#: Schedules of transformers that need neither further arguments nor a metric.
ScheduleName = Literal[
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
    "constant",
    "constant_with_warmup",
    "inverse_sqrt",
]

MOST_ENTRIES = 100  # tasks, sets, plug-in files or trackers of a run


class _Source(Described):
    dataset: Annotated[PathText, Option(completes=True)] = setting("pydocs", "setting")
    """Data set: folder, name of a data-set card, or Hugging Face hub id."""


class DataSettings(Columns, _Source):  # the fields of the last base come first
    """What a run is trained and evaluated on."""

    thresholds: Literal["half", "dev"] = Field("half", exclude_if=lambda chosen: chosen == "half")
    """With several labels per text, the probability from which on a label is predicted: 0.5 (half),
    or for each label the one with the best F1 on dev."""

    fold: Annotated[Fold | None, Option("N/FOLDS")] = setting(None, "setting")
    """Cross-validation: part of train to test on, such as 2/5 for the second of five folds; the
    others are trained on, and the data set's own test split is not read."""

    max_length: int = Field(128, ge=4)
    """Maximum number of tokens per example, special tokens included; longer texts are truncated."""

    text_window: TextWindow = "head"
    """How a longer text is read: its first tokens (head), a quarter from its beginning and the
    others from its end (head+tail), or all of it in overlapping windows, over which class logits
    are pooled (windows); for single texts."""

    window_stride: int | None = Field(None, ge=0, exclude_if=lambda stride: stride is None)
    """Tokens that a window shares with the one before it (with --text-window windows); by default a
    quarter of max_length."""

    window_pooling: WindowPooling = Field("mean", exclude_if=lambda pooling: pooling == "mean")
    """How the logits of its windows become those of a text: their mean, or the maximum of each
    class (with --text-window windows)."""

    max_windows: int = Field(MAX_WINDOWS, ge=1, exclude_if=lambda most: most == MAX_WINDOWS)
    """Windows of a text that are read at most, from its beginning (with --text-window windows);
    they bound time and memory."""

    ood: Annotated[tuple[OODSource, ...], OneOrMany, Option("DATASET")] = setting(
        (), "setting", max_length=MOST_ENTRIES
    )
    """Out-of-distribution data set to evaluate on as well (folder, card or hub id); repeatable."""

    perturbed_text: Literal["none", "add", "replace"] = "none"
    """Train on texts perturbed once, before training, by the pretrained encoder: in addition to the
    original texts (add) or instead of them (replace)."""

    perturbed_share: float = Field(0.05, gt=0, le=1)
    """Share of the tokens that are masked to perturb a text (with --perturbed-text)."""

    @property
    def windowing(self) -> Windowing:
        """How texts longer than ``max_length`` are read."""
        if self.text_window != "windows":
            return Windowing(text_window=self.text_window)
        values = {name: getattr(self, name) for name in Windowing.model_fields}
        if self.window_stride is None:
            values["window_stride"] = self.max_length // 4
        return Windowing(**values)


class ModelSettings(Described):
    """What is trained."""

    encoder: Annotated[PathText, Option(completes=True)] = setting("tiny", "setting")
    """Pretrained encoder: short name, local folder, or Hugging Face hub id."""

    do_lower_case: bool | None = Field(None, exclude_if=lambda chosen: chosen is None)
    """Whether the encoder's tokenizer lower-cases texts; by default as its files say."""

    init_from: Annotated[PathText | None, Option("RUN")] = None
    """Finished run to continue from: its encoder, its classification head if the labels are the
    same, and its heads of the objectives that this run has too. Loss weights start from their
    initial values."""

    random_head: bool = False
    """Train masked objectives with a newly initialised masked-language-model head where the encoder
    has no pretrained one."""

    freeze: str = "none"
    """Parameters to keep as pretrained: none, embeddings, body (all but the heads), or a number n:
    the embeddings and the n lowest layers."""

    lora_rank: int = Field(0, ge=0, le=1024)
    """Train LoRA adapters of this rank in the linear layers of the body, and keep the body as
    pretrained; 0: no adapters."""

    lora_alpha: float = Field(16.0, gt=0)
    """Scale of the LoRA adapters; their output is multiplied by alpha / rank."""

    lora_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout probability of the inputs of the LoRA adapters."""

    attention_dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout probability of the attention weights; by default the encoder's own. 0 speeds up
    training on CPU."""


class ObjectiveSettings(Described):
    """What it is trained for."""

    aux: Annotated[tuple[PluginChoice, ...], Option("TASK", completes=True)] = Field(
        (), max_length=MOST_ENTRIES
    )
    """Auxiliary task, or TASK:NAME to give it a name; repeatable. `auxlearn list tasks` lists
    them."""

    weights: Annotated[PluginChoice, Option("WEIGHTING", completes=True)] = Field(
        PluginChoice(name="fixed"), validate_default=True
    )
    """Weighting of the objectives. `auxlearn list weightings` lists them."""

    loss: Annotated[PluginChoice, Option("LOSS", completes=True)] = Field(
        PluginChoice(name="cross_entropy"), validate_default=True
    )
    """Loss of the primary task. `auxlearn list losses` lists them."""

    plugins: Annotated[tuple[PathText, ...], OneOrMany, Option("FILE", "--plugin")] = setting(
        (), "record", max_length=MOST_ENTRIES
    )
    """Python file that registers tasks, losses, weightings or kinds of labels; repeatable."""


class TrainingSettings(Described):
    """How it is trained. Settings of the optimizer are named as in transformers."""

    metric: Annotated[str, Option(completes=True)] = setting("accuracy", "setting")
    """Metric on dev that selects the best checkpoint; learned weights optimise it. By default
    accuracy of classes (or macro_f1) and of tags, micro_f1 of several labels (or macro_f1,
    accuracy, lrap), pearson of numbers (or spearman, mae), span_f1 of BIO tags, las of trees (or
    uas)."""

    seed: int = setting(0, "setting", ge=0)
    """Random seed of the run."""

    epochs: int = Field(10, ge=1)
    """Maximum number of epochs."""

    batch_size: int = Field(32, ge=1)
    """Examples per objective per optimizer step."""

    gradient_accumulation_steps: int = Field(1, ge=1)
    """Gradient accumulation: micro-batches per optimizer step. They share the batch_size examples,
    so more of them need less memory."""

    learning_rate: float | None = Field(None, gt=0)
    """Peak learning rate; by default the one recommended for the encoder."""

    head_learning_rate: float | None = Field(None, gt=0)
    """Peak learning rate of the classification head, pooler included; by default learning_rate."""

    weight_decay: float = Field(0.01, ge=0)
    """Weight decay of AdamW."""

    head_weight_decay: float | None = Field(None, ge=0)
    """Weight decay of the classification head, pooler included; by default weight_decay."""

    adam_beta1: float = Field(0.9, ge=0, lt=1)
    """Beta1 of AdamW."""

    adam_beta2: float = Field(0.999, ge=0, lt=1)
    """Beta2 of AdamW."""

    adam_epsilon: float = Field(1e-8, gt=0)
    """Epsilon of AdamW."""

    lr_scheduler_type: ScheduleName = Field("linear", exclude_if=lambda name: name == "linear")
    """Learning-rate schedule after the warm-up, by its name in transformers, with transformers'
    values of its arguments; constant does not warm up."""

    warmup_ratio: float = Field(0.06, ge=0, lt=1)
    """Ratio of the optimizer steps used for a linear warm-up of the learning rate."""

    layer_decay: float = Field(1.0, gt=0, le=1, exclude_if=lambda decay: decay == 1)
    """Layer-wise decay of the learning rate (discriminative fine-tuning; ULMFiT, Howard and Ruder
    2018, https://arxiv.org/abs/1801.06146, section 3.1; ELECTRA): layer k of L has the learning
    rate times layer_decay ** (L + 1 - k), the embeddings as layer 0, heads and what belongs to no
    layer the whole one. ELECTRA has one power more below the heads. 1: no decay."""

    gradient_checkpointing: bool = Field(False, exclude_if=lambda chosen: not chosen)
    """Gradient checkpointing: keep no activations within the layers, and compute them again in the
    backward pass: less memory, more time, the same gradients."""

    max_grad_norm: float = Field(1.0, ge=0)
    """Maximum gradient norm (0 disables clipping)."""

    eval_steps: int | None = Field(None, ge=1)
    """Optimizer steps between two evaluations on dev; by default one epoch."""

    patience: int = Field(3, ge=0)
    """Early stopping: number of evaluations on dev without improvement after which training stops
    (0 disables it). Evaluations count once dev exceeds the majority baseline and min_epochs have
    passed."""

    min_epochs: int = Field(3, ge=0)
    """Minimum number of epochs before early stopping counts."""

    ties: Literal["earlier", "later"] = "earlier"
    """Which of several checkpoints with the same dev metric is kept."""

    final_epochs: int = Field(0, ge=0)
    """Maximum number of epochs of a primary-only fine-tuning phase after training (0 disables it);
    its result is kept if dev improves."""

    final_learning_rate: float = Field(5e-6, gt=0)
    """Peak learning rate of the primary-only phase."""

    final_schedule: ScheduleName = "linear"
    """Learning-rate schedule of the primary-only phase, as lr_scheduler_type."""

    final_patience: int = Field(3, ge=0)
    """Early stopping of the primary-only phase: number of evaluations without improvement (0
    disables it)."""


class MachineSettings(Described):
    """Where a run is done, and what is kept of it."""

    device: Literal["auto", "cpu", "cuda"] = setting("auto", "setting")
    """Device to train on; auto takes a GPU if there is one."""

    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Numerical precision; bf16 and fp16 are mixed precision with float32 weights, fp16 on GPUs
    alone, with scaled losses, for fixed weights."""

    compile: bool = False
    """Compile the encoder with torch.compile. Compilation takes minutes and needs a C++
    compiler."""

    keep_model: bool = setting(True, "record")
    """Keep the trained model. Without it, a run keeps its results and predictions, and no weights;
    predict and evaluate need the model."""

    output: Annotated[PathText | None, Option("FOLDER")] = setting(None, "record")
    """Run folder; by default a folder in runs/ named after the settings."""

    cache_dir: Annotated[PathText | None, Option("FOLDER")] = setting(None, "record")
    """Cache of tokens and token scores; by default $AUXLEARN_CACHE, else auxlearn in the user's
    cache folder."""

    report_to: Annotated[tuple[str, ...], OneOrMany] = setting(
        (), "record", max_length=MOST_ENTRIES
    )
    """Experiment tracker to report to as well: tensorboard, wandb, mlflow or a plug-in;
    repeatable."""

    gradient_log_steps: int | None = setting(None, "record", ge=1)
    """Record norms and cosines of the gradients of all objectives and of the loss on dev every so
    many optimizer steps; by default only every 10 steps under weightings that compute the gradients
    anyway. Results do not change."""


#: The classes of settings by the heading under which help and documentation list them.
SECTIONS: dict[str, type[Settings]] = {
    "Data": DataSettings,
    "Model": ModelSettings,
    "Objectives": ObjectiveSettings,
    "Training": TrainingSettings,
    "Machine": MachineSettings,
}


def section_of(name: str) -> str:
    return next(title for title, section in SECTIONS.items() if name in section.model_fields)


#: Settings that have an effect only where another one has not its default, or has a value.
_BESIDE: dict[str, tuple[tuple[str, ...], str | None]] = {
    "text_window": (("window_stride", "window_pooling", "max_windows"), "windows"),
    "perturbed_text": (("perturbed_share",), None),
    "lora_rank": (("lora_alpha", "lora_dropout"), None),
    "final_epochs": (("final_learning_rate", "final_schedule", "final_patience"), None),
}


class RunSettings(
    MachineSettings, TrainingSettings, ObjectiveSettings, ModelSettings, DataSettings
):
    """The fields of :class:`~auxlearn.core.config.RunConfig`, and how they go together."""

    @field_validator("aux", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return tuple({name: options} for name, options in value.items())
        return one_or_many(value)

    @field_validator("aux")
    @classmethod
    def _own_names_differ(cls, tasks: tuple[PluginChoice, ...]) -> tuple[PluginChoice, ...]:
        labels = [task.label for task in tasks]
        for task in tasks:
            if task.title and labels.count(task.title) > 1:
                raise ValueError(f"the name '{task.title}' is that of two tasks: choose another")
        return tasks

    @field_validator("weights", "loss")
    @classmethod
    def _has_no_title(cls, choice: PluginChoice) -> PluginChoice:
        if choice.title:
            raise ValueError(f"only auxiliary tasks have names of their own: write {choice.name}")
        return choice

    @field_validator("ood")
    @classmethod
    def _names_differ(cls, sets: tuple[OODSource, ...]) -> tuple[OODSource, ...]:
        names = ["train", "dev", "test", *(ood.name for ood in sets)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the name '{twice[0]}' is taken: give the set another one by 'name'")
        return sets

    @field_validator("freeze", mode="before")
    @classmethod
    def _number_as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, Integral) and not isinstance(value, bool) else value

    @field_validator("freeze")
    @classmethod
    def _names_a_part(cls, part: str) -> str:
        if not re.fullmatch("none|embeddings|body|[1-9][0-9]{0,3}", part):
            raise ValueError("it is none, embeddings, body or a number of layers")
        return part

    def without_effect(self, written: Collection[str], file: Collection[str] = ()) -> str:
        """Return which setting that a user has written changes nothing beside others; "" if all
        have an effect. Those of a file need none where what they depend on is written beside it.
        """
        fields = type(self).model_fields.items()
        changed = {name for name, field in fields if getattr(self, name) != field.default}
        for name, (dependents, needed) in _BESIDE.items():
            asked = written if name in written else {*written, *file}
            unused = [part for part in dependents if part in asked and part in changed]
            has_effect = name in changed if needed is None else getattr(self, name) == needed
            if unused and not has_effect:
                other = f"{name} {needed}" if needed else name
                return f"{unused[0]}: it has no effect without {other}: add that, or leave it out"
        return ""

    def check_effect(self, written: Collection[str], file: Collection[str] = ()) -> None:
        """Refuse settings :meth:`without_effect`."""
        if problem := self.without_effect(written, file):
            raise ConfigError(problem)

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.lora_rank and self.freeze != "none":
            raise ValueError("lora_rank: the body is kept as pretrained then: leave freeze out")
        if self.compile and self.gradient_checkpointing:
            raise ValueError("gradient_checkpointing: leave compile out, which plans memory itself")
        if self.gradient_accumulation_steps > self.batch_size:
            raise ValueError(
                f"a batch of {self.batch_size} examples cannot be split into "
                f"{self.gradient_accumulation_steps} micro-batches: choose "
                "gradient_accumulation_steps of at most batch_size"
            )
        return self


KEYWORDS.update(RunSettings.model_fields)


class PretrainSettings(Described):
    """What a continued pretraining depends on, and the device that it is done on."""

    encoder: Annotated[str, Option(completes=True)]
    """Pretrained encoder: short name, local folder, or Hugging Face hub id."""

    do_lower_case: bool | None = Field(None, exclude_if=lambda chosen: chosen is None)
    """Whether the encoder's tokenizer lower-cases texts; by default as its files say."""

    dataset: Annotated[str | None, Option(completes=True)] = None
    """Data set whose train texts are used; of a folder or table it needs no labels."""

    corpus: str | None = None
    """File of texts: .txt, .jsonl, .csv, ..."""

    text_column: Column | None = None
    """Column of the text; by default 'text'."""

    text_pair_column: Column | None = Field(None, exclude_if=lambda name: name is None)
    """Column of the second text of a pair; by default 'text_pair' if there is such a column."""

    label_column: Column | None = Field(None, exclude_if=lambda name: name is None)
    """Column of the label; by default 'label'."""

    trainable: Literal["head", "all"] = "all"
    """Parameters to train: the masked-language-model head on a frozen backbone, or all."""

    steps: int = Field(1000, ge=1)
    """Number of optimizer steps."""

    batch_size: int = Field(32, ge=1)
    """Texts per optimizer step."""

    learning_rate: float = Field(5e-5, gt=0)
    """Peak learning rate of AdamW."""

    max_length: int = Field(128, ge=4)
    """Maximum number of tokens per text, special tokens included; longer texts are truncated."""

    seed: int = Field(0, ge=0)
    """Seed of everything random."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto takes a GPU if there is one."""
