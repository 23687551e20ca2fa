"""Selective masking: tokens on which the class depends."""

from __future__ import annotations

from dataclasses import replace

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from auxlearn.core.cache import content_key
from auxlearn.core.errors import ConfigError
from auxlearn.core.registry import register_task
from auxlearn.data.batches import collate, eval_batches
from auxlearn.data.tokens import TokenizedTexts
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.tasks.base import ScoredMasking

#: Texts, or copies of a text, per forward pass.
BATCH = 64

#: Part of the cache key; raise it when a change of the code changes the scores.
VERSION = 1


@register_task("selective")
class Selective(ScoredMasking):
    r"""Mask a token the more often, the more a classifier's confidence changes without it.

    Gu et al. 2020, `Train No Evil <https://arxiv.org/abs/2004.09733>`_. The score of a token
    :math:`t` of a text :math:`x` is :math:`|P(y \mid x) - P(y \mid x_{\setminus t})|`, where
    :math:`y` is the class predicted for :math:`x` and :math:`x_{\setminus t}` has the mask token in
    the place of :math:`t`. The classifier is a logistic regression on the features of the
    pretrained encoder (:meth:`~auxlearn.encoders.shared.SharedEncoder.features`), fitted to the
    training examples.

    It departs from the paper in these points: there, the classifier is the fine-tuned encoder; a
    text is built up token by token, and a token counts if it brings the confidence in the true
    class to within 0.05 of that of the whole text; another model then learns to find such tokens
    in unlabelled texts, and these alone are masked.
    """

    def scores(self, context: ObjectiveContext) -> Tensor:
        context.split.kind.require("selective")
        train = context.texts
        pooling = [] if train.windows is None else [context.encoder.window_pooling]
        if train.labels is None or train.labels.unique().numel() < 2:
            raise ConfigError(f"{context.name} needs texts with labels, of two or more classes")
        key = content_key(
            "selective",
            VERSION,
            context.encoder.language_model_fingerprint(),
            train.input_ids,
            train.offsets,
            train.labels,
            self.texts.input_ids,
            self.texts.offsets,
            self.texts.maskable,
            *pooling,
        )
        return context.cache.get(key, lambda: {"scores": self._score(context)})["scores"]

    def _score(self, context: ObjectiveContext) -> Tensor:
        encoder, train, texts = context.encoder, context.texts, self.texts.in_rows()
        with (
            encoder.evaluating(),
            torch.inference_mode(),
            context.progress("confidence without each token", int(texts.maskable.sum())) as advance,
        ):
            rows = eval_batches(train, BATCH)
            seen = torch.cat([encoder.features(collate(train, some)).cpu() for some in rows])
            assert train.labels is not None
            probe = LogisticRegression(max_iter=1000).fit(
                seen.double().numpy(), train.labels[torch.cat(rows)].numpy()
            )

            def scores_of(row: int) -> Tensor:
                start, end = texts.offsets[row : row + 2].tolist()
                places = texts.maskable[start:end].nonzero().squeeze(1)
                scores = torch.zeros(end - start, dtype=torch.float64)
                if len(places):
                    scores[places] = self._changes(encoder, probe, texts, row, places)
                advance(len(places))
                return scores

            return context.cache.joined(map(scores_of, range(len(texts))))

    def _changes(
        self,
        encoder: SharedEncoder,
        probe: LogisticRegression,
        texts: TokenizedTexts,
        row: int,
        places: Tensor,
    ) -> Tensor:
        masks = torch.cat([torch.tensor([-1]), places])[:, None] == torch.arange(
            int(texts.lengths[row])
        )
        features = []
        for some in masks.split(BATCH):  # the first row masks nothing
            batch = collate(texts, torch.full((len(some),), row))
            ids = batch.input_ids.masked_fill(some, encoder.tokenizer.mask_token_id)
            features.append(encoder.features(replace(batch, input_ids=ids)).cpu())
        probabilities = torch.from_numpy(probe.predict_proba(torch.cat(features).double().numpy()))
        confidence = probabilities[:, probabilities[0].argmax()]
        return (confidence[1:] - confidence[0]).abs()
