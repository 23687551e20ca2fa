"""What a run does before training: its encoder, weighting, reporters, texts and auxiliary tasks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from auxlearn import rng
from auxlearn.cache import TensorCache
from auxlearn.config import PluginChoice, RunConfig
from auxlearn.data.run_data import RunData
from auxlearn.data.tokens import TokenizedTexts, concatenate
from auxlearn.encoders.attention import attend_in_single_precision
from auxlearn.encoders.load import check_length
from auxlearn.encoders.precision import Compute
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.encoders.trainable import freeze
from auxlearn.errors import ConfigError
from auxlearn.masking.held_out import frequency_cross_entropy, score_masked
from auxlearn.masking.perturbation import perturb_texts_cached
from auxlearn.objectives.base import Objective
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.registry import REPORTERS, TASKS, WEIGHTINGS
from auxlearn.reporters.base import ReportedRun, RunReporter
from auxlearn.results.folder import RunFolder
from auxlearn.tasks.base import AuxiliaryTask
from auxlearn.training.continuation import load_initial_encoder
from auxlearn.training.guard import calling, check_prepared
from auxlearn.weighting.base import Weighting
from auxlearn.wording import shorten

#: Texts of dev that the language-model head is tried on, and how many of them at once.
HEAD_TEXTS, HEAD_BATCH = 200, 32

#: Nats by which a trained head's cross-entropy is at least below that of token frequencies. On 200
#: texts of 20 tokens, 600 masked ones, the difference of the two has a standard error of about
#: that size; the head of the built-in encoder is below by 1.6 on pydocs.
HEAD_MARGIN = 0.1


def with_perturbed_text(
    config: RunConfig, encoder: SharedEncoder, texts: TokenizedTexts, cache: TensorCache
) -> TokenizedTexts:
    """Return the training texts, perturbed once by the pretrained encoder if configured.

    Args:
        config: The resolved configuration.
        encoder: The pretrained encoder.
        texts: The training texts as they were read.
        cache: Holds perturbed texts of earlier runs.

    Raises:
        EncoderError: The encoder has no pretrained masked-language-model head to perturb them with.
    """
    if config.perturbed_text == "none":
        return texts
    encoder.require_language_model("perturbed_text")
    perturbed = perturb_texts_cached(encoder, texts, config.perturbed_share, config.seed, cache)
    return concatenate(texts, perturbed) if config.perturbed_text == "add" else perturbed


def prepare_task(choice: PluginChoice, context: ObjectiveContext) -> AuxiliaryTask:
    """Make an auxiliary task and prepare it.

    Args:
        choice: The task, with all of its options.
        context: What it is prepared with; its name is that of the objective.

    Raises:
        UserError: The task cannot be prepared.
    """
    cls = TASKS.get(choice.name)
    with calling(cls, "prepare", context.name):
        task: AuxiliaryTask = cls(cls.Options.model_validate(choice.options))
        task.prepare(context)
    check_prepared(task, context.name)
    return task


def build_weighting(config: RunConfig) -> Weighting:
    """Return the weighting that a resolved configuration describes.

    Raises:
        ConfigError: Its options do not fit the objectives or the other settings.
    """
    cls = WEIGHTINGS.get(config.weights.name)
    options = cls.Options.model_validate(config.weights.options)
    with calling(cls, "__init__", config.weights.name):
        weighting: Weighting = cls(options, config.objective_names())
        validate_weighting(weighting)
    if config.compile and weighting.differentiates_twice:
        raise ConfigError(
            "compile: optimizer steps cannot be unrolled through a compiled encoder, as "
            f"{weighting.name} is asked to do: leave --compile out"
        )
    if config.lora_rank and weighting.differentiates_twice:
        raise ConfigError(
            "lora_rank: optimizer steps cannot be unrolled through the adapters of peft, as "
            f"{weighting.name} is asked to do: leave its option unroll out, or freeze layers"
        )
    return weighting


def validate_weighting(weighting: Weighting) -> Tensor:
    """Check that the options of a weighting fit its objectives, and return its initial weights.

    Raises:
        ConfigError: They do not, such as initial weights for another number of objectives.
    """
    return weighting.weights


def describe_language_model(
    config: RunConfig,
    encoder: SharedEncoder,
    train: TokenizedTexts,
    dev: TokenizedTexts,
    compute: Compute,
) -> str:
    """Return a warning about a language-model head that knows no more than token frequencies.

    Such a head is trained before it teaches the encoder anything, and what it predicts in place of
    a token is a frequent one. It is asked for masked tokens of at most :data:`HEAD_TEXTS` texts,
    which are the same for every seed of a run, and so are the masks.

    Args:
        config: The resolved configuration.
        encoder: The encoder as it was pretrained.
        train: The training texts, whose token frequencies it is compared with.
        dev: Held-out texts.
        compute: Precision of the forward passes.

    Returns:
        The warning, with both cross-entropies; "" if that of the head is lower by at least
        :data:`HEAD_MARGIN`, or if no token was masked.
    """
    order = torch.randperm(len(dev), generator=rng.generator(0, "language-model head", "texts"))
    found = score_masked(
        encoder,
        dev.select(order[:HEAD_TEXTS]),
        HEAD_BATCH,
        0,
        "language-model head",
        "masks",
        autocast=compute.autocast,
    )
    if not len(found.targets):
        return ""
    frequencies = frequency_cross_entropy(train, found.targets, found.vocabulary)
    if found.loss <= frequencies - HEAD_MARGIN:
        return ""
    new = "newly initialised " if encoder.new_language_model_head else ""
    name = shorten(config.init_from or config.encoder, 200)
    return (
        f"warning: the {new}masked-language-model head of {name} knows no more than how frequent "
        f"tokens are: its cross-entropy on {len(found.targets):,} masked tokens of dev is "
        f"{found.loss:.2f} nats, that of the token frequencies in train {frequencies:.2f}; choose "
        "an encoder with a trained head, or train this one by `auxlearn pretrain` first"
    )


def require_compiler(config: RunConfig, compute: Compute) -> None:
    """Check that ``torch.compile`` works if the configuration asks for it.

    Raises:
        ConfigError: It does not.
    """
    if config.compile:
        from auxlearn.encoders.compiled import check_compiler

        check_compiler(compute.device)


def run_reporters(config: RunConfig, folder: RunFolder) -> list[RunReporter]:
    """Return the reporters that the configuration asks for.

    Raises:
        ConfigError: One is unknown, or not installed.
    """
    run = ReportedRun(folder.path, config.model_dump(mode="json"))
    return [REPORTERS.get(name)(run) for name in config.report_to]


def load_run_encoder(config: RunConfig, data: RunData, compute: Compute) -> SharedEncoder:
    """Load the encoder that training begins with; see :func:`load_initial_encoder`.

    Raises:
        EncoderError: It cannot be loaded, or ``max_length`` is too long for it.
        ConfigError: What is frozen leaves nothing for other settings to work on.
    """
    encoder = load_initial_encoder(config, data.dataset.label_names)
    encoder.random_head = config.random_head
    check_length(encoder, config.max_length)
    encoder.to(compute.device)
    if config.precision == "bf16" and compute.device.type == "cpu":
        attend_in_single_precision(encoder.body)
    freeze(encoder, config.freeze)
    _check_body(config, encoder)
    return encoder


def check_shared_parameters(config: RunConfig) -> None:
    """Check, before any run with fixed weights, that they have something in common to weigh.

    Raises:
        EncoderError: The encoder cannot be loaded.
        ConfigError: The body is frozen as a whole.
    """
    if config.freeze != "none":
        encoder = load_initial_encoder(config, ["unused"])
        freeze(encoder, config.freeze)
        _check_body(config, encoder)


def _check_body(config: RunConfig, encoder: SharedEncoder) -> None:
    """Check that what the configuration asks for has parameters of the body to work on.

    Raises:
        ConfigError: The body is frozen as a whole.
    """
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
    """Check that objectives that compare passes with different dropout have some.

    Raises:
        ConfigError: All dropout probabilities of the encoder are zero.
    """
    for objective in objectives:
        if objective.compares_dropout and not encoder.has_dropout:
            raise ConfigError(
                f"{objective.name} compares passes with different dropout, but all dropout "
                "probabilities of this encoder are 0: choose another encoder, or leave "
                f"{objective.name} out"
            )
