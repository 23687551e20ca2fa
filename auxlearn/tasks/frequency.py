"""Frequency masking: rare tokens first."""

from __future__ import annotations

from torch import Tensor

from auxlearn.core.registry import register_task
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.objectives.masking import count_tokens, look_up
from auxlearn.tasks.base import ScoredMasking


@register_task("frequency")
class Frequency(ScoredMasking):
    r"""Mask a token the more often, the rarer it is in the texts.

    The score of a token of type :math:`v` is its surprisal under the frequencies of the texts
    themselves, :math:`-\log (n_v / \sum_u n_u)`, in nats. It is the unigram counterpart of
    ``l3mask`` with ``score: surprisal``, and tells how much of what that one finds is frequency.
    ``reverse: true`` masks frequent tokens first.

    It is a control of this package, not a published method.
    """

    def scores(self, context: ObjectiveContext) -> Tensor:
        """Return the surprisal of each token."""
        ids = self.texts.input_ids
        counts = count_tokens(self.texts, int(ids.max()) + 1).double()
        surprisals = -(counts / counts.sum()).clamp(min=1e-300).log()
        return context.cache.joined(look_up(surprisals, ids))
