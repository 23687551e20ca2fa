"""Part-of-speech masking: each part of speech with a weight of its own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor

from auxlearn.core.errors import ConfigError, some_of
from auxlearn.core.registry import register_task
from auxlearn.data.pos_tags import ADVICE, find_tagger
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.tasks.base import ScoredMasking, ScoredMaskingOptions

#: Content words: nouns, verbs, adjectives, adverbs.
CONTENT = {"NN": 1.0, "VB": 1.0, "JJ": 1.0, "RB": 1.0}


class PosOptions(ScoredMaskingOptions):
    weights: dict[str, Annotated[float, Field(ge=0)]] = CONTENT
    """Weight by tag of the Penn Treebank or by its beginning: NN stands for NN, NNS, NNP and NNPS
    unless they have weights of their own, '' for all others. A part of speech without weight is
    masked only where the others do not suffice."""


@register_task("pos")
class PartOfSpeech(ScoredMasking):
    """Mask parts of speech in proportion to weights; by default content words alone.

    Yang et al. 2023, `Learning Better Masking <https://aclanthology.org/2023.acl-long.400>`_,
    weight parts of speech (POS-tagging weighted masking). The score of a token is the weight of the
    tag of its word, of which the longest beginning counts. The tagger is the first that is
    installed: spaCy with en_core_web_sm, NLTK, TextBlob.

    It departs from the paper in this point: the weights are given and stay; there, they follow the
    accumulated loss of each part of speech during pretraining.
    """

    Options = PosOptions
    options: PosOptions

    def scores(self, context: ObjectiveContext) -> Tensor:
        tagger = find_tagger()
        if tagger is None:
            raise ConfigError(f"{context.name} needs a part-of-speech tagger: {ADVICE}")
        weight: dict[str, float] = {}

        def score(tag: str) -> float:
            return weight.setdefault(tag, weight_of(tag, self.options.weights))

        scores = context.tag_scores(tagger[0], score, self.options.corpus)
        if not any(weight.values()):
            raise ConfigError(
                f"{context.name}: weights name no part of speech of the texts: give one of "
                f"{some_of(sorted(filter(None, weight)), 50)} a weight above 0"
            )
        return scores


def weight_of(tag: str, weights: dict[str, float]) -> float:
    """Return the weight of the longest beginning of a tag; 0 if none has one."""
    beginnings = (tag[:end] for end in range(len(tag), -1, -1))
    return next((weights[text] for text in beginnings if text in weights), 0.0)
