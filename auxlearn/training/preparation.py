"""What a run does before training: the texts it trains on, and its auxiliary tasks."""

from __future__ import annotations

from auxlearn.cache import TensorCache
from auxlearn.config import PluginChoice, RunConfig
from auxlearn.data.tokens import TokenizedTexts, concatenate
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.masking.perturbation import perturb_texts_cached
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.registry import TASKS
from auxlearn.tasks.base import AuxiliaryTask
from auxlearn.training.guard import calling, check_prepared


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
