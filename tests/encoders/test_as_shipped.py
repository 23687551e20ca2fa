"""Encoders as their owners ship them: forms of weights, vocabularies, casing, the hub's cache."""

import json
from pathlib import Path

import pytest
import sentencepiece
import tokenizers
import torch
import transformers
from tokenizers import normalizers, pre_tokenizers

import auxlearn
from auxlearn.core.errors import EncoderError
from auxlearn.core.settings import ENCODERS, REDIRECTED
from auxlearn.encoders.load import load_encoder
from auxlearn.encoders.source import encoder_content
from auxlearn.encoders.tokenizer import load_tokenizer, loading_notes
from auxlearn.kinds.base import kind_of
from tests.encoders import replicas
from tests.encoders.replicas import REPOSITORIES, WEIGHTS, write
from tests.helpers import LABELS, Messages, one_line

#: Repositories whose casing is doubtful, those that are refused and why, and those without a head.
DOUBTFUL = {
    "allenai/scibert_scivocab_cased",
    "medicalai/ClinicalBERT",
    "dmis-lab/biobert-base-cased-v1.2",
}
REFUSED = {
    "dmis-lab/biobert-base-cased-v1.1": 'add a line with the architecture, such as "model_type"',
    "chandar-lab/NeoBERT": "comes with code of its own, which is never run",
}
WITHOUT_HEAD = {
    "dmis-lab/biobert-v1.1",
    "sentence-transformers/all-MiniLM-L6-v2",
    "google/electra-base-discriminator",
    "microsoft/deberta-v3-base",
    "nomic-ai/nomic-embed-text-v1.5",
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub; the suite runs with HF_HUB_OFFLINE."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.parametrize("repository", REPOSITORIES)
def test_a_repository_of_the_hub(repository, tmp_path, cache):
    files = REPOSITORIES[repository]()
    commit = replicas.write_cache(cache, repository, files)
    folder = write(tmp_path / "downloaded", files)
    if repository in REFUSED:
        for name in (repository, str(folder)):
            with one_line(EncoderError, REFUSED[repository]):
                load_encoder(name, LABELS)
        return
    encoder = load_encoder(repository, LABELS)
    pickled = "pytorch_model.bin" in files
    assert encoder_content(repository)["commit"] == commit
    assert encoder_content(repository).get("weights") == ("pytorch_model.bin" if pickled else None)
    assert encoder.new_language_model_head == (repository in WITHOUT_HEAD)
    said = " ".join(encoder.notes)
    assert ("read from pytorch_model.bin, by torch's restricted reader" in said) == pickled
    assert ("has capitals" in said) == (repository in DOUBTFUL)
    assert not Path("training_args_was_run").exists()
    assert not Path(replicas.OWN_CODE).exists()
    assert not hasattr(encoder.config, "auto_map")
    # The body is the one that transformers itself loads, where it loads it.
    native = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32)
    own = dict(encoder.body.named_parameters())
    compared = [name for name, _ in native.named_parameters() if name in own]
    assert len(compared) >= 14
    for name in compared:
        if "pooler" not in name:
            assert torch.equal(own[name], dict(native.named_parameters())[name]), name


@pytest.mark.parametrize("form", WEIGHTS)
def test_a_form_of_weights(form, tmp_path):
    config, tensors = replicas.bert_tensors(cased=False)
    files = {"config.json": replicas.as_json(config), "vocab.txt": replicas.vocab_txt(False)}
    encoder = load_encoder(str(write(tmp_path, {**files, **WEIGHTS[form](tensors)})), LABELS)
    loaded = encoder.classifier.state_dict() | encoder.language_model.state_dict()
    compared = 0
    for old, values in tensors.items():
        name = old.replace("LayerNorm.gamma", "LayerNorm.weight")
        name = name.replace("LayerNorm.beta", "LayerNorm.bias")
        if "seq_relationship" not in name:
            assert torch.equal(loaded[name], values), name
            compared += 1
    assert compared == 45
    read = [name for name in encoder_content(str(tmp_path)) if "model" in name]
    assert all(name.endswith((".safetensors", ".index.json")) for name in read) == (
        "safetensors" in form or "both" in form
    )


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_with_more_than_tensors_is_not_run(zipped, tmp_path):
    marker = tmp_path / "was_run"
    _, tensors = replicas.bert_tensors(cased=False)
    content = replicas.pickled({**tensors, "x": replicas.Opens(marker)}, zipped)
    files = {**replicas.old_bert(cased=False), "pytorch_model.bin": content}
    with one_line(EncoderError, "mkdir), which could run code", "not read") as caught:
        load_encoder(str(write(tmp_path / "encoder", files)), LABELS)
    assert "weights_only" not in str(caught.value)
    assert not marker.exists()
    torch.load(tmp_path / "encoder" / "pytorch_model.bin", weights_only=False)
    assert marker.exists()  # else nothing would be proved


