"""Tiny encoders of every family, texts and labels, and what tests of several rooms do with runs.

Transformers and tokenizers are imported where an encoder is made: mathematics needs neither.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import yaml
from torch import Tensor

from auxlearn.core.cache import TensorCache
from auxlearn.core.progress import Reporter
from auxlearn.data.batches import Batch, collate
from auxlearn.data.tokens import Tokenization, TokenizedTexts

if TYPE_CHECKING:
    from auxlearn.encoders.shared import SharedEncoder

LINES = (
    "The parser of Smith et al. is faster than the parser of Jones et al. on long sentences.",
    "We use the corpus of Marcus et al. to train a part-of-speech tagger.",
    "The tagger is trained on the corpus, e.g. on the first ten sections of the corpus.",
    "A word-based model is smaller than a character-based model of the same depth.",
    "The code is at https://example.org/parser and the data is at https://example.org/corpus.",
    "Previous work, e.g. the work of Smith et al., does not use the state-of-the-art tagger.",
    "The results of the word-based model are better than the results of the parser.",
    "We train the parser on long sentences and we test the parser on short sentences.",
    "The state-of-the-art parser is trained on ten sections of the corpus.",
    "Don't train the tagger on the test data: the results aren't comparable.",
    "The model of Jones et al. is a character-based model with ten layers.",
    "In contrast, the model of Smith et al. is a word-based model with two layers.",
    "The download is at https://example.org/tagger (see the first section).",
    "We compare the results with the results of previous work in the second section.",
    "The second section of the corpus is used as test data, i.e. not for training.",
    "The first section describes the data; the second section describes the model.",
    "A faster parser isn't a better parser: the results on long sentences are worse.",
    "The tagger of Marcus et al. is used in previous work to train the parser.",
    "The part-of-speech tagger is faster than the state-of-the-art parser.",
    "The results on short sentences are comparable with the results on long sentences.",
    "We use the test data of previous work, e.g. the second section of the corpus.",
    "The corpus has ten sections; the test data is the first section.",
    "The character-based model is better on long words, i.e. words with ten letters.",
    "The word-based model is better on short words, e.g. words with two letters.",
)

#: Texts like the lines, with what makes word boundaries hard, and with words no vocabulary has.
HARD_TEXTS = (
    "The parser of Smith et al. is faster than the tagger, e.g. on short sentences.",
    "The state-of-the-art part-of-speech tagger isn't at https://example.org/tagger?x=1#top.",
    "Don't use the corpus (see Marcus et al., 1993): it's word-based; i.e. not comparable!",
    "The tagger 日本 is used in the 語 section of the corpus.",
    "well-known",
    "We train a non-autoregressive re-ranker, cf. http://jones.org/a_b-c.html, on ten sections...",
    "The results of the word-based model are better than the results of the parser.",
)

LABELS = ("background", "method", "result")

SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
}


def wordpiece(kind: str = "Bert") -> Any:
    """A tokenizer of the BERT kind: frequent words of the lines, their letters, some endings.

    Its vocabulary is put together by hand, because the trainer numbers it anew in every process.
    """
    import transformers

    words = Counter(re.findall(r"[a-z]+|[^a-z\s]", " ".join(LINES).lower()))
    letters = sorted({letter for word in words for letter in word})
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if kind == "MPNet":
        vocab = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    vocab += letters + [f"##{letter}" for letter in letters if letter.isalpha()]
    vocab += sorted(word for word, count in words.items() if count > 1 and len(word) > 1)
    vocab += ["##s", "##er", "##ed", "##ing", "##est", "##able", "train", "pars", "tagg", "compar"]
    numbered = {piece: number for number, piece in enumerate(dict.fromkeys(vocab))}
    return getattr(transformers, f"{kind}Tokenizer")(vocab=numbered)


def _trained_bpe(special: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    return tokenizer


def byte_level(kind: str = "Roberta") -> Any:
    """A tokenizer of the RoBERTa kind, trained on the lines."""
    import transformers

    trained = _trained_bpe(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    return getattr(transformers, f"{kind}Tokenizer")(vocab=model["vocab"], merges=merges)


def byte_level_with_bert_tokens() -> Any:
    """A tokenizer of the ModernBERT kind, trained on the lines."""
    import transformers
    from tokenizers import processors

    trained = _trained_bpe(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    trained.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=trained,
        unk_token="[UNK]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
    )


def unigram(kind: str = "DebertaV2") -> Any:
    """A tokenizer of the DeBERTa kind (SentencePiece): frequent words of the lines, and letters."""
    import transformers

    text = " ".join(LINES)
    words = Counter(re.findall(r"[A-Za-z]+", text))
    pieces = [(f"▁{word}", -5.0) for word in sorted(words) if words[word] > 1 and len(word) > 1]
    pieces += [(letter, -10.0) for letter in sorted({*text, "▁"} - {" "})]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if kind == "Albert":
        special[:2] = "<pad>", "<unk>"
    scored = [(token, 0.0) for token in special] + pieces
    return getattr(transformers, f"{kind}Tokenizer")(vocab=scored)


IDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}

#: By family: the name of its classes, its tokenizer, and its settings.
MODELS: dict[str, tuple[str, Callable[[], Any], dict[str, Any]]] = {
    "bert": ("Bert", wordpiece, SIZE),
    "roberta": (
        "Roberta",
        byte_level,
        SIZE | IDS | {"max_position_embeddings": 130, "type_vocab_size": 1},
    ),
    "distilbert": (
        "DistilBert",
        lambda: wordpiece("DistilBert"),
        {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "max_position_embeddings": 128},
    ),
    "electra": ("Electra", lambda: wordpiece("Electra"), SIZE | {"embedding_size": 16}),
    "deberta-v2": (
        "DebertaV2",
        unigram,
        SIZE
        | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0}
        | {"position_biased_input": False, "pooler_hidden_size": 32},
    ),
    "modernbert": (
        "ModernBert",
        byte_level_with_bert_tokens,
        SIZE
        | {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2}
        | {"eos_token_id": 3, "local_attention": 8, "initializer_cutoff_factor": 3.0},
    ),
    "albert": (
        "Albert",
        lambda: unigram("Albert"),
        SIZE
        | {"embedding_size": 16, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
        | {"hidden_dropout_prob": 0.1},
    ),
    "mpnet": ("MPNet", lambda: wordpiece("MPNet"), SIZE | IDS | {"max_position_embeddings": 130}),
    "eurobert": (
        "EuroBert",
        byte_level_with_bert_tokens,
        SIZE
        | {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "mask_token_id": 4}
        | {"attention_dropout": 0.1, "tie_word_embeddings": False},
    ),
    "nomic_bert": ("NomicBert", wordpiece, SIZE | {"pad_token_id": 0, "hidden_dropout_prob": 0.1}),
    "bart": (
        "Bart",
        lambda: byte_level("Bart"),
        {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 64}
        | {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 64}
        | {"max_position_embeddings": 128, "decoder_start_token_id": 2, "forced_eos_token_id": 2}
        | IDS,
    ),
}
FAMILIES = tuple(MODELS)


def build(family: str, spread: float = 0.3) -> tuple[Any, Any]:
    """A masked language model with random weights, and its tokenizer.

    Weights of this spread make logits differ by so much that a wrong head, a wrong position or a
    forgotten bias shows; the usual 0.02 would hide them.
    """
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model, tokenizer = _build(family, spread)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):
                    parameter.normal_(0.0, 0.1)
            if family == "bart":
                model.final_logits_bias.normal_(0.0, 0.5)
    return model, tokenizer


def _build(family: str, spread: float) -> tuple[Any, Any]:
    import transformers

    name, make, settings = MODELS[family]
    tokenizer, bart = make(), family == "bart"
    settings = {**settings, "init_std" if bart else "initializer_range": spread}
    config = getattr(transformers, f"{name}Config")(vocab_size=len(tokenizer), **settings)
    head = "ForConditionalGeneration" if bart else "ForMaskedLM"
    return getattr(transformers, f"{name}{head}")(config), tokenizer


def write(folder: Path, model: Any, tokenizer: Any) -> Path:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_one_layer(folder: Path) -> Path:
    """Write a tiny untrained BERT with one layer."""
    model, tokenizer = build("bert")
    model.bert.encoder.layer = model.bert.encoder.layer[:1]
    model.config.num_hidden_layers = 1
    return write(folder, model, tokenizer)


def rows(*endings: str) -> list[dict[str, str]]:
    """The lines as examples, the classes in turn; once with each of the endings."""
    return [
        {"text": f"{line} {ending}".strip(), "label": LABELS[number % len(LABELS)]}
        for ending in endings or ("",)
        for number, line in enumerate(LINES)
    ]


def write_splits(folder: Path, **splits: Sequence[dict[str, Any]]) -> Path:
    """Write the splits of a data set as JSON lines; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, members in splits.items():
        lines = (json.dumps(member) + "\n" for member in members)
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


