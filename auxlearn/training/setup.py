"""What a run is made of: encoder, weighting, loggers, texts, tasks, and what it continues from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from auxlearn.core import rng
from auxlearn.core.cache import TensorCache
from auxlearn.core.config import RunConfig
from auxlearn.core.errors import (
    ConfigError,
    EncoderError,
    PluginError,
    RunError,
    describe,
    plugin_title,
    shorten,
)
from auxlearn.core.files import content_digest, expand
from auxlearn.core.progress import Reporter
from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS
from auxlearn.core.settings import PluginChoice, ValidationSource
from auxlearn.data.batches import BatchStream
from auxlearn.data.dataset import Split, TextDataset
from auxlearn.data.leaks import Evaluated, trained_on
from auxlearn.data.run_data import RunData, load_run_data
from auxlearn.data.tokens import Tokenization, TokenizedTexts, concatenate
from auxlearn.encoders.device import Compute, attend_in_single_precision, choose_compute
from auxlearn.encoders.load import check_length, load_encoder
from auxlearn.encoders.shared import LANGUAGE_MODEL_HEAD, SharedEncoder
from auxlearn.encoders.source import encoder_content
from auxlearn.encoders.trainable import freeze
from auxlearn.kinds.base import Kind
from auxlearn.kinds.choose import CLASSIFICATION
from auxlearn.losses.base import PrimaryLoss
from auxlearn.objectives.base import Objective
from auxlearn.objectives.context import InputTracker, ObjectiveContext
from auxlearn.objectives.masking import frequency_cross_entropy, score_masked
from auxlearn.objectives.perturbation import perturb_texts
from auxlearn.results.folder import RunFolder, model_of
from auxlearn.results.record import RunResults
from auxlearn.tasks.base import AuxiliaryTask
from auxlearn.training.plugin_checks import calling, check_frozen, check_prepared
from auxlearn.training.step import RunStep
from auxlearn.training.terms import Auxiliary
from auxlearn.training.validation import ValidationObjective
from auxlearn.weighting.base import Weighting


def source_of(config: RunConfig) -> RunFolder | None:
    """Return the folder of the run that training begins from, if any."""
    return None if config.init_from is None else RunFolder(expand(config.init_from, RunError))


def check_source(config: RunConfig, output: Path) -> None:
    """Check that the run to begin from is another one, finished and undamaged."""
    source = source_of(config)
    if source is None:
        return
    if source.path.resolve() == output.resolve():
        raise RunError(f"init_from: {source.path} is the run itself: choose another --output")
    model_of(source.path)
    source.verify_exports()


def load_initial_encoder(
    config: RunConfig, label_names: Sequence[str], kind: Kind = CLASSIFICATION
) -> SharedEncoder:
    encoder = load_encoder(
        config.initial_encoder,
        label_names,
        config.seed,
        config.attention_dropout,
        kind,
        config.do_lower_case,
    )
    source = source_of(config)
    if source is not None:
        head = _tensors(source, LANGUAGE_MODEL_HEAD)
        if head is not None:
            encoder.load_language_model_head(head)
    return encoder


def initial_content(config: RunConfig) -> dict[str, str]:
    """Return digests of the encoder that training begins with, and of the heads beside it."""
    content = encoder_content(config.initial_encoder)
    source = source_of(config)
    if source is not None:
        for path in sorted(source.heads_path.rglob("*.safetensors")):
            name = path.relative_to(source.path).as_posix()
            content[name] = content_digest(path)
    return content


def describe_classifier(config: RunConfig, encoder: SharedEncoder) -> str:
    """Return in one sentence what became of the checkpoint's classifier; "" if it has none."""
    if encoder.kept_classifier is None:
        return ""
    name = config.init_from or config.encoder
    if encoder.kept_classifier:
        return f"the classification head of {name} is kept: it has the same labels"
    return (
        f"the output layer of the classification head is newly initialised: the labels of {name} "
        "are others"
    )


def load_heads(
    config: RunConfig, encoder: SharedEncoder, reporter: Reporter
) -> dict[str, Any] | None:
    """Load the heads of objectives that the run to begin from has under the same name."""
    source = source_of(config)
    if source is None:
        return None
    parts = ["encoder"]
    if encoder.kept_classifier:
        parts.append("classification head")
    if (source.heads_path / f"{LANGUAGE_MODEL_HEAD}.safetensors").is_file():
        parts.append("masked-language-model head")
    for key, head in encoder.heads.items():
        tensors = _tensors(source, key)
        if tensors is None:
            continue
        present = head.state_dict()
        if {n: t.shape for n, t in present.items()} != {n: t.shape for n, t in tensors.items()}:
            reporter.message(
                f"head {key} of {source.path} has other shapes: it is newly initialised"
            )
            continue
        head.load_state_dict(tensors)
        parts.append(f"head {key}")
    reporter.message(f"training continues from {source.path}: {', '.join(parts)}")
    return {
        "run": str(config.init_from),
        "digest": RunResults.load(source.path).digest,
        "model": content_digest(source.model_path / "model.safetensors")[:16],
        "parts": parts,
    }