BAD = {
    "a pointer of git-lfs": (
        {"pytorch_model.bin": replicas.LFS_POINTER},
        "is a pointer of git-lfs and not the file itself: run `git lfs pull`",
    ),
    "cut": (
        {"pytorch_model.bin": replicas.old_bert(False)["pytorch_model.bin"][:50_000]},
        "pytorch_model.bin is damaged",
    ),
    "no pickle": ({"pytorch_model.bin": b"hello"}, "it is no file of torch.save"),
    "one tensor": ({"pytorch_model.bin": replicas.pickled(torch.ones(2))}, "is not a state_dict"),
    "a checkpoint of a trainer": (
        {"pytorch_model.bin": replicas.pickled({"state_dict": {}, "epoch": 3})},
        "is no tensor: save the state_dict",
    ),
    "`is_decoder` in `config.json`": (
        {"config.json": replicas.as_json({**replicas.BERT_CONFIG, "is_decoder": True})},
        "says is_decoder, so that no token would see those after it",
    ),
    "a tokenizer class that is unknown, without the names of special tokens": (
        {
            "vocab.txt": b"",
            "tokenizer.json": replicas.saved("bert")["tokenizer.json"],
            "tokenizer_config.json": b'{"tokenizer_class": "BertWordPieceTokenizer"}',
        },
        "names the class BertWordPieceTokenizer, which transformers does not have",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_defect_is_one_line_with_its_cure(name, tmp_path):
    changes, message = BAD[name]
    folder = write(tmp_path, {**replicas.old_bert(cased=False), **changes})
    with one_line(EncoderError, message):
        load_encoder(str(folder), LABELS)


@pytest.mark.parametrize("vocabulary", ["spm.model", "spiece.model", "sentencepiece.bpe.model"])
def test_a_vocabulary_of_sentencepiece_alone(vocabulary, tmp_path, monkeypatch):
    folder = write(tmp_path, replicas.deberta_v3(vocabulary))
    if vocabulary == "spm.model":  # the name that this architecture has for it
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(folder / vocabulary))
        text = "The results of the corpus"
        assert load_tokenizer(str(folder)).tokenize(text) == theirs.encode(text, out_type=str)
    monkeypatch.setattr("auxlearn.encoders.tokenizer.find_spec", lambda name: None)
    with one_line(EncoderError, vocabulary, "pip install 'auxlearn[sentencepiece]'"):
        load_tokenizer(str(folder))


TEXT = "The Parser is [MASK]"


@pytest.mark.parametrize(
    ("repository", "asked", "cased"),
    [
        ("emilyalsentzer/Bio_ClinicalBERT", None, True),
        ("emilyalsentzer/Bio_ClinicalBERT", True, False),
        ("medicalai/ClinicalBERT", None, False),
        ("medicalai/ClinicalBERT", False, True),
        ("dmis-lab/biobert-v1.1", None, True),
        ("dmis-lab/biobert-base-cased-v1.2", False, True),
        ("google-bert/bert-base-uncased", None, False),
    ],
)
def test_casing(repository, asked, cased, tmp_path, cache):
    """As the files say, or as is known of a card; settable; kept by the export."""
    replicas.write_cache(cache, repository, REPOSITORIES[repository]())
    encoder = load_encoder(repository, LABELS, do_lower_case=asked)
    tokens = encoder.tokenizer.tokenize(TEXT)
    assert tokens[0] == ("The" if cased else "the")
    encoder.save(tmp_path / "model", max_length=32)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert exported.tokenize(TEXT) == tokens
    names = [name for name, card in ENCODERS.items() if card.source == repository]
    for name in names:
        assert load_tokenizer(name, asked).tokenize(TEXT) == tokens


def test_a_casing_that_is_fixed_is_an_error(encoder_folder):
    with one_line(EncoderError, "do_lower_case", "leave the option out"):
        load_tokenizer(str(encoder_folder("roberta")), do_lower_case=True)


BERT, BYTES = pre_tokenizers.BertPreTokenizer(), pre_tokenizers.ByteLevel(add_prefix_space=False)
CASED = normalizers.BertNormalizer(lowercase=False)
ACCENTS = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
JOINED = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("-", " ")])