def released_settings() -> dict[str, Any]:
    """The settings that the documentation gives for META-TARTAN's released code."""
    page = Path(__file__).parents[1] / "docs" / "weightings" / "tartan_released.md"
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    (block,) = (block for block in blocks if "tartan_released" in block)
    return yaml.safe_load(block)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


class Messages(Reporter):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


@contextmanager
def one_line(kind: Any, *parts: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expect an error whose message is one line with these parts."""
    with pytest.raises(kind) as caught:
        yield caught
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def generator(seed: int = 0) -> torch.Generator:
    """A generator of random numbers."""
    return torch.Generator().manual_seed(seed)


def assert_close(actual: Any, expected: Any, **tolerance: float) -> None:
    """Compare gradients of the same parameters, some of which have none."""
    for gradient, wanted in zip(actual, expected, strict=True):
        assert (gradient is None) == (wanted is None)
        if gradient is not None:
            torch.testing.assert_close(gradient, wanted, **tolerance)


def slopes(function: Callable[[Tensor], Any], at: Tensor, size: float = 1e-3) -> Tensor:
    """The derivatives of a function of a vector by central differences of fourth order."""
    found = torch.zeros_like(at)
    for place in range(len(at)):
        ends = []
        for shift in (-2, -1, 1, 2):
            moved = at.detach().clone()
            moved[place] += shift * size
            ends.append(float(function(moved)))
        found[place] = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * size)
    return found


def train_for_a_moment(model: Any, tokenizer: Any) -> None:
    """Fit a masked language model to some lines until it is sure of some of its predictions.

    Written with transformers and torch alone: what is compared with this package's scores must not
    come out of this package.
    """
    encoded = tokenizer(list(LINES[:12]), padding=True, return_tensors="pt")
    ids, attention = encoded["input_ids"], encoded["attention_mask"]
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids))
    draws = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model.eval()
    for _ in range(150):
        chosen = (torch.rand(ids.shape, generator=draws) < 0.25) & ~special
        corrupted = ids.masked_fill(chosen, tokenizer.mask_token_id)
        labels = ids.masked_fill(~chosen, -100)
        model(input_ids=corrupted, attention_mask=attention, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def tokenized(
    encoder: SharedEncoder,
    texts: Sequence[str],
    labels: Sequence[int] | None = None,
    pairs: Sequence[str] | None = None,
    max_length: int = 128,
) -> TokenizedTexts:
    found = None if labels is None else torch.tensor(labels)
    return Tokenization(encoder.tokenizer, max_length).tokenize(texts, pairs, labels=found)


def ragged(lengths: Sequence[int], labels: Sequence[int] | None = None) -> TokenizedTexts:
    """Texts of given lengths whose tokens number on from 10; first and last are special."""
    total = sum(lengths)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    maskable = torch.ones(total, dtype=torch.bool)
    maskable[offsets[:-1]] = False
    maskable[offsets[1:] - 1] = False
    words = torch.arange(total, dtype=torch.int32).masked_fill(~maskable, -1)
    return TokenizedTexts(
        input_ids=torch.arange(10, 10 + total, dtype=torch.int32),
        words=words,
        maskable=maskable,
        offsets=offsets,
        pad_id=0,
        labels=None if labels is None else torch.tensor(labels),
    )


def without_dropout(encoder: SharedEncoder) -> SharedEncoder:
    """Set every dropout probability to zero, so that training mode computes what eval does."""
    for module in encoder.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("dropout", "attention_dropout", "activation_dropout", "dropout_prob"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return encoder


def copy_without_dropout(folder: Path, copy: Path) -> str:
    """Copy an encoder, and set every dropout probability of the copy to zero."""
    shutil.copytree(folder, copy)
    content = json.loads((copy / "config.json").read_text())
    content |= {name: 0.0 for name in content if "dropout" in name and content[name]}
    (copy / "config.json").write_text(json.dumps(content))
    return str(copy)


def context(encoder: SharedEncoder, texts: TokenizedTexts, folder: Path, seed: int = 0) -> Any:
    from auxlearn.data.dataset import Split
    from auxlearn.objectives.context import ObjectiveContext

    labels = None if texts.labels is None else tuple(texts.labels.tolist())
    split = Split("train", ("",) * len(texts), labels, LABELS)
    return ObjectiveContext(
        "task", encoder, split, texts, max_length=64, cache=TensorCache(folder), seed=seed
    )


def cross_entropy() -> Any:
    from auxlearn.core.registry import LOSSES

    cls = LOSSES.get("cross_entropy")
    return cls(cls.Options())


def forbid_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file be made or locked, as in a folder that is only read."""

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    for name in ("auxlearn.core.locks.Lock.acquire", "os.mkdir", "os.replace"):
        monkeypatch.setattr(name, refused)


def change_settings(run: Path, **changes: Any) -> None:
    """Make a folder that of a run with other settings, as one that was trained with them."""
    from dataclasses import replace

    from auxlearn.results.folder import RunFolder
    from auxlearn.results.record import FILE, RunResults

    config = RunFolder(run).read_config().model_copy(update=changes)
    results = RunResults.load(run) if (run / FILE).is_file() else None
    (run / "config.yaml").write_text(config.to_yaml())
    if results is not None:
        replace(results, digest=config.digest).save(run)


def stop_before_step(patch: Any, steps: int, error: BaseException | None = None) -> None:
    """Interrupt training after so many further optimizer steps, over all runs, as a kill would."""
    from auxlearn.training.loop import TrainingLoop

    real = TrainingLoop.run_step
    made: list[int] = []

    def run_step(loop: TrainingLoop) -> None:
        if len(made) == steps:
            raise error or SystemExit
        made.append(loop.state.step)
        real(loop)

    patch.setattr(TrainingLoop, "run_step", run_step)


def kill_before_step(steps: int, config: Any = None, **settings: Any) -> None:
    """Train until just before an optimizer step, counted from now on."""
    from auxlearn import train

    with pytest.MonkeyPatch.context() as patch:
        stop_before_step(patch, steps)
        with pytest.raises(SystemExit):
            train(*([] if config is None else [config]), **settings)


def first_step(config: Any) -> Any:
    """The training step of a run just before its first step."""
    from auxlearn import train
    from auxlearn.training.loop import TrainingLoop

    seen = []

    def run(loop: TrainingLoop) -> None:
        seen.append(loop.training_step)
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingLoop, "run", run)
        with pytest.raises(SystemExit):
            train(config)
    return seen[0]