def _tensors(source: RunFolder, key: str) -> dict[str, Tensor] | None:
    path = source.heads_path / f"{key}.safetensors"
    try:
        return load_file(path) if path.is_file() else None
    except (OSError, SafetensorError) as error:
        raise EncoderError(f"{path} is damaged ({error}): train {source.path} again") from None


#: Texts of dev that the language-model head is tried on, and how many of them at once.
HEAD_TEXTS, HEAD_BATCH = 200, 32

#: Nats by which a trained head's cross-entropy is at least below that of token frequencies. On 200
#: texts of 20 tokens, 600 masked ones, the difference of the two has a standard error of about
#: that size; the head of the built-in encoder is below by 1.6 on pydocs.
HEAD_MARGIN = 0.1


def prepare_task(choice: PluginChoice, context: ObjectiveContext) -> AuxiliaryTask:
    """Make an auxiliary task and prepare it."""
    cls = TASKS.get(choice.name)
    with calling(cls, "prepare", context.name, context.texts):
        task: AuxiliaryTask = cls(cls.Options.model_validate(choice.options))
        trained = [
            parameter for parameter in context.encoder.parameters() if parameter.requires_grad
        ]
        task.prepare(context)
    check_prepared(task, context.name)
    check_frozen(task, context.name, trained, "prepare")
    return task


def build_weighting(config: RunConfig) -> Weighting:
    """Return the weighting that a resolved configuration describes."""
    cls = WEIGHTINGS.get(config.weights.name)
    options = cls.Options.model_validate(config.weights.options)
    with calling(cls, "__init__", config.weights.name):
        weighting: Weighting = cls(options, config.objective_names())
        first = weighting.weights  # options that do not fit the objectives are refused here
        count = len(config.objective_names())
        if not isinstance(first, Tensor) or first.shape != (count,):
            got = tuple(first.shape) if isinstance(first, Tensor) else describe(first)
            raise ConfigError(
                f"{weighting.name}: its weights are a tensor of shape ({count},), one for each "
                f"objective, and not {got}"
            )
        source = weighting.validation_source
        if not isinstance(source, ValidationSource | None):
            raise ConfigError(
                f"{weighting.name}: its validation_source is {describe(source)}: derive Options "
                "from ValidationOptions of auxlearn.plugins, whose split names the examples"
            )
    if config.compile and weighting.differentiates_twice:
        raise ConfigError(
            "compile: optimizer steps cannot be unrolled through a compiled encoder, as "
            f"{weighting.name} is asked to do: leave --compile out"
        )
    if config.gradient_checkpointing and weighting.differentiates_twice:
        raise ConfigError(
            "gradient_checkpointing: activations cannot be computed again through unrolled steps, "
            f"as {weighting.name} makes them: leave gradient_checkpointing or unroll out"
        )
    fixed = weighting.branches is not None or config.weights.name in ("fixed", "equal")
    if config.precision == "fp16" and not fixed:
        raise ConfigError(
            f"precision: fp16 leaves out steps that overflow, which {weighting.name} does not "
            "expect: use bf16, or weights fixed"
        )
    if config.lora_rank and weighting.differentiates_twice:
        raise ConfigError(
            "lora_rank: optimizer steps cannot be unrolled through the adapters of peft, as "
            f"{weighting.name} is asked to do: leave its option unroll out, or freeze layers"
        )
    return weighting


def describe_language_model(
    config: RunConfig,
    encoder: SharedEncoder,
    train: TokenizedTexts,
    dev: TokenizedTexts,
    compute: Compute,
) -> str:
    """Return a warning about a head that knows only token frequencies; texts depend on no seed."""
    order = torch.randperm(len(dev), generator=rng.generator(0, "language-model head", "texts"))
    scored = score_masked(
        encoder,
        dev.select(order[:HEAD_TEXTS]),
        HEAD_BATCH,
        0,
        "language-model head",
        "masks",
        autocast=compute.autocast,
    )
    if not len(scored.targets):
        return ""
    frequencies = frequency_cross_entropy(train, scored.targets, scored.vocabulary)
    if scored.loss <= frequencies - HEAD_MARGIN:
        return ""
    new = "newly initialised " if encoder.new_language_model_head else ""
    name = shorten(config.init_from or config.encoder, 200)
    return (
        f"warning: the {new}masked-language-model head of {name} knows no more than how frequent "
        f"tokens are: its cross-entropy on {len(scored.targets):,} masked tokens of dev is "
        f"{scored.loss:.2f} nats, that of the token frequencies in train {frequencies:.2f}; choose "
        "an encoder with a trained head, or train this one by `auxlearn pretrain` first"
    )