@pytest.mark.parametrize(
    ("family", "normalizer", "pre_tokenizer", "settings"),
    [
        ("bert", CASED, BERT, None),
        ("bert", CASED, BERT, {"tokenizer_class": "BertTokenizer"}),
        ("distilbert", CASED, BERT, {"model_max_length": 64}),
        ("electra", CASED, BERT, {"model_max_length": 64}),
        ("bert", ACCENTS, BERT, {"do_lower_case": True}),
        ("bert", JOINED, BERT, None),
        ("bert", None, pre_tokenizers.WhitespaceSplit(), None),
        ("mpnet", CASED, BERT, None),
        ("roberta", normalizers.Lowercase(), BYTES, None),
        ("roberta", None, pre_tokenizers.ByteLevel(add_prefix_space=True), None),
        ("bart", None, pre_tokenizers.ByteLevel(add_prefix_space=True), None),
    ],
)
def test_texts_are_read_as_tokenizer_json_says(
    family, normalizer, pre_tokenizer, settings, tmp_path
):
    """Token by token as the tokenizers library itself reads them, and so by what is exported."""
    files = replicas.saved(family)
    shipped = tokenizers.Tokenizer.from_str(files.pop("tokenizer.json").decode())
    shipped.normalizer, shipped.pre_tokenizer = normalizer, pre_tokenizer
    shipped.add_tokens(["Et-Al"])
    config = json.loads(files["config.json"]) | {"vocab_size": shipped.get_vocab_size()}
    del files["tokenizer_config.json"], files["model.safetensors"]
    model = transformers.AutoModelForMaskedLM.from_config(
        transformers.AutoConfig.for_model(**config)
    )
    model.save_pretrained(tmp_path / "encoder")
    write(tmp_path / "encoder", {"tokenizer.json": shipped.to_str().encode()})
    if settings is not None:
        write(tmp_path / "encoder", {"tokenizer_config.json": replicas.as_json(settings)})
    encoder = load_encoder(str(tmp_path / "encoder"), LABELS)
    encoder.save(tmp_path / "model", max_length=32)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    again = load_tokenizer(str(tmp_path / "model"))
    shipped.encode_special_tokens = True
    texts = [
        "The Parser of Smith",
        " caf\u00e9 \ufb01rst  Caf\u00c9",
        "a word-based Et-Al x",
        "[MASK]",
    ]
    for text in texts:
        for loaded in (encoder.tokenizer, exported, again):
            assert loaded(text)["input_ids"] == shipped.encode(text).ids, text
    single, pair = shipped.encode(texts[0]), shipped.encode(texts[0], texts[1])
    assert encoder.tokenizer(texts[0], return_offsets_mapping=True)["offset_mapping"] == (
        single.offsets
    )
    assert encoder.tokenizer(texts[0], texts[1])["input_ids"] == pair.ids
    assert not [note for note in encoder.notes if "lower-cased" in note]


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_an_option_goes_before_tokenizer_json(family, tmp_path):
    files = replicas.saved(family)
    shipped = tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode())
    shipped.normalizer = ACCENTS
    files["tokenizer.json"] = shipped.to_str().encode()
    files["tokenizer_config.json"] = b"{}"
    folder = str(write(tmp_path / "encoder", files))
    text = "The Caf\u00e9"
    for asked in (None, True, False):
        normalizer = load_tokenizer(folder, asked).backend_tokenizer.normalizer
        assert normalizer.normalize_str(text) == (text if asked is False else text.lower())
    write(tmp_path / "encoder", {"tokenizer_config.json": b'{"do_lower_case": false}'})
    encoder = load_encoder(folder, LABELS)
    assert encoder.tokenizer.backend_tokenizer.normalizer.normalize_str(text) == text
    for asked, notes in (
        (None, encoder.notes),
        (False, loading_notes(folder, encoder.tokenizer, False)),
    ):
        contrary = [note for note in notes if "texts are not lower-cased" in note]
        assert bool(contrary) == (asked is None)