def assert_same_files(one: Path, other: Path, *names: str) -> None:
    """Compare files of two runs byte by byte; of none named, the metrics and the model."""
    for name in names or ("metrics.jsonl", "model/model.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def copy_before_step(patch: Any, number: int, copy: Path) -> list[int]:
    """Copy the run folder before a step, as a kill leaves it; return the steps made from now on."""
    from auxlearn.training.loop import TrainingLoop

    real = TrainingLoop.run_step
    made: list[int] = []
    copies = iter([copy])

    def step(loop: TrainingLoop) -> None:
        if loop.state.step == number:
            for place in copies:
                shutil.copytree(loop.folder.path, place)
        made.append(loop.state.step)
        real(loop)

    patch.setattr(TrainingLoop, "run_step", step)
    return made


def resume_to_the_same_files(patch: Any, number: int, folder: Path, train: Any) -> tuple[Any, Any]:
    """Train into ``run``, and resume what a kill before a step leaves of it, to the same results.

    Returns:
        The results, and the numbers of the steps that the resumed run has made. The undisturbed
        run is in ``whole``, and the resumed one in ``run``.
    """
    made = copy_before_step(patch, number, folder / "killed")
    whole = train()
    (folder / "run").rename(folder / "whole")
    (folder / "killed").rename(folder / "run")
    made.clear()
    resumed = train()
    assert resumed.reproducible() == whole.reproducible()
    assert_same_files(folder / "run", folder / "whole")
    return resumed, made


def snapshot(encoder: SharedEncoder) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in encoder.tensors().items()}


def collated(texts: TokenizedTexts) -> Batch:
    return collate(texts, torch.arange(len(texts)))


def only_builtin_plugins(patch: Any) -> None:
    """Forget the plug-ins of other tests, and at the end of the patch those of this one."""
    from auxlearn.core.registry import LOSSES, TASKS, WEIGHTINGS

    forget_plugin_files()
    for registry in (TASKS, LOSSES, WEIGHTINGS):
        # A module registers its names once, when it is first imported.
        builtin = {name: registry.get(name) for name in registry._builtin}
        patch.setattr(registry, "_registered", builtin)


def forget_plugin_files() -> None:
    """Let plug-in files be imported again, and so register their names again."""
    for name in [name for name in sys.modules if name.startswith("auxlearn_plugin_")]:
        del sys.modules[name]
