"""Salient-span masking: names and numbers first."""

from __future__ import annotations

import re
from typing import Literal

from torch import Tensor

from auxlearn.core.registry import register_task
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.tasks.base import ScoredMasking, ScoredMaskingOptions

_NUMBER = re.compile(r"\d")
_MONTHS = re.compile(
    "january|february|march|april|may|june|july|august|september|october|november|december", re.I
)
_ENDS = frozenset(".!?")


class SalientOptions(ScoredMaskingOptions):
    unit: Literal["token", "word"] = "word"
    """What is masked together: word: all tokens of a word; token: each alone."""


def salient(words: list[str]) -> list[str]:
    """Say of each word of a text whether it is a "name", a "number" or "", by its letters alone.

    A number has a digit or is a month with a capital. A name begins with a capital within a
    sentence, or has a second capital anywhere (NASA, McCartney); the pronoun I is none.

    >>> salient("The choir of NASA met Anna in May 1969 . Then I left".split())
    ['', '', '', 'name', '', 'name', '', 'number', 'number', '', '', '', '']
    """
    kinds = []
    for before, word in zip([".", *words], words, strict=False):
        if _NUMBER.search(word) or (word != word.lower() and _MONTHS.fullmatch(word)):
            kinds.append("number")
        elif sum(letter.isupper() for letter in word) > 1 or (
            word[0].isupper() and word != "I" and before not in _ENDS
        ):
            kinds.append("name")
        else:
            kinds.append("")
    return kinds


@register_task("salient")
class Salient(ScoredMasking):
    """Mask names and numbers first, and the other words with what is left of the budget.

    Guu et al. 2020, `REALM <https://arxiv.org/abs/2002.08909>`_, section 3.4, salient span
    masking. Names and numbers have score 1, all other tokens 0: where names and numbers do not
    suffice for ``probability``, they are always masked, and the rest is spread over the other
    tokens; where they more than suffice, each of their words is masked with the same probability.
    Names and numbers are found by a rule on capitals and digits, :func:`salient`.

    It departs from the paper in these points: there, a tagger trained on CoNLL-2003 finds names and
    an expression dates; exactly one span of a text is masked.
    """

    Options = SalientOptions
    options: SalientOptions

    def scores(self, context: ObjectiveContext) -> Tensor:
        return context.tag_scores(salient, bool, self.options.corpus)
