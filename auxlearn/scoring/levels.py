"""Scores of texts by a masked language model, at the level of tokens, words or whole texts."""

from __future__ import annotations

from typing import Any, Literal

import torch

from auxlearn.core.errors import DataError, describe
from auxlearn.core.progress import ProgressBar, no_progress_bar
from auxlearn.core.table import Table
from auxlearn.data.dataset import Split
from auxlearn.data.examples import LOG_PROBABILITY
from auxlearn.data.tokens import Tokenization, TokenizedTexts, check_every_text_has_tokens
from auxlearn.encoders.shared import SharedEncoder
from auxlearn.scoring.pseudo_likelihood import log_probability_and_entropy, pseudo_log_likelihood

Level = Literal["token", "word", "text"]


def score_levels(
    encoder: SharedEncoder,
    split: Split,
    level: Level,
    max_length: int,
    passes: int | None = None,
    progress: ProgressBar = no_progress_bar,
) -> Table:
    """Return the pseudo-log-likelihoods of texts, one row per token, word or text, in nats.

    The score of a word or text is the sum over its tokens (Salazar et al. 2020, `Masked Language
    Model Scoring <https://aclanthology.org/2020.acl-main.240>`_, eq. 1; of a word, as in Kauf and
    Ivanova 2023), its entropy the mean. Unknown and special tokens have no score, and neither has
    what is made of nothing else; sums leave them out, and a column counts them. (minicons adds what
    the encoder gives to the unknown token itself, which pretraining never asks for.)
    """
    encoder.require_language_model("score", trained=False)
    tokenization = Tokenization(encoder.tokenizer, max_length)
    texts = tokenization.tokenize(split.texts, split.text_pairs)
    check_every_text_has_tokens(texts, split)
    if not texts.maskable.any():
        raise DataError(
            f"score: the encoder knows no word or character of {describe(split.texts[0])}, nor of "
            "any other text, so that there is nothing to score: choose another encoder"
        )
    with progress("scoring tokens", int(texts.maskable.sum())) as advance:
        values = pseudo_log_likelihood(
            encoder, texts, advance, passes, statistic=log_probability_and_entropy
        ).double()
    tokens = (texts.words >= 0).nonzero().squeeze(1)
    rows = torch.bucketize(tokens, texts.offsets, right=True) - 1
    words, known = texts.words[tokens].long(), texts.maskable[tokens]
    values = values[tokens]  # 0 where a token is not scored
    if level == "token":
        forms = encoder.tokenizer.convert_ids_to_tokens(texts.input_ids[tokens].tolist())
        columns = {"text": rows.tolist(), "word": words.tolist(), "form": forms}
        return Table("scores", columns | _statistics(values, known))
    group = rows if level == "text" else torch.stack([rows, words], 1)
    kept, which = group.unique(dim=0, return_inverse=True)
    counts, unscored = (which[mask].bincount(minlength=len(kept)) for mask in (known, ~known))
    sums = values.new_zeros(len(kept), 2).index_add(0, which, values)
    sums[:, 1] /= counts
    if level == "text":
        columns = {"text": kept.tolist(), "form": [split.texts[row] for row in kept.tolist()]}
    else:
        columns = {
            "text": kept[:, 0].tolist(),
            "word": kept[:, 1].tolist(),
            "form": [_word(encoder, texts, row, word) for row, word in kept.tolist()],
        }
    columns |= {"tokens": counts.tolist(), "unscored": unscored.tolist()}
    return Table("scores", columns | _statistics(sums, counts > 0))


def unscored_note(table: Table) -> str | None:
    """Return a sentence on the texts that have tokens without a score, if there are any."""
    unscored = table.columns.get("unscored") or [v is None for v in table.columns["entropy"]]
    texts = sorted({row for row, n in zip(table.columns["text"], unscored, strict=True) if n})
    if not texts:
        return None
    shown = ", ".join(map(str, texts[:5])) + (" ..." if len(texts) > 5 else "")
    return (
        f"tokens that the encoder does not know, and special ones, are not scored, in {len(texts)} "
        f"of the texts (text {shown}): their sums are over fewer tokens, and too high beside those "
        "of others"
    )


def _statistics(values: torch.Tensor, known: torch.Tensor) -> dict[str, list[Any]]:
    """Return the columns of statistics, empty where nothing is known."""
    return {
        name: [value if here else None for value, here in zip(column, known.tolist(), strict=True)]
        for name, column in zip((LOG_PROBABILITY, "entropy"), values.T.tolist(), strict=True)
    }


def _word(encoder: SharedEncoder, texts: TokenizedTexts, row: int, word: int) -> str:
    start, end = int(texts.offsets[row]), int(texts.offsets[row + 1])
    ids = texts.input_ids[start:end][texts.words[start:end] == word]
    return str(encoder.tokenizer.decode(ids.tolist())).strip()