@pytest.mark.parametrize(
    ("family", "tokenizer_class"),
    [("bert", "PreTrainedTokenizerFast"), ("bert", "BertTokenizer"), ("albert", "AlbertTokenizer")],
)
def test_the_segments_of_a_pair_are_told_apart(family, tokenizer_class, tmp_path):
    files = replicas.saved(family)
    settings = json.loads(files["tokenizer_config.json"]) | {"tokenizer_class": tokenizer_class}
    settings.pop("model_input_names", None)
    files["tokenizer_config.json"] = replicas.as_json(settings)
    encoder = load_encoder(str(write(tmp_path / "encoder", files)), LABELS)
    encoder.save(tmp_path / "model", max_length=32)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    for loaded in (encoder.tokenizer, exported):
        first, second = (loaded.tokenize(text) for text in ("the tagger", "the corpus"))
        types = loaded("the tagger", "the corpus")["token_type_ids"]
        assert types == [0] * (len(first) + 2) + [1] * (len(second) + 1)


@pytest.mark.parametrize("cached", ["bert-base-uncased", REDIRECTED["bert-base-uncased"]])
def test_a_name_that_the_hub_redirects(cached, cache):
    replicas.write_cache(cache, cached, replicas.saved("bert"))
    assert load_encoder("bert-base-uncased", LABELS).config.model_type == "bert"


def test_a_pooler_that_is_new_is_said(tmp_path):
    for pooler in (True, False):
        config, tensors = replicas.bert_tensors(False, pooler)
        files = {"config.json": replicas.as_json(config), "vocab.txt": replicas.vocab_txt(False)}
        folder = write(tmp_path / str(pooler), {**files, **WEIGHTS["model.safetensors"](tensors)})
        notes = load_encoder(str(folder), LABELS).notes
        assert ["pooler" in note for note in notes] == [True] * (not pooler)


def test_special_tokens_of_a_user_stay_whole(tmp_path, encoder_folder):
    """In training, in prediction and in what is exported; those of the model do not."""
    folder = encoder_folder("bert")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    tokenizer.add_special_tokens({"extra_special_tokens": ["[E1]"]})
    tokenizer.add_tokens(["[E2]"], special_tokens=True)
    model.resize_token_embeddings(len(tokenizer))
    for part in (tokenizer, model):
        part.save_pretrained(tmp_path / "encoder")
    encoder = load_encoder(str(tmp_path / "encoder"), LABELS)
    encoder.save(tmp_path / "model", max_length=32)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    again = load_tokenizer(str(tmp_path / "model"))
    for loaded in (encoder.tokenizer, exported, again):
        tokens = loaded.tokenize("the [E1] tagger [E2] is [SEP] [MASK]")
        assert tokens[:5] == ["the", "[E1]", "tagger", "[E2]", "is"]
        assert "[SEP]" not in tokens
        assert "[MASK]" not in tokens
        assert loaded("the [E1]")["input_ids"] == tokenizer("the [E1]")["input_ids"]
    assert "[E1]" in exported.all_special_tokens
    texts = ["the [E1] tagger", "the tagger"]
    said = Messages()
    scores = auxlearn.score(str(tmp_path / "encoder"), texts, level="text", reporter=said)
    assert scores["unscored"].tolist() == [1, 0]
    assert any("does not know, and special ones, are not scored" in line for line in said.lines)


