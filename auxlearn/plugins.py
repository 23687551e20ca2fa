"""Names for authors of auxiliary tasks, losses, weightings and reporters, in one place.

A plug-in file needs this module, torch, and pydantic's ``Field`` if it has options::

    from auxlearn.plugins import MaskedLanguageModelling, register_task

Like ``auxlearn`` itself, this module imports neither torch nor transformers until a name is used.

For every kind:

* ``Settings``: base class of a plug-in's options; unknown keys are errors.
* ``ConfigError``: to be raised for options that do not fit: one line, exit code 2.
* ``generator``: random generator for a purpose, from the run's seed.

For auxiliary tasks and losses of the primary task:

* ``ObjectiveContext``: what ``prepare`` is given: encoder, texts, heads, further data, cache.
* ``SideValues``: values for each training example, read by batch.
* ``Batch``: a padded mini-batch of tokenised texts.
* ``TokenizedTexts``: all tokenised texts of a split.
* ``SharedEncoder``: the encoder with its heads.
* ``labels_of``: the classes of a batch, on the device of the logits.
* ``classification_head``: a newly initialised head for classes of the objective's own.
* ``upload``: copy targets to the device of the logits.
* ``uniform``: the same mask probability for every token that may be masked.
* ``rescale_to_mean``: scores as mask probabilities with a given mean.
* ``choose``: sample masked positions from mask probabilities.
* ``corrupt``: replace masked tokens by the mask token, random tokens, or themselves.

For losses of the primary task:

* ``register_loss``: class decorator that gives a loss its name.
* ``PrimaryLoss``: base class of every loss; defines ``loss``.

For auxiliary tasks:

* ``register_task``: class decorator that gives a task its name.
* ``AuxiliaryTask``: base class of every task; defines ``loss``.
* ``MaskedLanguageModelling``: base class of masking strategies; defines ``mask_probabilities``.
* ``MaskingOptions``: options of every masking strategy.
* ``ScoredMasking``: base class of strategies that mask by a score; defines ``scores``.
* ``ScoredMaskingOptions``: options of these.
* ``TaskResult``: a loss together with a changed batch for the primary task.

For weightings:

* ``register_weighting``: class decorator that gives a weighting its name.
* ``Weighting``: base class of every rule; defines ``weights`` and ``step``.
* ``LossWeighting``: base class for weights known before the step; defines ``weights``.
* ``MixOptions``: options of how weighted losses become one optimizer step.
* ``Branches``: how a rule compares whole runs with fixed weights.
* ``LearnedWeighting``: base class for weights learned within a schedule; defines ``learn``.
* ``LearnedOptions``: options of learned weights: initial weights, warm-up, share, floor.
* ``LogitWeighting``: base class for weights that are the softmax of learned logits.
* ``LogitOptions``: options of the logits' optimizer and of gradient scaling.
* ``GramWeighting``: base class for weights from the gradients' Gram matrix; defines ``weigh``.
* ``ValidationOptions``: options of rules that learn from validation examples.
* ``TrainingStep``: what a rule is given: gradients, losses, the optimizer step.
* ``Gradient``: a tensor by parameter, or ``None``.
* ``Placement``: where a parameter belongs: encoder, primary head, other head.
* ``DevHead``: classification head of the validation loss.
* ``weighted_sum``: weighted sum of gradients.
* ``apply_gradient``: make the optimizer step with a gradient.
* ``dot``: inner product of two gradients.
* ``gram_matrices``: Gram matrices of groups of gradients.
* ``shared_gradient``: a gradient restricted to the encoder.
* ``gather_scalars``: copy scalars to the CPU with one synchronisation.

For reporters:

* ``register_reporter``: class decorator that gives a reporter its name.
* ``RunReporter``: base class of what sends the record of a run to an experiment tracker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Public name -> module; loaded on first use, so that importing this module costs nothing.
_PUBLIC = {
    "AuxiliaryTask": "auxlearn.tasks.base",
    "Batch": "auxlearn.data.batches",
    "Branches": "auxlearn.weighting.base",
    "ConfigError": "auxlearn.core.errors",
    "DevHead": "auxlearn.weighting.base",
    "Gradient": "auxlearn.weighting.base",
    "GramWeighting": "auxlearn.weighting.gram",
    "LearnedOptions": "auxlearn.weighting.learned",
    "LearnedWeighting": "auxlearn.weighting.learned",
    "LogitOptions": "auxlearn.weighting.learned",
    "LogitWeighting": "auxlearn.weighting.learned",
    "LossWeighting": "auxlearn.weighting.mixing",
    "MaskedLanguageModelling": "auxlearn.tasks.base",
    "MaskingOptions": "auxlearn.tasks.base",
    "MixOptions": "auxlearn.weighting.mixing",
    "ObjectiveContext": "auxlearn.objectives.context",
    "Placement": "auxlearn.weighting.base",
    "PrimaryLoss": "auxlearn.losses.base",
    "RunReporter": "auxlearn.results.loggers",
    "ScoredMasking": "auxlearn.tasks.base",
    "ScoredMaskingOptions": "auxlearn.tasks.base",
    "Settings": "auxlearn.core.settings",
    "SharedEncoder": "auxlearn.encoders.shared",
    "SideValues": "auxlearn.objectives.context",
    "TaskResult": "auxlearn.tasks.base",
    "TokenizedTexts": "auxlearn.data.tokens",
    "TrainingStep": "auxlearn.weighting.base",
    "ValidationOptions": "auxlearn.weighting.base",
    "Weighting": "auxlearn.weighting.base",
    "apply_gradient": "auxlearn.weighting.base",
    "choose": "auxlearn.objectives.masking",
    "classification_head": "auxlearn.objectives.base",
    "corrupt": "auxlearn.objectives.masking",
    "dot": "auxlearn.weighting.base",
    "gather_scalars": "auxlearn.weighting.base",
    "generator": "auxlearn.core.rng",
    "gram_matrices": "auxlearn.weighting.optimizer_steps",
    "labels_of": "auxlearn.objectives.base",
    "register_loss": "auxlearn.core.registry",
    "register_reporter": "auxlearn.core.registry",
    "register_task": "auxlearn.core.registry",
    "register_weighting": "auxlearn.core.registry",
    "rescale_to_mean": "auxlearn.objectives.masking",
    "shared_gradient": "auxlearn.weighting.base",
    "uniform": "auxlearn.objectives.masking",
    "upload": "auxlearn.encoders.device",
    "weighted_sum": "auxlearn.weighting.base",
}

__all__ = sorted(_PUBLIC)  # noqa: PLE0605

if TYPE_CHECKING:
    from auxlearn.core.errors import ConfigError as ConfigError
    from auxlearn.core.registry import (
        register_loss as register_loss,
        register_reporter as register_reporter,
        register_task as register_task,
        register_weighting as register_weighting,
    )
    from auxlearn.core.rng import generator as generator
    from auxlearn.core.settings import Settings as Settings
    from auxlearn.data.batches import Batch as Batch
    from auxlearn.data.tokens import TokenizedTexts as TokenizedTexts
    from auxlearn.encoders.device import upload as upload
    from auxlearn.encoders.shared import SharedEncoder as SharedEncoder
    from auxlearn.losses.base import PrimaryLoss as PrimaryLoss
    from auxlearn.objectives.base import (
        classification_head as classification_head,
        labels_of as labels_of,
    )
    from auxlearn.objectives.context import (
        ObjectiveContext as ObjectiveContext,
        SideValues as SideValues,
    )
    from auxlearn.objectives.masking import (
        choose as choose,
        corrupt as corrupt,
        rescale_to_mean as rescale_to_mean,
        uniform as uniform,
    )
    from auxlearn.results.loggers import RunReporter as RunReporter
    from auxlearn.tasks.base import (
        AuxiliaryTask as AuxiliaryTask,
        MaskedLanguageModelling as MaskedLanguageModelling,
        MaskingOptions as MaskingOptions,
        ScoredMasking as ScoredMasking,
        ScoredMaskingOptions as ScoredMaskingOptions,
        TaskResult as TaskResult,
    )
    from auxlearn.weighting.base import (
        Branches as Branches,
        DevHead as DevHead,
        Gradient as Gradient,
        Placement as Placement,
        TrainingStep as TrainingStep,
        ValidationOptions as ValidationOptions,
        Weighting as Weighting,
        apply_gradient as apply_gradient,
        dot as dot,
        gather_scalars as gather_scalars,
        shared_gradient as shared_gradient,
        weighted_sum as weighted_sum,
    )
    from auxlearn.weighting.gram import GramWeighting as GramWeighting
    from auxlearn.weighting.learned import (
        LearnedOptions as LearnedOptions,
        LearnedWeighting as LearnedWeighting,
        LogitOptions as LogitOptions,
        LogitWeighting as LogitWeighting,
    )
    from auxlearn.weighting.mixing import LossWeighting as LossWeighting, MixOptions as MixOptions
    from auxlearn.weighting.optimizer_steps import gram_matrices as gram_matrices


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'auxlearn.plugins' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
