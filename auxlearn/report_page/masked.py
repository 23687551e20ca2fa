"""Training texts with how often each token is masked, as ``auxlearn masks`` has found it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from auxlearn.errors import RunError, first_fault
from auxlearn.files import read_json
from auxlearn.report_page.texts import MarkedText, MarkedTexts, Piece, cut
from auxlearn.results.shown_text import ShownText

if TYPE_CHECKING:
    from auxlearn.report_page.collect import Run

#: File in a run folder that ``auxlearn masks RUN --output RUN/masks`` writes.
FILE = "masks/masks.json"
#: Least probability of each level but the lowest, relative to random masking.
LEVELS = (0.25, 0.75, 1.25, 1.75)


def masked_texts(run: Run, limit: int) -> MarkedTexts | None:
    """Return some training texts with the mask probabilities of their tokens.

    Args:
        run: The run.
        limit: Texts at most, counted once for each task.

    Returns:
        The texts; ``None`` if its masks have not been inspected.

    Raises:
        RunError: The file is damaged.
    """
    path = run.path / FILE
    try:
        shown = TypeAdapter(list[ShownText]).validate_python(read_json(path)["texts"])
        lines = [(one, task) for one in shown for task in one.rates]
        texts = [MarkedText(*_text(one, task)) for one, task in lines[:limit]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} is damaged ({first_fault(error)}): delete it, or run "
            f"`auxlearn masks {run.path} --output {path.parent}` again"
        ) from None
    return MarkedTexts(
        "Masked tokens",
        "Tokens of training texts by the probability of being masked, relative to random masking "
        "at the same mean in the text: blue up to three quarters, red from five quarters, stronger "
        "and underlined beyond.",
        texts,
    )


def _text(text: ShownText, task: str) -> tuple[str, list[Piece]]:
    pieces = []
    for token, times in zip(text.tokens, text.times(task), strict=True):
        level = sum(times >= bound for bound in LEVELS)
        pieces += [Piece(cut(token), "rated", level=level), Piece(" ", "plain")]
    return f"example {text.example + 1}, {task}", pieces