def test_what_a_tokenizer_says_of_itself_that_does_not_fit(tmp_path):
    """Sides are those that training assumes, segments those that the model has."""
    files = replicas.saved("roberta")
    settings = json.loads(files["tokenizer_config.json"])
    settings |= {"padding_side": "left", "truncation_side": "left", "tokenizer_class": None}
    settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    config = {**json.loads(files["config.json"]), "pad_token_id": 3}
    folder = write(
        tmp_path / "encoder",
        {
            **files,
            "tokenizer_config.json": replicas.as_json(settings),
            "config.json": replicas.as_json(config),
        },
    )
    encoder = load_encoder(str(folder), LABELS)
    assert encoder.tokenizer.padding_side == encoder.tokenizer.truncation_side == "right"
    assert "token_type_ids" not in encoder.tokenizer.model_input_names
    assert any("padding is token 1" in note and "token 3" in note for note in encoder.notes)
    encoder.save(tmp_path / "model", max_length=32)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert exported.padding_side == "right"
    assert "token_type_ids" not in exported("a", "b")


def test_a_tokenizer_without_special_tokens_is_named(tmp_path):
    files = replicas.saved("bert")
    tokenizer = json.loads(files["tokenizer.json"])
    tokenizer["post_processor"] = None
    settings = json.loads(files["tokenizer_config.json"])
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    files |= {"tokenizer.json": replicas.as_json(tokenizer)}
    files |= {"tokenizer_config.json": replicas.as_json(settings)}
    folder = str(write(tmp_path, files))
    notes = load_encoder(folder, LABELS).notes
    assert any("puts no special tokens around a text" in note for note in notes)
    with one_line(EncoderError, "stands for the root"):
        load_encoder(folder, LABELS, kind=kind_of("dependency"))


@pytest.mark.parametrize(
    ("name", "settings", "note"),
    [
        ("adapter_config.json", {"peft_type": "LORA"}, "merge it into the weights"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "contradict each other"),
        ("sentence_bert_config.json", {"do_lower_case": False}, None),
    ],
)
def test_a_file_beside_the_encoder_that_is_not_read_is_said(name, settings, note, tmp_path):
    files = {**replicas.body_only(True, "model.safetensors"), name: replicas.as_json(settings)}
    folder = str(write(tmp_path, files))
    warnings = [line for line in load_encoder(folder, LABELS).notes if line.startswith("warning")]
    assert len(warnings) == bool(note)
    assert all(note in line for line in warnings)
    assert not any(
        "lower-cased" in line for line in loading_notes(folder, load_tokenizer(folder), False)
    )


def tables() -> dict[str, list[tuple[str, str]]]:
    """The tables of the page about encoders, by what the tests above prove."""
    forms = [(form, "read") for form in WEIGHTS]
    forms[-1] = (forms[-1][0], "`model.safetensors` is read")
    forms += [
        ("`pytorch_model.bin` with more than tensors", "refused, and nothing in it is run"),
        *(
            (
                name if "`" in name or "tokenizer" in name else f"`{next(iter(changes))}`: {name}",
                "refused",
            )
            for name, (changes, _) in BAD.items()
        ),
        ("TensorFlow, Flax or ONNX alone", "refused"),
    ]
    repositories = []
    for repository, files in REPOSITORIES.items():
        notes = ["weights from `pytorch_model.bin`"] * ("pytorch_model.bin" in files())
        notes += ["no head of a masked language model"] * (repository in WITHOUT_HEAD)
        notes += ["warns: lower-cased, though its vocabulary is cased"] * (repository in DOUBTFUL)
        found = "; ".join(["works", *notes])
        if repository in REFUSED:
            found = f"refused: {REFUSED[repository].replace('|', '')}"
        repositories.append((f"`{repository}`", found))
    return {
        "forms of weights": [("files", "what comes of it"), ("---", "---"), *forms],
        "repositories": [("repository", "what comes of it"), ("---", "---"), *repositories],
    }


PAGE = Path(__file__).parents[2] / "docs" / "guides" / "encoders.md"


def page_with_tables(text: str) -> str:
    for name, rows in tables().items():
        begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
        head, _, rest = text.partition(begin)
        lines = "".join(f"| {first} | {second} |\n" for first, second in rows)
        text = f"{head}{begin}\n{lines}\n{end}{rest.partition(end)[2]}"
    return text


def test_the_page_says_what_is_proved_here():
    text = PAGE.read_text(encoding="utf-8")
    assert page_with_tables(text) == text, "run python -m tests.encoders.test_as_shipped"


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
