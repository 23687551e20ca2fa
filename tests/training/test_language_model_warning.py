"""Before training, a run warns of a language-model head that knows token frequencies at most."""

import re
import shutil

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from auxlearn import train
from auxlearn.encoders.tokenizer import load_tokenizer
from auxlearn.training import run as run_module
from auxlearn.training.setup import HEAD_MARGIN
from tests import helpers
from tests.encoders.test_tiny import SENTENCES

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


@pytest.mark.parametrize("task", ["random_mlm", "l3mask", "mask_tuning"])
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


def test_the_built_in_encoder_knows_more_than_frequencies(config, tmp_path, monkeypatch):
    rows = [{"text": text, "label": "ab"[n % 2]} for n, text in enumerate(SENTENCES)]
    data = helpers.write_splits(tmp_path / "data", train=rows, dev=rows, test=rows)
    settings = {"dataset": str(data), "encoder": "tiny", "aux": ["random_mlm"]}
    assert HEAD_MARGIN < 1
    for margin, warned in ((1.0, False), (10.0, True)):
        monkeypatch.setattr("auxlearn.training.setup.HEAD_MARGIN", margin)
        assert bool(begin(config(**settings), monkeypatch)) == warned


def test_a_resumed_run_does_not_ask_again_and_nothing_depends_on_the_question(
    config, useless, monkeypatch, tmp_path
):
    settings = {"encoder": str(useless), "aux": ["mask_tuning"]}
    said = Messages()
    run, killed = tmp_path / "run", tmp_path / "killed"
    with monkeypatch.context() as patch:
        helpers.copy_before_step(patch, 5, killed)  # a checkpoint is made after four
        whole = train(config(**settings), said)
    assert len(said.warnings) == 1
    run.rename(tmp_path / "whole")
    killed.rename(run)
    again = Messages()
    assert train(config(**settings), again).reproducible() == whole.reproducible()
    assert not again.warnings

    run.rename(tmp_path / "resumed")
    monkeypatch.setattr(run_module, "describe_language_model", lambda *given: "")
    assert train(config(**settings)).reproducible() == whole.reproducible()
    helpers.assert_same_files(run, tmp_path / "whole")