def check_shared_parameters(config: RunConfig) -> None:
    """Check, before any run with fixed weights, that they have something in common to weigh."""
    if config.freeze != "none":
        encoder = load_initial_encoder(config, ["unused"])
        freeze(encoder, config.freeze)
        _check_body(config, encoder)


def _check_body(config: RunConfig, encoder: SharedEncoder) -> None:
    """Check that what the configuration asks for has parameters of the body to work on."""
    if any(parameter.requires_grad for parameter in encoder.body_parameters()):
        return
    if config.compile:
        raise ConfigError(
            f"compile: freeze {config.freeze} leaves no parameter of the body to train, which is "
            "all that is compiled: leave --compile out"
        )
    if config.aux and config.weights.name not in ("fixed", "equal"):
        raise ConfigError(
            f"freeze: {config.freeze} leaves no parameter that the objectives share, so that "
            f"{config.weights.name} has nothing to weigh: use weights fixed"
        )


def check_dropout(objectives: Iterable[Objective], encoder: SharedEncoder) -> None:
    """Check that objectives that compare passes with different dropout have some."""
    for objective in objectives:
        if objective.compares_dropout and not encoder.has_dropout:
            raise ConfigError(
                f"{objective.name} compares passes with different dropout, but all dropout "
                "probabilities of this encoder are 0: choose another encoder, or leave "
                f"{objective.name} out"
            )


