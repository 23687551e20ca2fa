"""Statistics of perturbed texts: records written by hand, and predictions of a tiny encoder."""

import json
from dataclasses import asdict, replace

import pytest
import torch

from auxlearn.core.processes import Processes
from auxlearn.mask_analysis.perturbations import (
    example_statistics,
    predict_replacements,
    token_statistics,
    token_table,
)
from auxlearn.results.perturbation_log import (
    FILE,
    PerturbationLog,
    PerturbationRecord,
    read_perturbations,
)
from tests import helpers
from tests.helpers import collated, tokenized


def record(tokenizer, text, changes, epoch=1, example=0):
    """A text of whole words; ``changes`` is {position: new word}."""
    ids = tokenizer(text)["input_ids"]
    words = [-1, *range(len(ids) - 2), -1]
    predicted = [tokenizer.convert_tokens_to_ids(word) for word in changes.values()]
    read = {"input_ids": ids, "words": words, "token_type_ids": [0] * len(ids)}
    replaced = {"positions": list(changes), "predicted": predicted}
    return PerturbationRecord(epoch, epoch, "mask_tuning", example, 0, **read, **replaced)


@pytest.fixture
def tokenizer():
    return helpers.wordpiece()


@pytest.fixture
def records(tokenizer):
    text = "the parser is faster than the tagger"
    return [
        record(tokenizer, text, {2: "parser", 4: "better"}),
        record(tokenizer, text, {2: "[UNK]"}, example=1),
        record(tokenizer, text, {7: "corpus"}, epoch=2),
        record(tokenizer, text, {3: "is"}, epoch=2, example=1),
    ]


def of_tokens(records, tokenizer, tagger=None):
    return token_statistics(records, token_table(records, tokenizer, tagger))


def of_examples(records, tokenizer, tagger=None):
    return example_statistics(records, token_table(records, tokenizer, tagger), bool(tagger))


def test_shares_of_same_other_and_unknown_tokens(records, tokenizer):
    assert of_tokens(records, tokenizer) == {
        "texts": 4, "masked": 5, "same": 2 / 5, "other": 2 / 5, "unknown": 1 / 5,
        "changed_texts": 3 / 4, "pos_agreement": None,
    }  # fmt: skip
    second = of_tokens(records[2:], tokenizer)
    assert (second["same"], second["other"], second["unknown"]) == (0.5, 0.5, 0.0)


def test_parts_of_speech_are_compared_where_a_word_changed(records, tokenizer):
    kinds = {"faster": "ADJ", "better": "ADJ", "parser": "NOUN", "tagger": "NOUN", "corpus": "NOUN"}
    asked = []

    def tag(words):
        asked.append(words)
        return [kinds.get(word, "X") for word in words]

    # faster -> better and tagger -> corpus agree, parser -> [UNK] does not.
    assert of_tokens(records, tokenizer, tag)["pos_agreement"] == pytest.approx(2 / 3)
    assert asked[0] == ["the", "parser", "is", "faster", "than", "the", "tagger"]
    assert asked[1] == ["the", "parser", "is", "better", "than", "the", "tagger"]
    assert len(asked) == 6, "texts without a change need no tags"


def test_examples_are_counted_over_all_epochs(records, tokenizer):
    # Example 0 changed in both epochs; example 1 became unknown once and stayed the same once.
    plain = of_examples(records, tokenizer)
    expected = {"examples": 2, "same": 0.0, "plausible": None, "other": 0.5, "unknown": 0.5}
    assert plain == expected
    kinds = {"faster": "JJR", "better": "JJR", "tagger": "NN", "corpus": "NNS"}
    tagged = of_examples(records, tokenizer, lambda words: [kinds.get(w, "X") for w in words])
    assert tagged == expected | {"plausible": 0.5, "other": 0.0}
    never = of_examples(records, tokenizer, lambda words: [f"{word}#" for word in words])
    assert never == expected | {"plausible": 0.0}
    assert of_examples(records[3:], tokenizer)["same"] == 1.0


def test_substitutions_are_those_of_table_two(records, tokenizer):
    table = token_table(records[:2], tokenizer)
    assert table[["masked", "substituted"]].to_numpy().tolist() == [
        ["parser", "parser"], ["faster", "better"], ["parser", "[UNK]"],
    ]  # fmt: skip


def test_plain_predictions_are_those_of_the_native_model(tiny_bert):
    texts = tokenized(tiny_bert, helpers.LINES[:5], pairs=helpers.LINES[5:10])
    batch = collated(texts)
    records = []
    for row in range(5):
        length = int(texts.lengths[row])
        records.append(
            PerturbationRecord(
                1, 1, "mask_tuning", row, None,
                batch.input_ids[row, :length].tolist(),
                batch.words[row, :length].tolist(),
                batch.token_type_ids[row, :length].tolist(),
                [2, 4 + row], [7, 7],
            )
        )  # fmt: skip
    found = predict_replacements(tiny_bert, records)
    for before, after in zip(records, found, strict=True):
        assert replace(after, predicted=before.predicted) == before
        ids = torch.tensor([before.input_ids])
        ids[0, before.positions] = tiny_bert.tokenizer.mask_token_id
        with torch.no_grad():
            logits = tiny_bert.language_model(
                input_ids=ids, token_type_ids=torch.tensor([before.token_type_ids])
            ).logits[0]
        logits[:, [0, 2, 3, 4]] = -torch.inf
        assert after.predicted == logits[before.positions].argmax(-1).tolist()


def test_the_sample_is_fixed_and_an_example_counts_once_a_step(tmp_path):
    texts = helpers.ragged([5, 6, 7, 8])
    batch = collated(texts)
    replaced = torch.zeros_like(batch.maskable)
    replaced[:, 2] = True
    log = PerturbationLog(tmp_path, examples=4, sample=2)
    after = replace(batch, input_ids=batch.input_ids + 1)
    for _ in range(2):
        log.add(1, 1, "mask_tuning", batch, after, replaced)
    log.flush(Processes())
    found = read_perturbations(tmp_path)
    assert len(found) == 2
    for one in found:
        start = int(texts.offsets[one.example])
        assert one.input_ids == texts.input_ids[start : start + 5 + one.example].tolist()
        assert (one.positions, one.predicted) == ([2], [one.input_ids[2] + 1])
    again = PerturbationLog(tmp_path, examples=4, sample=2)
    assert torch.equal(again._sampled, log._sampled)
    again.truncate(0)
    assert (tmp_path / FILE).read_text() == ""


def test_words_of_the_end_of_a_long_text_fit_together(records, tmp_path):
    """Of a window of head and tail, numbers of words are higher than those of tokens."""
    one = asdict(records[0])
    one["words"] = [word if word < 3 else word + 500 for word in one["words"]]
    (tmp_path / FILE).write_text(json.dumps(one) + "\n")
    assert read_perturbations(tmp_path) == [PerturbationRecord(**one)]
