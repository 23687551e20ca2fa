"""The shipped encoder: size, files, tokenizer, predictions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
)

import auxlearn

FOLDER = Path(auxlearn.__file__).parent / "encoders" / "tiny"

# Written for this test, in the style of documentation; nothing of it was pretrained on.
SENTENCES = [
    "Return the number of items in the list.",
    "If the file does not exist, an error is raised.",
    "This method returns a copy of the original string.",
    "The default value is None, which means that no limit is set.",
    "Raised when the connection to the server is closed.",
    "Whether or not to return the attention weights of all layers.",
    "The name of the file to read from.",
    "Compute the shortest path between two nodes of the graph.",
    "A list of strings with the names of the columns.",
    "Set the color of the line to the given value.",
    "The size of the window in pixels.",
    "Convert the input to a list of integers.",
    "This function is deprecated and will be removed in a future version.",
    "The hidden states of the model at the output of the last layer.",
    "Check whether the given object is an instance of this class.",
    "If True, the output is sorted in the same order as the input.",
    "Write the data to a file and close it afterwards.",
    "The maximum length of the sequence that this model can be used with.",
    "Returns True if the two expressions are equal, False otherwise.",
    "Create a new figure and add it to the current window.",
    "Path to the directory in which the results should be stored.",
    "The matrix must be square and have the same number of rows as columns.",
]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def model() -> BertForMaskedLM:
    return AutoModelForMaskedLM.from_pretrained(FOLDER, dtype=torch.float32).eval()


def test_size(model: BertForMaskedLM) -> None:
    weights = FOLDER / "model.safetensors"
    assert weights.stat().st_size <= 4_000_000
    assert 1_000_000 < sum(p.numel() for p in model.parameters()) <= 1_500_000
    classifier = AutoModelForSequenceClassification.from_pretrained(FOLDER)
    assert sum(p.numel() for p in classifier.parameters()) <= 1_500_000
    with safe_open(weights, framework="pt") as stored:
        assert {str(stored.get_tensor(name).dtype) for name in stored.keys()} == {"torch.float16"}  # noqa: SIM118 - not a dict


def test_tokenizer(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.is_fast
    assert tokenizer.model_max_length == 256
    names = ("unk", "sep", "pad", "cls", "mask")
    special = [getattr(tokenizer, f"{name}_token_id") for name in names]
    assert tokenizer.convert_tokens_to_ids(tokenizer.all_special_tokens) == special
    pair = tokenizer("The input", "An output.")
    assert pair.tokens() == ["[CLS]", "the", "input", "[SEP]", "an", "output", ".", "[SEP]"]
    assert pair["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert pair.word_ids() == [None, 0, 1, None, 0, 1, 2, None]


@torch.no_grad()
def test_predictions_beat_token_frequency(
    model: BertForMaskedLM, tokenizer: PreTrainedTokenizerFast
) -> None:
    """Every token once behind a mask, against the best any fixed distribution could do.

    The baseline is the token frequencies of these very sentences, which no model trained on other
    text can know: harder to beat than the frequencies of the training text.
    """
    right, loss, truth = 0, 0.0, []
    for sentence in SENTENCES:
        ids = torch.tensor(tokenizer(sentence)["input_ids"])
        positions = torch.arange(1, len(ids) - 1)
        rows = ids.repeat(len(positions), 1)
        rows[torch.arange(len(positions)), positions] = tokenizer.mask_token_id
        logits = model(input_ids=rows).logits[torch.arange(len(positions)), positions]
        answers = ids[positions]
        loss += torch.nn.functional.cross_entropy(logits, answers, reduction="sum").item()
        right += int((logits.argmax(-1) == answers).sum())
        truth.extend(answers.tolist())
    counts = torch.bincount(torch.tensor(truth)).double()
    frequency = counts[counts > 0] / counts.sum()
    entropy = -float((frequency * frequency.log()).sum())
    assert len(truth) > 200
    accuracy, most_frequent = right / len(truth), float(frequency.max())
    assert accuracy > 3 * most_frequent
    assert loss / len(truth) < entropy
