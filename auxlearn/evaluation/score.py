"""Scores of texts under a masked language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from auxlearn.core.arguments import Column, Count, UserPath, checked
from auxlearn.core.files import expand
from auxlearn.core.progress import Reporter
from auxlearn.core.validation import Option
from auxlearn.data.tables import FORMATS, write_table
from auxlearn.evaluation.predict import texts_of
from auxlearn.results.outputs import check_output_file

if TYPE_CHECKING:
    import pandas


@checked
def score(
    encoder: Annotated[UserPath, Option(completes=True)],
    texts: Any,
    *,
    level: Literal["token", "word", "text"] = "token",
    passes: Count | None = None,
    max_length: Annotated[Count, Field(ge=4)] = 128,
    text_column: Column | None = None,
    do_lower_case: bool | None = None,
    reporter: Reporter | None = None,
    verbose: bool = True,
    output: UserPath | None = None,
) -> pandas.DataFrame:
    """Score texts by the pseudo-log-likelihood of a masked language model.

    Args:
        encoder: Encoder with a masked-language-model head: short name, folder, or hub id.
        texts: A text, a list or Series of texts, a DataFrame or another table in memory, or a
            :class:`~pathlib.Path` of a file: a table, or one text per line.
        level: What a row is.
        passes: Masked copies of each text; by default one per token, which is exact.
        max_length: Maximum number of tokens per text, special tokens included; the rest is not
            scored.
        text_column: Column of the text in a table; by default ``text``.
        do_lower_case: Whether the encoder's tokenizer lower-cases texts; by default as its files
            say.
        reporter: Shows progress in place of the console or the notebook.
        verbose: Whether progress and warnings are shown where there is no ``reporter``.
        output: File for the scores: .csv, .tsv, .jsonl or .parquet.

    Returns:
        Number of the text (and of the word), the token, word or text, its log-probability in nats,
        and the entropy of the prediction, both empty where no token is known; see
        :func:`~auxlearn.scoring.levels.score_levels`.

    Raises:
        UserError: The encoder cannot score, or the texts cannot be read.
    """
    place = None if output is None else expand(output)
    if place is not None:
        check_output_file(place, FORMATS, [encoder, *([texts] if isinstance(texts, Path) else [])])
    split, notes = texts_of(texts, text_column)

    import pandas

    from auxlearn.data.audit import describe_lengths, token_counts
    from auxlearn.data.tokens import Tokenization
    from auxlearn.encoders.device import default_device, usual_torch
    from auxlearn.encoders.load import check_length, load_encoder
    from auxlearn.results.console import default_reporter
    from auxlearn.scoring.levels import score_levels, unscored_note

    with usual_torch():
        loaded = load_encoder(str(encoder), ["unused"], do_lower_case=do_lower_case)
    check_length(loaded.config, max_length)
    show = reporter or default_reporter(verbose)
    for line in (*notes, *loaded.notes):
        show.message(line)
    whole = token_counts(loaded.tokenizer, split)[:, 0]
    if whole.max() > max_length:
        tokenization = Tokenization(loaded.tokenizer, max_length)
        show.message(describe_lengths(whole, tokenization, "those to score"))
    with usual_torch():
        table = score_levels(
            loaded.to(default_device()), split, level, max_length, passes, show.progress
        )
    if note := unscored_note(table):
        show.message(note)
    if place is not None:
        write_table(place, table)
    return pandas.DataFrame(table.columns)
