"""Names for authors of tasks, losses, weightings, kinds of labels and reporters, in one place.

A plug-in file needs this module, torch, and pydantic's ``Field`` if it has options::

    from auxlearn.plugins import MaskedLanguageModelling, register_task

Like ``auxlearn`` itself, this module imports neither torch nor transformers until a name is used.

For every plug-in:

* ``Settings``: base class of a plug-in's options; unknown keys are errors.
* ``ConfigError``: to be raised for options that do not fit: one line, exit code 2.
* ``generator``: random generator for a purpose, from the run's seed.

For auxiliary tasks and losses of the primary task:

* ``ObjectiveContext``: what ``prepare`` is given: encoder, texts, heads, further data, cache.
* ``content_key``: key of a result in the cache, by all that the result depends on.
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
* ``TaskResult``: a loss with a changed batch for the primary task, or with losses of members.

For weightings:

* ``register_weighting``: class decorator that gives a weighting its name.
* ``Weighting``: base class of every rule; defines ``weights`` and ``step``.
* ``KeptWeights``: base class for weights that hold until the next step; defines ``step``.
* ``LossWeighting``: base class for weights known before the step; defines ``weights``.
* ``MixOptions``: options of how weighted losses become one optimizer step.
* ``Branches``: how a rule compares whole runs with fixed weights.
* ``LearnedWeighting``: base class for weights learned within a schedule; defines ``learn``.
* ``LearnedOptions``: options of learned weights: initial weights, warm-up, share, floor.
* ``LogitWeighting``: base class for weights that are the softmax of learned logits.
* ``LogitOptions``: options of the logits' optimizer and of gradient scaling.
* ``GramWeighting``: base class for weights from the gradients' Gram matrix; defines ``weigh``.
* ``OptimizerState``: part of a rule that keeps the moments of an optimizer of its own.
* ``ValidationOptions``: options of rules that learn from validation examples.
* ``TrainingStep``: what a rule is given: gradients, losses, the optimizer step.
* ``Members``: the objectives that tasks are made of, and those of them that a step has.
* ``Gradient``: a tensor by parameter, or ``None``.
* ``Placement``: where a parameter belongs: encoder, primary head, other head.
* ``DevHead``: classification head of the validation loss.
* ``weighted_sum``: weighted sum of gradients.
* ``apply_gradient``: make the optimizer step with a gradient.
* ``dot``: inner product of two gradients.
* ``gram_matrices``: Gram matrices of groups of gradients.
* ``shared_gradient``: a gradient restricted to the encoder.
* ``gather_scalars``: copy scalars to the CPU with one synchronisation.

For kinds of labels:

* ``register_kind``: class decorator that gives a kind its name.
* ``Kind``: base class of every kind: how labels are read, trained on, decoded and scored.
* ``ReadLabels``: what its ``read`` returns.
* ``Metric``: title of a metric, its range, and whether it is an error.
* ``DataError``: to be raised for data that do not fit: one line, exit code 2.

For reporters:

* ``register_reporter``: class decorator that gives a reporter its name.
* ``RunReporter``: base class of what sends the record of a run to an experiment tracker.

For executors of sweeps:

* ``register_executor``: class decorator that gives an executor its name.
* ``Executor``: base class of what runs jobs; defines ``submit``, ``wait``, ``stop``, ``close``.
* ``Job``: a run as it is sent to a process; ``run_job`` trains it there.
* ``Outcome``: how a run ended.
* ``run_job``: train a job in this process and return its outcome.
"""

from auxlearn.core.lazy import names_of_stub

__all__, __getattr__, __dir__ = names_of_stub(__name__, __file__)
