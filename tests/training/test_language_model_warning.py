"""Before training, a run warns of a language-model head that knows token frequencies at most."""

import re
import shutil

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from auxlearn import train
from auxlearn.encoders.tokenizer import load_tokenizer
from tests import helpers

NUMBERS = re.compile(r"on ([\d,]+) masked tokens of dev is ([\d.]+) nats, .* in train ([\d.]+);")


class Messages(helpers.Messages):
    @property
    def warnings(self):
        return [line for line in self.lines if "masked-language-model head" in line]


def frequencies(dataset, tokenizer):
    """Log frequencies of the tokens of the training texts, one added to each count."""
    counts = torch.ones(len(tokenizer), dtype=torch.float64)
    for row in helpers.read_lines(dataset / "train.jsonl"):
        for token in tokenizer(row["text"])["input_ids"]:
            if token not in tokenizer.all_special_ids:
                counts[token] += 1
    return (counts / counts.sum()).log()


@pytest.fixture
def useless(dataset, tmp_path):
    """An encoder with a random head whose bias has the log frequencies of the training texts."""
    model, tokenizer = helpers.build("bert", spread=0.02)
    folder = helpers.write(tmp_path / "useless", model, tokenizer)
    with torch.no_grad():
        model.cls.predictions.bias.copy_(frequencies(dataset, load_tokenizer(str(folder))))
    return helpers.write(folder, model, tokenizer)


def begin(config, monkeypatch):
    said = Messages()
    with monkeypatch.context() as patch:
        helpers.stop_before_step(patch, 0)
        with pytest.raises(SystemExit):
            train(config, said)
    shutil.rmtree(config.output)
    return said.warnings


@pytest.mark.parametrize("task", ["l3mask", "mask_tuning"])
def test_a_head_that_knows_token_frequencies_alone_is_noticed(config, useless, monkeypatch, task):
    (line,) = begin(config(encoder=str(useless), aux=[task]), monkeypatch)
    assert line.startswith(
        f"warning: the masked-language-model head of {useless} knows no more than how frequent "
        "tokens are: its cross-entropy on "
    )
    assert line.endswith(
        "choose an encoder with a trained head, or train this one by `auxlearn pretrain` first"
    )
    count, head, tokens = (float(number) for number in NUMBERS.search(line).groups())
    assert count > 10
    assert 2 < tokens < 5.5
    assert head == pytest.approx(tokens, abs=0.1)  # it has these very frequencies


def test_nothing_is_said_where_neither_a_task_nor_perturbed_text_uses_the_head(
    config, useless, monkeypatch
):
    for aux in ([], ["simcse"]):
        assert not begin(config(encoder=str(useless), aux=aux), monkeypatch)
    settings = {"aux": [], "weights": "fixed", "perturbed_text": "add"}
    assert begin(config(encoder=str(useless), **settings), monkeypatch)


def test_a_newly_initialised_head_is_called_so(config, encoder_folder, tmp_path, monkeypatch):
    bert = encoder_folder("bert")
    loaded = AutoModel.from_pretrained(bert), AutoTokenizer.from_pretrained(bert)
    folder = helpers.write(tmp_path / "headless", *loaded)
    (line,) = begin(config(encoder=str(folder), aux=["random_mlm"], random_head=True), monkeypatch)
    assert line.startswith(
        f"warning: the newly initialised masked-language-model head of {folder} knows no more than"
    )
    (line,) = begin(config(encoder=str(bert), aux=["random_mlm"], random_head=True), monkeypatch)
    assert line.startswith("warning: the masked-language-model head")

    results = train(config(encoder=str(folder), aux=["random_mlm"], random_head=True, epochs=1))
    assert (results.folder / "heads" / "language_model.safetensors").is_file()  # as it is trained
