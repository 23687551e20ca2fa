"""Sentence-order prediction: are two neighbouring passages of a text in their order?"""

from __future__ import annotations

import logging
import re

import torch
from torch import Tensor, nn

from auxlearn.core.errors import DataError
from auxlearn.core.registry import register_task
from auxlearn.core.validation import Settings
from auxlearn.data.batches import Batch
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.base import classification_head, labels_of
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.tasks.base import CORPUS, AuxiliaryTask

logger = logging.getLogger(__name__)

#: White space after the end of a sentence: punctuation, perhaps with closing quotes or brackets.
_BOUNDARY = re.compile(r"[.!?][\"'”’)\]]*(\s+)(?=\S)")


class SentenceOrderOptions(Settings):
    corpus: str | None = CORPUS


@register_task("sentence_order")
class SentenceOrder(AuxiliaryTask):
    """Tell two neighbouring passages of a text from the same passages swapped.

    Lan et al. 2020, `ALBERT <https://arxiv.org/abs/1909.11942>`_, section 3.1: the loss is the
    cross-entropy, in nats, of a binary classification with a head of its own. Each text is divided
    at the end of the sentence nearest to its middle; both orders are drawn equally often. ALBERT
    draws two segments of running text instead, which data sets for classification do not have.

    A text of one sentence cannot be divided and is not used; the texts of a pair count as two. A
    warning says how many texts are left when they are less than half.
    """

    Options = SentenceOrderOptions
    options: SentenceOrderOptions

    def prepare(self, context: ObjectiveContext) -> None:
        """Divide the texts and add the head.

        Raises:
            DataError: No text has two sentences.
        """
        corpus = self.options.corpus
        source = context.read_corpus(corpus) if corpus else context.split
        texts = [*source.texts, *(source.text_pairs or ())]
        divided = [parts for parts in map(divide, texts) if parts]
        if not divided:
            raise DataError(
                f"'{context.name}' needs texts of at least two sentences, and none of the "
                f"{len(texts)} texts has two: name a file of longer texts with "
                "--sentence-order-corpus"
            )
        if len(divided) < len(texts) / 2:
            logger.warning(
                "'%s' uses %d of %d texts: the others have one sentence",
                context.name,
                len(divided),
                len(texts),
            )
        first, second = zip(*divided, strict=True)
        self.texts = context.tokenize(
            first + second, pairs=second + first, labels=[0] * len(divided) + [1] * len(divided)
        )
        self.head = context.add_head("order", lambda: classification_head(context.encoder, 2))

    def loss(self, encoder: SharedEncoder, batch: Batch, generator: torch.Generator) -> Tensor:
        logits = encoder.apply_head(self.head, encoder.features(batch))
        return nn.functional.cross_entropy(logits, labels_of(batch, logits))


def divide(text: str) -> tuple[str, str] | None:
    """Divide a text at the end of the sentence nearest to its middle; ``None`` if it has only one.

    >>> divide("It rains. We stay. So do they, although they have a car.")
    ('It rains. We stay.', 'So do they, although they have a car.')
    >>> divide("No end in sight") is None
    True
    """
    text = text.strip()
    boundaries = [match.span(1) for match in _BOUNDARY.finditer(text)]
    if not boundaries:
        return None
    start, end = min(boundaries, key=lambda span: abs(span[0] - len(text) / 2))
    return text[:start], text[end:]
