"""Build the shipped encoder ``tiny`` from the docstrings of installed packages.

One command builds it, from a fixed seed::

    python scripts/build_tiny.py --output auxlearn/encoders/tiny

It reads the docstrings of the standard library and of packages among this project's dependencies
(not of the five libraries of the data set ``pydocs``), trains a lower-cased WordPiece vocabulary on
them, pretrains a small BERT by masked language modelling, and writes the model folder with a README
that contains the results of the run.

Because the corpus is small (about two million tokens) and training uses one CPU thread, the model
is not initialised at random: its token embeddings are a factorisation of the corpus's co-occurrence
counts, its position embeddings are sinusoids, and its output bias is set from the token
frequencies. All of these are trained like the other weights.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import os
import platform
import sysconfig
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from scipy.sparse.linalg import svds
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    get_linear_schedule_with_warmup,
)

from auxlearn.core.rng import generator, seeded
from auxlearn.data.load import load_dataset
from auxlearn.data.pydocs.docstrings import (
    ENTRIES,
    entries,
    package_folder,
    paragraphs,
    read_docstrings,
    sections,
    source_files,
    without_near_copies,
)
from auxlearn.data.splits import normalise

SEED = 0
PACKAGES = {  # import name -> name of the distribution; in the order in which they are read
    "stdlib": "",
    "transformers": "transformers",
    "datasets": "datasets",
    "matplotlib": "matplotlib",
    "sympy": "sympy",
    "networkx": "networkx",
    "huggingface_hub": "huggingface_hub",
    "accelerate": "accelerate",
    "fontTools": "fonttools",
    "pydantic": "pydantic",
    "pygments": "Pygments",
    "mpmath": "mpmath",
    "fsspec": "fsspec",
    "rich": "rich",
    "narwhals": "narwhals",
    "PIL": "pillow",
    "jinja2": "Jinja2",
    "setuptools": "setuptools",
    "click": "click",
    "joblib": "joblib",
    "pyparsing": "pyparsing",
    "packaging": "packaging",
    "pyarrow": "pyarrow",
    "anyio": "anyio",
    "psutil": "psutil",
    "dill": "dill",
    "dateutil": "python-dateutil",
    "filelock": "filelock",
    "tqdm": "tqdm",
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = 6000
ALPHABET = 80
MAX_LENGTH = 256
HELD_OUT_EVERY = 33
MASK_SHARE = 0.2
EVALUATION_MASK_SHARE = 0.15
TOKENS_PER_BATCH = 1536
LEARNING_RATE = 2e-3
WINDOW = 5
WARMUP_SHARE = 0.06


def readable(docstring: str) -> list[str]:
    """Return the prose of a docstring in order: paragraphs and entries of all sections."""
    found: list[str] = []
    for title, body in sections(docstring):
        if title not in ("reference", "references", "see also"):
            found.extend(entries(body) if title in ENTRIES else paragraphs(body))
    return found


def collect_documents() -> tuple[list[str], dict[str, int]]:
    """Return one text per docstring, without near copies of paragraphs, and words by package.

    Copies are removed before documents are held out: many model files repeat sentences of others,
    and a held-out copy of a training sentence would bias the results.
    """
    found: list[tuple[str, int, str]] = []
    seen: set[str] = set()
    document = 0
    for package in PACKAGES:
        is_stdlib = package == "stdlib"
        folder = Path(sysconfig.get_path(package)) if is_stdlib else package_folder(package)
        for docstring in read_docstrings(folder, source_files(folder)):
            document += 1
            for paragraph in readable(docstring.text):
                key = normalise(paragraph)
                if key not in seen:
                    seen.add(key)
                    found.append((package, document, paragraph))
        print(f"  read {package}: {len(found)} paragraphs so far", flush=True)
    words: Counter[str] = Counter()
    documents: dict[int, list[str]] = {}
    for row in without_near_copies([paragraph for _, _, paragraph in found]):
        package, document, paragraph = found[row]
        words[package] += len(paragraph.split())
        documents.setdefault(document, []).append(paragraph)
    return [" ".join(parts) for parts in documents.values()], dict(words)


def train_tokenizer(texts: list[str]) -> BertTokenizer:
    """Train a lower-cased WordPiece vocabulary with BERT's normalizer and template.

    The trainer numbers continued characters ("##a") as it meets them in a hash map and breaks ties
    between merges by number. They are therefore numbered beforehand, as if they were special
    tokens, and only the vocabulary is kept: the same texts give the same vocabulary.
    """
    normalizer = normalizers.BertNormalizer(lowercase=True)
    counts = Counter(character for text in texts for character in normalizer.normalize_str(text))
    by_count = sorted(counts, key=lambda character: (-counts[character], character))
    alphabet = sorted([character for character in by_count if not character.isspace()][:ALPHABET])
    continued = [f"##{character}" for character in alphabet]

    trained = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trained.normalizer = normalizer
    trained.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY,
        min_frequency=3,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        special_tokens=SPECIAL + continued,
        continuing_subword_prefix="##",
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)

    tokenizer = Tokenizer(models.WordPiece(trained.get_vocab(), unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )
    return BertTokenizer(
        tokenizer_object=tokenizer, do_lower_case=True, model_max_length=MAX_LENGTH
    )


def cut(tokenizer: BertTokenizer, texts: list[str]) -> list[list[int]]:
    """Tokenise texts and split them into sequences of at most ``MAX_LENGTH`` tokens."""
    body = MAX_LENGTH - 2
    pieces = []
    for ids in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]:
        for start in range(0, len(ids), body):
            part = ids[start : start + body]
            if len(part) >= 4:
                pieces.append([tokenizer.cls_token_id, *part, tokenizer.sep_token_id])
    return pieces


def batches(pieces: list[list[int]], shuffle: torch.Generator | None) -> list[torch.Tensor]:
    """Group sequences of similar length into batches of about ``TOKENS_PER_BATCH`` tokens."""
    jitter = torch.zeros(len(pieces))
    if shuffle is not None:
        jitter = torch.rand(len(pieces), generator=shuffle)
    order = sorted(
        range(len(pieces)), key=lambda row: (len(pieces[row]) * (1 + 0.1 * float(jitter[row])), row)
    )
    groups: list[list[int]] = [[]]
    for row in order:
        if groups[-1] and (len(groups[-1]) + 1) * len(pieces[row]) > TOKENS_PER_BATCH:
            groups.append([])
        groups[-1].append(row)
    if shuffle is not None:
        groups = [groups[i] for i in torch.randperm(len(groups), generator=shuffle).tolist()]
    return [
        torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(pieces[row]) for row in rows], batch_first=True
        )
        for rows in groups
    ]


def choose(ids: torch.Tensor, share: float, draw: torch.Generator) -> torch.Tensor:
    """Return the tokens to predict, a boolean mask of the shape of ``ids``; none is special."""
    return (torch.rand(ids.shape, generator=draw) < share) & (ids >= len(SPECIAL))


def language_model_loss(
    model: BertForMaskedLM, inputs: torch.Tensor, ids: torch.Tensor, chosen: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the summed cross-entropy at the chosen positions and the predicted tokens there."""
    hidden = model.bert(input_ids=inputs, attention_mask=(ids != 0).long()).last_hidden_state
    logits = model.cls(hidden[chosen]).float()
    loss = torch.nn.functional.cross_entropy(logits, ids[chosen], reduction="sum")
    return loss, logits.argmax(-1)