@dataclass(kw_only=True)
class Materials:
    """What a run is made of, as its configuration says: data, encoder, texts, objectives."""

    config: RunConfig
    compute: Compute
    reporter: Reporter
    data: RunData
    cache: TensorCache
    notes: list[str] = field(default_factory=list)  # what was found when the run was prepared
    tracker: InputTracker = field(default_factory=InputTracker)  # notes what objectives read

    @classmethod
    def read(
        cls,
        config: RunConfig,
        reporter: Reporter,
        validation: ValidationSource | None = None,
        dataset: TextDataset | None = None,
        **parts: Any,
    ) -> Self:
        """Read the data: those in memory, or those that the configuration names, and the examples
        that drive the weights, of which those that the run is measured by are left out.
        """
        compute = choose_compute(config.device, config.precision)
        cache = TensorCache(expand(config.cache_dir) if config.cache_dir else None)
        data = load_run_data(config, validation, dataset)
        materials = cls(
            config=config,
            compute=compute,
            reporter=reporter,
            data=replace(data, audits=cache.folder),
            cache=cache,
            **parts,
        )
        if validation is not None and validation.file is not None:
            assert data.validation is not None
            tested = materials._evaluated(data, "train", "dev")
            left = tested.left_out_of(data.validation, f"validation file {validation.file}")
            materials.data = replace(materials.data, validation=left)
            materials.evaluated.trained += tested.trained
        return materials

    def note(self, line: str) -> None:
        """Say something about the data, once, and keep it for the results."""
        if line not in self.notes:
            self.notes.append(line)
            self.reporter.message(line)

    @cached_property
    def evaluated(self) -> Evaluated:
        return self._evaluated(self.data, "train")

    def _evaluated(self, data: RunData, *but: str) -> Evaluated:
        """Return the examples of all evaluated splits but some."""
        splits = [split for name, split in data.dataset.everything.items() if name not in but]
        for ood in data.ood_sets:
            splits += [split for split in (ood.split, ood.partner) if split is not None]
        return Evaluated(splits, data.dataset.splits["train"], self.note)

    def check_trained_on(self) -> None:
        """Refuse encoders that were trained on labels that they are to be measured by."""
        config, options = self.config, self.config.loss.options
        begun = "encoder" if config.init_from is None else "init_from"
        known = {begun: trained_on(config.initial_encoder)}
        if count := self.evaluated.count(known[begun]):
            raise RunError(
                f"{begun}: {config.initial_encoder} was trained on {count} of the examples that "
                "this run is evaluated on, with their labels: begin from one that was trained on "
                "other data, or on the training examples of the same fold"
            )
        fitted = {begun: "teacher"} if options.get("teacher") == "cross_fit" else {}
        if options.get("bias") == "weak":
            fitted["bias_encoder"] = "bias model"
            known["bias_encoder"] = trained_on(options["bias_encoder"])
        for setting, role in fitted.items():
            if count := int(np.isin(self.evaluated.train_keys[:, 1], known[setting][:, 1]).sum()):
                raise RunError(
                    f"{setting}: it has seen the labels of {count} of the examples that the {role} "
                    f"of {config.loss.name} is to be cross-fitted to: begin from one that was "
                    "trained on other data, or give the probabilities as a file"
                )

    @cached_property
    def encoder(self) -> SharedEncoder:
        """The encoder that training begins with, loaded when it is first asked for."""
        config, dataset = self.config, self.data.dataset
        encoder = load_initial_encoder(config, dataset.label_names, dataset.kind)
        encoder.random_head = config.random_head
        check_length(encoder.config, config.max_length)
        Tokenization(encoder.tokenizer, config.max_length, config.windowing).check_stride()
        encoder.window_pooling = config.window_pooling
        encoder.to(self.compute.device)
        if config.precision == "bf16" and self.compute.device.type == "cpu":
            attend_in_single_precision(encoder.body)
        freeze(encoder, config.freeze)
        _check_body(config, encoder)
        return encoder

    @property
    def tokenization(self) -> Tokenization:
        return Tokenization(self.encoder.tokenizer, self.config.max_length, self.config.windowing)

    def tokenize(self, split: Split) -> TokenizedTexts:
        """Tokenise a split, or read its tokens from the cache."""
        return self.tokenization.tokenize_split(split, self.cache, self.reporter.progress)

    def perturbed(self, texts: TokenizedTexts) -> TokenizedTexts:
        config, encoder = self.config, self.encoder
        if config.perturbed_text == "none":
            return texts
        encoder.require_language_model("perturbed_text")
        perturbed = perturb_texts(encoder, texts, config.perturbed_share, config.seed, self.cache)
        return concatenate(texts, perturbed) if config.perturbed_text == "add" else perturbed

    def context(self, name: str, split: Split, texts: TokenizedTexts) -> ObjectiveContext:
        return ObjectiveContext(
            name,
            self.encoder,
            split,
            texts,
            max_length=self.config.max_length,
            cache=self.cache,
            seed=self.config.seed,
            progress=self.reporter.progress,
            tracker=self.tracker,
            text_column=self.config.text_column,
            windowing=self.config.windowing,
            evaluated=self.evaluated,
            say=self.reporter.message,
        )

    def primary_loss(self, texts: TokenizedTexts) -> PrimaryLoss:
        choice = self.config.loss
        cls = LOSSES.get(choice.name)
        if not cls.takes(kind := self.encoder.kind):
            others = ", ".join(name for name in LOSSES.names() if LOSSES.get(name).takes(kind))
            raise ConfigError(f"loss: {choice.name} is not of {kind.name}: choose {others}")
        with calling(cls, "__init__", choice.name):
            loss: PrimaryLoss = cls(cls.Options.model_validate(choice.options))
        for setting in () if loss.compilable else ("gradient_checkpointing", "compile"):
            if getattr(self.config, setting):
                raise ConfigError(
                    f"{setting}: the loss {choice.name} changes what a layer computes, which "
                    f"{setting} does not allow: leave {setting} out"
                )
        with calling(cls, "prepare", choice.name, texts):
            loss.prepare(self.context("primary", self.data.train, texts))
        return loss

    def auxiliaries(self, texts: TokenizedTexts) -> list[Auxiliary]:
        config, auxiliaries = self.config, []
        for name, choice in zip(config.objective_names()[1:], config.aux, strict=True):
            task = prepare_task(choice, self.context(name, self.data.train, texts))
            auxiliaries.append(auxiliary(name, task, config.batch_size, config.seed))
        return auxiliaries


def auxiliary(name: str, task: AuxiliaryTask, batch_size: int, seed: int) -> Auxiliary:
    """Return a prepared task with its batches; those of the primary task unless it has its own."""
    if task.batches != "own":
        return Auxiliary(name, task, None)
    with calling(task, "stream", name):
        stream = task.stream(task.batch_size or batch_size, seed, name)
    if not isinstance(stream, BatchStream):
        raise PluginError(f"stream of {plugin_title(task, name)} does not return a BatchStream")
    return Auxiliary(name, task, stream)


def training_step(
    weighting: Weighting, validation: TokenizedTexts | None, surrogate: str, **parts: Any
) -> RunStep:
    """Return the step of a run, made of its parts, as its weighting wants it."""
    padded = weighting.attends_to_padding
    step = RunStep(**parts, clip_head_separately=weighting.clips_apart, attends_to_padding=padded)
    if validation is not None:
        step.validation = ValidationObjective(
            validation,
            weighting.validation_batch_size(step.primary.batch_size),
            surrogate,
            step.seed,
            head=weighting.dev_head,
            batches_per_step=max(step.gradient_accumulation_steps, weighting.validation_batches),
            attends_to_padding=padded,
            kind=step.encoder.kind,
        )
    return step
