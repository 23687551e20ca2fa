"""Masks of every strategy in training loops of other libraries."""

import copy
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from auxlearn.core.cache import TensorCache, content_key
from auxlearn.core.errors import UserError
from auxlearn.core.registry import TASKS, load_plugin
from auxlearn.data.batches import collate
from auxlearn.data.dataset import Split
from auxlearn.data.tokens import Tokenization
from auxlearn.objectives.context import ObjectiveContext
from auxlearn.tasks.base import MaskedLanguageModelling
from auxlearn.tasks.collator import MaskingCollator
from tests.helpers import LINES, generator, one_line
from tests.test_conformance import TASK_OPTIONS

LABELS = ("a", "b")
PAIRS = tuple(reversed(LINES))

#: Every strategy that a collator can have, with options.
STRATEGIES = {
    name: options
    for name, options in TASK_OPTIONS.items()
    if issubclass(TASKS.get(name), MaskedLanguageModelling) and name != "typhoon"
} | {
    "mixture": {"strategies": ["span", {"l3mask": {"unit": "word"}}, "pmi", "informask"]},
    "l3mask": {"score": "surprisal", "probability": 0.3},
    "pmi": {"min_count": 3},
    "random_mlm": {"corruption": "random"},
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("AUXLEARN_CACHE", str(folder))
        patch.chdir(folder)
        Path("TEXTS").write_text("\n".join(LINES[10:]))  # the background of difference
        yield


@pytest.fixture(scope="module")
def original(trained_folder):
    """A masked language model and its tokenizer, as a user of transformers loads them."""
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    folder = trained_folder("bert")
    return AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.fixture
def loaded(original):
    """A copy of them."""
    return copy.deepcopy(original)


@pytest.fixture
def collator_of(loaded):
    model, tokenizer = loaded

    def make(strategy="random_mlm", texts=LINES, labels=None, text_pairs=None, **options):
        if labels is None and texts:
            labels = [LABELS[number % 2] for number in range(len(texts))]
        collator = MaskingCollator(tokenizer, strategy, **{"max_length": 64} | options)
        return collator.prepare(texts, model, labels=labels, text_pairs=text_pairs)

    return make


def features(tokenizer, texts=LINES, **settings):
    return [tokenizer(text, truncation=True, max_length=64, **settings) for text in texts]


@pytest.mark.parametrize("name", STRATEGIES)
def test_masks_are_those_of_the_task_also_loaded_again_and_the_loss_is_that_of_transformers(
    name, collator_of, loaded, trained_bert, tmp_path, monkeypatch
):
    model, tokenizer = loaded
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.get_rng_state()
    collator = collator_of(name, seed=3, **STRATEGIES[name])
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training is False
    after = model.state_dict()
    assert weights.keys() == after.keys()
    assert all(torch.equal(after[key], value) for key, value in weights.items())

    cls = TASKS.get(name)
    task = cls(cls.Options(**STRATEGIES[name]))
    codes = tuple(number % 2 for number in range(len(LINES)))
    split = Split("texts", LINES, codes, LABELS)
    store = TensorCache(tmp_path)
    texts = Tokenization(trained_bert.tokenizer, 64).tokenize_split(split, store)
    shared = {"max_length": 64, "cache": store, "seed": 3}
    task.prepare(ObjectiveContext(name, trained_bert, split, texts, **shared))
    rows = torch.tensor([5, 0, 7, 3])
    batch = collate(task.texts, rows)
    chosen = task.choose_tokens(batch, generator(4))
    wanted = task.loss(trained_bert, batch, generator(4))

    collator.save(tmp_path / "masks.safetensors")
    again = MaskingCollator.load(tmp_path / "masks.safetensors", tokenizer)
    again.save(tmp_path / "again.safetensors")
    first, second = ((tmp_path / f"{one}.safetensors").read_bytes() for one in ("masks", "again"))
    assert first == second
    assert (again.seed, again.max_length, again.task.options) == (3, 64, collator.task.options)
    for _ in range(3):
        batches = collator(features(tokenizer)), again(iter(features(tokenizer)))
        for key in batches[0]:
            assert torch.equal(batches[0][key], batches[1][key])

    monkeypatch.setattr(collator, "_next_generator", partial(generator, 4))
    found = collator(features(tokenizer, [LINES[row] for row in rows]))
    assert torch.equal(found["labels"] != -100, chosen)
    assert chosen.any()
    assert torch.equal(found["labels"][chosen], batch.input_ids[chosen])
    assert torch.equal(found["input_ids"][~chosen], batch.input_ids[~chosen])
    with torch.no_grad():
        torch.testing.assert_close(model(**found).loss, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_model_in_another_precision_is_scored_in_that_of_scores(dtype, loaded, monkeypatch):
    model, tokenizer = loaded
    model.to(dtype)
    batches = []
    for number, scorer in enumerate((model, copy.deepcopy(model).float())):
        monkeypatch.setenv("AUXLEARN_CACHE", str(Path(f"precision {number} {dtype}").absolute()))
        collator = MaskingCollator(tokenizer, "l3mask", max_length=64).prepare(LINES, scorer)
        batches.append(collator(features(tokenizer)))
    assert torch.equal(*(batch["input_ids"] for batch in batches))
    assert model.dtype == dtype


def test_a_strategy_of_an_author_is_saved_too(collator_of, loaded, tmp_path):
    load_plugin(Path(__file__).parents[2] / "examples" / "long_first.py")
    prepared = collator_of("long_first")
    prepared.save(tmp_path / "masks")
    found = MaskingCollator.load(tmp_path / "masks", loaded[1])(features(loaded[1]))
    assert torch.equal(found["labels"], prepared(features(loaded[1]))["labels"])
    prepared.task.words = {"a": 1}
    with one_line(UserError, "long_first keeps words", "cannot be saved"):
        prepared.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_padded_inputs_and_pairs_are_recognised(loaded):
    model, tokenizer = loaded
    collator = MaskingCollator(tokenizer, "whole_word", max_length=40)
    collator.prepare(LINES, model, text_pairs=PAIRS)
    rows = tokenizer(list(LINES), list(PAIRS), truncation=True, max_length=40, padding="max_length")
    given = [{key: rows[key][number] for key in rows} for number in range(6)]
    found = collator(given)
    kept = found["attention_mask"].bool()
    original = torch.where(found["labels"] == -100, found["input_ids"], found["labels"])
    width = found["input_ids"].shape[1]
    for key, value in {**found, "input_ids": original}.items():
        if key != "labels":
            wanted = torch.tensor([one[key] for one in given])[:, :width]
            assert torch.equal(value[kept], wanted[kept])
    assert (found["token_type_ids"] == 1).any()
    tensors = [{"input_ids": torch.tensor(one["input_ids"])} for one in features(tokenizer)[:2]]
    with one_line(UserError, "was not prepared for", "max_length=40"):
        collator(tensors)


def test_workers_and_epochs_draw_other_masks_and_seeds_the_same(collator_of, loaded):
    tokenizer = loaded[1]
    data = features(tokenizer, LINES[:1] * 8)

    def epochs(workers, loader_seed, seed=0, count=2):
        collator = collator_of("random_mlm", seed=seed, probability=0.5)
        loader = DataLoader(
            data,
            batch_size=2,
            num_workers=workers,
            collate_fn=collator,
            generator=generator(loader_seed),
        )
        return [[batch["labels"] for batch in loader] for _ in range(count)]

    for workers in (0, 2):
        state = torch.get_rng_state()
        first = epochs(workers, loader_seed=1)
        assert torch.equal(torch.get_rng_state(), state)
        batches = [batch for epoch in first for batch in epoch]
        assert len(batches) == 8
        rows = {tuple(row.tolist()) for batch in batches for row in batch}
        assert len(rows) == 16, "one text has other masks in every row, batch, worker and epoch"
        again = [batch for epoch in epochs(workers, loader_seed=1) for batch in epoch]
        assert all(map(torch.equal, batches, again))
        (other,) = epochs(workers, loader_seed=1, seed=1, count=1)
        assert not any(map(torch.equal, batches, other))


def test_processes_draw_other_masks(collator_of, loaded, monkeypatch):
    collators = [collator_of("random_mlm") for _ in range(2)]
    first = collators[0](features(loaded[1]))["labels"]
    for name, value in {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    assert not torch.equal(first, collators[1](features(loaded[1]))["labels"])


def test_the_trainer_of_transformers_trains_and_evaluates_with_it(collator_of, loaded, tmp_path):
    from transformers import Trainer, TrainingArguments

    model, tokenizer = loaded
    collator = collator_of("l3mask")
    arguments = TrainingArguments(
        str(tmp_path),
        num_train_epochs=1,
        per_device_train_batch_size=8,
        dataloader_num_workers=2,
        learning_rate=1e-3,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    data = features(tokenizer, return_special_tokens_mask=True)
    trainer = Trainer(
        model, arguments, data_collator=collator, train_dataset=data, eval_dataset=data[:8]
    )
    assert trainer.train().global_step == 3
    assert 0 < trainer.evaluate()["eval_loss"] < 20


REFUSALS = {
    "no strategy": ("simcse", {}, "'simcse' is no masking strategy"),
    "unknown": ("l3mak", {}, "did you mean 'l3mask'?"),
    "unknown option": ("l3mask", {"probabilty": 0.1}, "did you mean 'probability'?"),
    "a corpus": ("span", {"corpus": "x.txt"}, "span: corpus, schedule"),
    "a schedule": ("span", {"schedule": "linear"}, "need a run of auxlearn"),
    "sampling": ("span", {"corruption": "sample"}, "corruption sample need a run"),
    "follows the loss": ("typhoon", {}, "typhoon follows the loss of a primary task"),
    "within a mixture": ("mixture", {"strategies": ["span", "typhoon"]}, "mixture follows"),
    "no text": ("span", {"texts": ["a", None]}, "prepared with texts alone"),
    "texts that are none": ("span", {"texts": None}, "a list of all texts"),
    "few tokens": ("span", {"max_length": 2}, "MaskingCollator: max_length: "),
    "no number": ("span", {"seed": "a"}, "MaskingCollator: seed: "),
    "a negative seed": ("span", {"seed": -1}, "MaskingCollator: seed: "),
    "a strategy that is none": (5, {}, "MaskingCollator: strategy: "),
    "too few labels": ("selective", {"labels": ["a"]}, "labels: give a list with one for each"),
    "labels that are none": ("selective", {"labels": 5}, "labels: give a list with one for each"),
    "a missing label": ("selective", {"labels": [None] * len(LINES)}, "labels: give each text a"),
    "labels of two types": ("selective", {"labels": [1, *LINES[1:]]}, "or each text a whole"),
    "pairs in one text": ("span", {"text_pairs": "a b"}, "text_pairs: give a list with one"),
    "no texts": ("span", {"texts": [""]}, "has no token for this encoder"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_masked_is_refused(case, collator_of):
    strategy, options, message = REFUSALS[case]
    with one_line(UserError, message):
        collator_of(strategy, **options)


def test_labels_may_be_numbers_of_any_type(collator_of, loaded):
    numbers = list(np.arange(len(LINES)) % 2)
    kinds = numbers, [int(number) for number in numbers]
    first, second = (collator_of("selective", labels=labels) for labels in kinds)
    batch = features(loaded[1])
    assert torch.equal(first(batch)["labels"], second(batch)["labels"])


def test_models_and_tokenizers_that_do_not_fit_are_refused(loaded, collator_of):
    model, tokenizer = loaded
    with one_line(UserError, "a BertModel is no AutoModelForMaskedLM"):
        MaskingCollator(tokenizer).prepare(LINES, model.bert)
    with one_line(UserError, "a str is no AutoModelForMaskedLM"):
        MaskingCollator(tokenizer).prepare(LINES, "bert")
    decoder = copy.deepcopy(model)
    decoder.config.is_decoder = True
    with one_line(UserError, "the model is a decoder (is_decoder): no token sees those after it"):
        MaskingCollator(tokenizer).prepare(LINES, decoder)
    for wrong in ("bert", type(tokenizer)):
        with one_line(UserError, "needs a fast tokenizer"):
            MaskingCollator(wrong)
    with one_line(UserError, "call prepare() first"):
        MaskingCollator(tokenizer).save("masks")
    for batch in (None, [], LINES[:2], [{"text": LINES[0]}]):
        with one_line(UserError, "takes a list of what the tokenizer returned"):
            collator_of()(batch)
    short = {"input_ids": [1, 2], "attention_mask": [1]}
    for wrong in (
        short,
        *({"input_ids": ids} for ids in (None, "abc", [[1, 2], [3]], [-5], [2**40])),
    ):
        with one_line(UserError, "input_ids and attention_mask have to be those of one text"):
            collator_of()([wrong])
    with one_line(UserError, "the collator was not prepared for [CLS] a new text [SEP]: prepare"):
        collator_of()([{"input_ids": tokenizer("a new text", return_tensors="pt")["input_ids"]}])
    with one_line(UserError, "is not prepared: call prepare()"):
        MaskingCollator(tokenizer)(features(tokenizer))
    for texts in (LINES[0], [], iter(()), {"text": LINES}):
        with one_line(UserError, "a list of all texts"):
            MaskingCollator(tokenizer).prepare(texts, model)


def test_files_that_are_not_what_was_written_are_refused(
    collator_of, loaded, encoder_folder, tmp_path
):
    from transformers import AutoTokenizer

    path = tmp_path / "masks"
    collator_of("frequency").save(path)
    content = path.read_bytes()
    with one_line(UserError, "belongs to another tokenizer"):
        MaskingCollator.load(path, AutoTokenizer.from_pretrained(encoder_folder("roberta")))
    changed = bytearray(content)
    changed[-5] ^= 1
    for damaged in (bytes(changed), content[:-8], b"", b"{}"):
        path.write_bytes(damaged)
        with one_line(UserError, f"{path} is damaged", "prepare and save it again"):
            MaskingCollator.load(path, loaded[1])
    path.write_bytes(content)
    with one_line(UserError, "needs a fast tokenizer"):
        MaskingCollator.load(path, None)
    for use in (collator_of().save, partial(MaskingCollator.load, tokenizer=loaded[1])):
        with one_line(UserError, "a path is needed, as text or pathlib.Path, not 5"):
            use(5)
    path.unlink()
    with one_line(UserError, "there is no file"):
        MaskingCollator.load(path, loaded[1])
    os.mkfifo(path)
    with one_line(UserError, "not a regular file"):
        MaskingCollator.load(path, loaded[1])
    key = content_key("other tensors")
    TensorCache(tmp_path).get(key, lambda: {"a": torch.zeros(1)})
    with one_line(UserError, "is no file that MaskingCollator.save has written"):
        MaskingCollator.load(tmp_path / f"{key}.safetensors", loaded[1])