def token_embeddings(pieces: list[list[int]], vocabulary: int, width: int) -> torch.Tensor:
    """Return embeddings from co-occurrence counts, (vocabulary, width), standard deviation 1.

    The truncated singular value decomposition of positive pointwise mutual information within a
    window, nearer tokens counting more, the singular values shared out evenly and the contexts'
    frequencies raised to 0.75 (Levy, Goldberg and Dagan, 2015, section 3).
    """
    stream = np.concatenate([np.asarray(piece) for piece in pieces])
    counts = scipy.sparse.csr_matrix((vocabulary, vocabulary))
    for distance in range(1, WINDOW + 1):
        left, right = stream[:-distance], stream[distance:]
        words = (left >= len(SPECIAL)) & (right >= len(SPECIAL))
        weights = np.full(int(words.sum()), 1 / distance)
        counts = counts + scipy.sparse.csr_matrix(
            (weights, (left[words], right[words])), shape=counts.shape
        )
    counts = (counts + counts.T).tocoo()
    frequency = np.asarray(counts.sum(axis=1)).ravel()
    context = frequency**0.75 / (frequency**0.75).sum()
    information = np.log(counts.data / (frequency[counts.row] * context[counts.col]))
    positive = information > 0
    matrix = scipy.sparse.csr_matrix(
        (information[positive], (counts.row[positive], counts.col[positive])), shape=counts.shape
    )
    vectors, values, _ = svds(matrix, k=width, v0=np.ones(vocabulary))
    embeddings = torch.from_numpy(vectors * np.sqrt(values)).float()
    return embeddings / embeddings.std()


