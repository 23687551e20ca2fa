"""The shared encoder: tensors, fingerprint, modes; which state of BART predicts which token."""

from dataclasses import replace

import pytest
import torch
from transformers import BartForConditionalGeneration

from auxlearn.data.batches import collate
from auxlearn.encoders.load import load_encoder
from tests.helpers import LINES, snapshot, tokenized


def batch_of(encoder):
    return collate(tokenized(encoder, LINES[:3]), torch.arange(3))


def test_tensors_are_restored(tiny_bert):
    before = snapshot(tiny_bert)
    logits = tiny_bert.classify(batch_of(tiny_bert))
    with torch.no_grad():
        for parameter in tiny_bert.parameters():
            parameter.add_(1.0)
    assert not torch.equal(tiny_bert.classify(batch_of(tiny_bert)), logits)
    tiny_bert.load_tensors(before)
    assert torch.equal(tiny_bert.classify(batch_of(tiny_bert)), logits)
    # Still one embedding: what is loaded into it reaches the output layer.
    output = tiny_bert.language_model.get_output_embeddings().weight
    assert output is tiny_bert.body.get_input_embeddings().weight


def test_tensors_of_another_encoder_are_refused(tiny_bert, loaded):
    other = loaded("roberta")
    with pytest.raises(ValueError, match="other tensors"):
        tiny_bert.load_tensors(snapshot(other))


def test_the_fingerprint_covers_what_token_predictions_depend_on(tiny_bert, encoder_folder, loaded):
    folder = str(encoder_folder("bert"))
    fingerprint = tiny_bert.language_model_fingerprint()
    # Another seed draws another classification head (and here a pooler), other data other labels.
    other = load_encoder(folder, ("a", "b"), seed=5)
    assert not torch.equal(other.body.pooler.dense.weight, tiny_bert.body.pooler.dense.weight)
    assert other.language_model_fingerprint() == fingerprint
    roberta = loaded("roberta")
    assert roberta.language_model_fingerprint() != fingerprint
    for part in (
        tiny_bert.body.embeddings.word_embeddings.weight,
        tiny_bert.body.encoder.layer[1].output.dense.bias,
        tiny_bert.language_model.cls.predictions.bias,
    ):
        with torch.no_grad():
            kept = part.detach().clone()
            part[0] += 1e-6
            assert tiny_bert.language_model_fingerprint() != fingerprint
            part.copy_(kept)
    assert tiny_bert.language_model_fingerprint() == fingerprint


def test_lists_and_mappings_of_the_configuration_are_in_the_fingerprint(loaded):
    """Which layers of ModernBERT see the whole text is a list, and no weight tells of it."""
    encoder = loaded("modernbert")
    fingerprint = encoder.language_model_fingerprint()
    kinds = list(encoder.config.layer_types)
    encoder.config.layer_types = ["sliding_attention"] * len(kinds)
    assert kinds != encoder.config.layer_types
    assert encoder.language_model_fingerprint() != fingerprint
    encoder.config.layer_types = kinds
    assert encoder.language_model_fingerprint() == fingerprint


def test_evaluating_switches_dropout_off_and_back_on(tiny_bert):
    tiny_bert.train()
    tiny_bert.classifier.dropout.eval()
    modes = [module.training for module in tiny_bert.modules()]
    with tiny_bert.evaluating():
        assert not any(module.training for module in tiny_bert.modules())
    assert [module.training for module in tiny_bert.modules()] == modes
    with pytest.raises(KeyError), tiny_bert.evaluating():
        raise KeyError
    assert [module.training for module in tiny_bert.modules()] == modes


BOS, PAD, EOS, MASK = 0, 1, 2, 4


@pytest.fixture
def bart(loaded):
    return loaded("bart")


@pytest.fixture
def native(encoder_folder):
    return BartForConditionalGeneration.from_pretrained(encoder_folder("bart")).eval()


def one_text(bart, length):
    """The first ``length`` tokens of a text, between <s> and </s>."""
    batch = collate(tokenized(bart, ["The parser of Smith is faster"]), torch.arange(1))
    ids = torch.cat([batch.input_ids[:, : length + 1], torch.tensor([[EOS]])], 1)
    return ids, replace(
        batch,
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        maskable=(ids > MASK),
        words=batch.words[:, : length + 2],
    )


def test_training_labels_have_the_same_index(bart, native):
    """BART's own loss compares the state at i with token i, so no shift is left to be made."""
    ids, batch = one_text(bart, 4)
    everywhere = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        loss = native(input_ids=ids, labels=ids).loss
        logits = bart.predict_tokens(batch, everywhere)
    ours = torch.nn.functional.cross_entropy(logits, ids[0])
    torch.testing.assert_close(ours, loss, atol=1e-5, rtol=1e-5)