def sinusoids(positions: int, width: int) -> torch.Tensor:
    """Return position embeddings, (positions, width), standard deviation 1.

    Vaswani et al. (2017), section 3.5, sines first: tokens a fixed distance apart look alike to
    attention from the first step on, wherever they stand.
    """
    rates = 10_000.0 ** -(torch.arange(width // 2) / (width // 2))
    angles = torch.arange(positions)[:, None] * rates
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return table / table.std()


def pretrain(
    model: BertForMaskedLM, pieces: list[list[int]], epochs: int, precision: torch.dtype
) -> int:
    """Pretrain in place and return the number of steps taken."""
    plan = [batches(pieces, generator(SEED, "tiny", "order", epoch)) for epoch in range(epochs)]
    total = sum(len(epoch) for epoch in plan)
    no_decay = [p for p in model.parameters() if p.ndim < 2]
    decay = [p for p in model.parameters() if p.ndim >= 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        betas=(0.9, 0.98),
    )
    schedule = get_linear_schedule_with_warmup(optimizer, int(WARMUP_SHARE * total), total)
    started = time.monotonic()
    running, step = 0.0, 0
    for epoch in plan:
        for ids in epoch:
            draw = generator(SEED, "tiny", "mask", step)
            chosen = choose(ids, MASK_SHARE, draw)
            fate = torch.rand(ids.shape, generator=draw)
            random_ids = torch.randint(
                len(SPECIAL), model.config.vocab_size, ids.shape, generator=draw
            )
            inputs = torch.where(chosen & (fate < 0.8), SPECIAL.index("[MASK]"), ids)
            inputs = torch.where(chosen & (fate >= 0.9), random_ids, inputs)
            with torch.autocast("cpu", precision, enabled=precision != torch.float32):
                loss, _ = language_model_loss(model, inputs, ids, chosen)
            loss = loss / max(1, int(chosen.sum()))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            running += loss.item()
            if step % 200 == 0:
                print(
                    f"  step {step}/{total}  loss {running / 200:.3f}"
                    f"  {time.monotonic() - started:.0f} s",
                    flush=True,
                )
                running = 0.0
    return step


@torch.no_grad()
def evaluate(
    model: BertForMaskedLM, pieces: list[list[int]], unigram: torch.Tensor
) -> dict[str, float]:
    """Predict a fixed choice of masked tokens; accuracy and perplexity, model beside unigram.

    Args:
        model: In evaluation mode, float32.
        pieces: Framed token pieces.
        unigram: Log-probabilities of the training text's token frequencies, (vocabulary,).
    """
    loss, right, unigram_loss, unigram_right, count = 0.0, 0, 0.0, 0, 0
    for number, ids in enumerate(batches(pieces, None)):
        chosen = choose(ids, EVALUATION_MASK_SHARE, generator(SEED, "tiny", "evaluate", number))
        inputs = torch.where(chosen, SPECIAL.index("[MASK]"), ids)
        batch_loss, predicted = language_model_loss(model, inputs, ids, chosen)
        truth = ids[chosen]
        loss += batch_loss.item()
        right += int((predicted == truth).sum())
        unigram_loss -= float(unigram[truth].sum())
        unigram_right += int((truth == unigram.argmax()).sum())
        count += len(truth)
    return {
        "tokens": count,
        "accuracy": right / count,
        "perplexity": math.exp(loss / count),
        "unigram_accuracy": unigram_right / count,
        "unigram_perplexity": math.exp(unigram_loss / count),
    }


def save(model: BertForMaskedLM, tokenizer: BertTokenizer, output: Path) -> None:
    """Write the files of the folder atomically, weights as float16."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output) as temporary:
        model.half().save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
            written = Path(temporary) / name
            written.chmod(0o644)
            os.replace(written, output / name)


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the shipped encoder 'tiny'.")
    parser.add_argument("--output", type=Path, required=True, help="model folder to write")
    parser.add_argument("--epochs", type=int, default=4, help="passes over the text")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    started = time.monotonic()

    print("reading documentation strings", flush=True)
    texts, words = collect_documents()
    order = torch.randperm(len(texts), generator=generator(SEED, "tiny", "held out")).tolist()
    held_out = [texts[row] for row in order[::HELD_OUT_EVERY]]
    held_out_rows = set(order[::HELD_OUT_EVERY])
    train = [text for row, text in enumerate(texts) if row not in held_out_rows]
    print(f"training the vocabulary on {len(train)} documents", flush=True)
    tokenizer = train_tokenizer(train)
    pieces = cut(tokenizer, train)
    counts = torch.bincount(
        torch.tensor([token for piece in pieces for token in piece[1:-1]]),
        minlength=len(tokenizer),
    )
    unigram = torch.log((counts + 1) / (counts + 1).sum())
    print(f"{int(counts.sum())} tokens in {len(pieces)} pieces", flush=True)

    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
        max_position_embeddings=MAX_LENGTH,
        hidden_dropout_prob=0.0,  # too small to overfit; set to 0.1 for fine-tuning below
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )
    with seeded(SEED, "tiny", "initial weights"):
        model = BertForMaskedLM(config)
    with torch.no_grad():
        embeddings = model.bert.embeddings
        tokens = token_embeddings(pieces, config.vocab_size, config.hidden_size)
        embeddings.word_embeddings.weight[len(SPECIAL) :] = 0.04 * tokens[len(SPECIAL) :]
        embeddings.position_embeddings.weight.copy_(
            0.02 * sinusoids(MAX_LENGTH, config.hidden_size)
        )
        model.cls.predictions.bias.copy_(unigram)
    before = time.monotonic()
    steps = pretrain(model, pieces, options.epochs, torch.bfloat16)
    seconds = time.monotonic() - before
    model.config.hidden_dropout_prob = model.config.attention_probs_dropout_prob = 0.1
    save(model, tokenizer, options.output)

    shipped = BertForMaskedLM.from_pretrained(options.output, dtype=torch.float32).eval()
    figures = {"held-out documents": evaluate(shipped, cut(tokenizer, held_out), unigram)}
    unseen = load_dataset("pydocs")
    figures["`pydocs` test texts"] = evaluate(
        shipped, cut(tokenizer, list(unseen.split("test").texts)), unigram
    )
    facts = {
        "Documents": f"{len(texts)} docstrings, {sum(words.values())} words; "
        f"{len(held_out)} of the documents held out",
        "Training text": f"{int(counts.sum())} tokens",
        "Vocabulary": f"{len(tokenizer)} WordPiece entries, lower-cased",
        "Model": f"BERT, {config.num_hidden_layers} layers, {config.num_attention_heads} heads, "
        f"width {config.hidden_size}, feed-forward {config.intermediate_size}, "
        f"{MAX_LENGTH} positions; dropout 0 in pretraining, 0.1 in the config",
        "Parameters": f"{sum(p.numel() for p in shipped.parameters())} "
        "(the decoder is the embedding, counted once)",
        "Start": f"co-occurrence embeddings (window {WINDOW}), sinusoidal positions, token "
        "frequencies as output bias; the rest drawn",
        "Pretraining": f"{options.epochs} passes, {steps} steps of about {TOKENS_PER_BATCH} tokens,"
        f" {MASK_SHARE:.0%} of the tokens predicted (80% masked, 10% random, 10% kept), AdamW, "
        f"peak learning rate {LEARNING_RATE:g}, bfloat16 autocast",
        "Time": f"{seconds:.0f} s for the pretraining, {time.monotonic() - started:.0f} s in all, "
        f"{options.threads} CPU thread(s)",
        "Seed": str(SEED),
        "Made with": f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"transformers {importlib.metadata.version('transformers')}, "
        f"tokenizers {importlib.metadata.version('tokenizers')}",
    }
    write_readme(options.output, facts, figures, words)
    for name, figure in figures.items():
        print(name, figure)


def write_readme(
    output: Path,
    facts: dict[str, str],
    figures: dict[str, dict[str, float]],
    words: dict[str, int],
) -> None:
    """Write the folder's README from the results of the run."""
    lines = [
        "# tiny",
        "",
        "A small BERT for trying things without a download, pretrained by masked language",
        "modelling on documentation strings of installed Python packages. The five libraries of",
        "the data set `pydocs` (numpy, scipy, scikit-learn, pandas, torch) are not among them.",
        "Weights are stored as float16; load them with `dtype=torch.float32`. This file is written",
        "by `python scripts/build_tiny.py --output auxlearn/encoders/tiny`, which rebuilds the",
        "folder; another CPU or other package versions give other figures.",
        "",
        "| fact | value |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items()),
        "",
        f"Predicting {EVALUATION_MASK_SHARE:.0%} of the tokens of unseen text, all of them masked",
        "(unigram: the token frequencies of the training text, add-one smoothed):",
        "",
        "| text | tokens predicted | accuracy | unigram | perplexity | unigram |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | {row['tokens']} | {row['accuracy']:.3f} | {row['unigram_accuracy']:.3f} "
            f"| {row['perplexity']:.1f} | {row['unigram_perplexity']:.1f} |"
            for name, row in figures.items()
        ),
        "",
        "Words read, by package:",
        "",
        "| package | version | words |",
        "|---|---|---|",
    ]
    for package, distribution in PACKAGES.items():
        version = (
            importlib.metadata.version(distribution) if distribution else platform.python_version()
        )
        lines.append(f"| {package} | {version} | {words.get(package, 0)} |")
    temporary = output / "README.md.tmp"
    temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(temporary, output / "README.md")


if __name__ == "__main__":
    main()
