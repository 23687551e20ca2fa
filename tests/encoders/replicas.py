"""Small replicas of encoders as their owners ship them: the same files, formats, settings and names
of weights as the repositories of the hub, two layers, made-up weights.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers
from safetensors.torch import save as safetensors_bytes

from tests.helpers import LINES, build

Files = dict[str, bytes]
Tensors = dict[str, torch.Tensor]

#: What git leaves in place of a large file where git-lfs is not installed.
LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:68d4\nsize 440449768\n"

#: A folder that the code of a repository would make.
OWN_CODE = "own_code_was_run"

BERT_CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 64,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 128,
    "model_type": "bert",
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "type_vocab_size": 2,
}


class Opens:
    """Makes a folder where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def pickled(content: Any, zipped: bool = True) -> bytes:
    """``pytorch_model.bin``, as a zip archive or as torch before 1.6 wrote it."""
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def sharded(tensors: Tensors, stem: str, end: str, write: Callable[[Tensors], bytes]) -> Files:
    """Two files of weights and their index."""
    names = sorted(tensors)
    files, where = {}, {}
    for number, part in enumerate((names[:9], names[9:]), 1):
        shard = f"{stem}-{number:05}-of-00002.{end}"
        files[shard] = write({name: tensors[name].clone() for name in part})
        where |= dict.fromkeys(part, shard)
    return {**files, f"{stem}.{end}.index.json": json.dumps({"weight_map": where}).encode()}


#: By form: the files of weights that hold some tensors.
WEIGHTS: dict[str, Callable[[Tensors], Files]] = {
    "model.safetensors": lambda tensors: {"model.safetensors": safetensors_bytes(tensors)},
    "model.safetensors, sharded": lambda tensors: sharded(
        tensors, "model", "safetensors", safetensors_bytes
    ),
    "pytorch_model.bin": lambda tensors: {"pytorch_model.bin": pickled(tensors)},
    "pytorch_model.bin of torch before 1.6": lambda tensors: {
        "pytorch_model.bin": pickled(tensors, zipped=False)
    },
    "pytorch_model.bin, sharded": lambda tensors: sharded(tensors, "pytorch_model", "bin", pickled),
    "both, with different weights": lambda tensors: {
        "model.safetensors": safetensors_bytes(tensors),
        "pytorch_model.bin": pickled({name: values + 1 for name, values in tensors.items()}),
    },
}


def wordpieces(cased: bool) -> list[str]:
    """A vocabulary as in the vocab.txt of BERT."""
    words = sorted({word for line in LINES for word in line.split() if word.isalpha()})
    letters = [chr(code) for code in range(33, 127) if cased or not chr(code).isupper()]
    if not cased:
        words = sorted({word.lower() for word in words})
    pieces = [*letters, *(f"##{letter}" for letter in letters), *words]
    return ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(pieces)]


def vocab_txt(cased: bool, end: str = "\n") -> bytes:
    return "".join(piece + end for piece in wordpieces(cased)).encode()


def as_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content).encode()


def bert_tensors(cased: bool, pooler: bool = True) -> tuple[dict[str, Any], Tensors]:
    """Settings and weights of a pretraining BERT under the names of old checkpoints."""
    config = {**BERT_CONFIG, "vocab_size": len(wordpieces(cased))}
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = transformers.BertForPreTraining(transformers.BertConfig(**config))
        tensors = {}
        for name, values in model.state_dict().items():
            if name != "cls.predictions.decoder.bias" and (pooler or ".pooler." not in name):
                old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
                old = old.replace("LayerNorm.bias", "LayerNorm.beta")
                tensors[old] = values + 0.05 * torch.randn(values.shape)
    tensors["cls.predictions.decoder.weight"] = tensors[
        "bert.embeddings.word_embeddings.weight"
    ].clone()
    return config, tensors


def old_bert(cased: bool, **settings: Any) -> Files:
    """A repository of 2019: config.json, pytorch_model.bin, vocab.txt, nothing about casing."""
    config, tensors = bert_tensors(cased)
    config = {key: value for key, value in {**config, **settings}.items() if value is not ...}
    return {
        "config.json": as_json(config),
        "pytorch_model.bin": pickled(tensors, zipped=False),
        "vocab.txt": vocab_txt(cased),
    }


def body_only(cased: bool, weights: str) -> Files:
    """A BertModel: weights without prefix and head, with the buffer of positions."""
    config, tensors = bert_tensors(cased)
    body = {
        name.removeprefix("bert."): values
        for name, values in tensors.items()
        if name.startswith("bert.")
    }
    body["embeddings.position_ids"] = torch.arange(128)[None]
    return {
        **WEIGHTS[weights](body),
        "config.json": as_json({**config, "architectures": ["BertModel"]}),
        "vocab.txt": vocab_txt(cased),
        "tokenizer_config.json": as_json({"do_lower_case": not cased, "model_max_length": 128}),
    }


def clinicalbert() -> Files:
    """DistilBERT with a cased vocabulary, beside a pickle of training arguments."""
    size = len(wordpieces(True))
    config = {"model_type": "distilbert", "dim": 32, "hidden_dim": 64, "n_heads": 2, "n_layers": 2}
    config |= {"max_position_embeddings": 128, "vocab_size": size, "tie_weights_": True}
    with torch.random.fork_rng():
        torch.manual_seed(8)
        settings = {key: value for key, value in config.items() if key != "model_type"}
        native = transformers.DistilBertForMaskedLM(transformers.DistilBertConfig(**settings))
    tensors = {name: values + 0.01 for name, values in native.state_dict().items()}
    tensors["vocab_projector.weight"] = tensors["distilbert.embeddings.word_embeddings.weight"]
    return {
        "config.json": as_json(config),
        "pytorch_model.bin": pickled(tensors, zipped=False),
        "tokenizer_config.json": b'{"special_tokens_map_file": null, "full_tokenizer_file": null}',
        "training_args.bin": pickled(Opens(Path("training_args_was_run"))),
        "vocab.txt": vocab_txt(True),
    }


def saved(
    family: str, *, weights: str = "model.safetensors", without: str = "?", **settings: Any
) -> Files:
    """What today's transformers writes for a family, with weights in some form, some left out."""
    model, tokenizer = build(family)
    for key, value in settings.items():
        setattr(model.config, key, value)
    files = written(tokenizer)
    files["config.json"] = as_json(json.loads(model.config.to_json_string(use_diff=False)))
    kept = {
        name: values.clone()
        for name, values in model.state_dict().items()
        if not name.startswith(without)
    }
    return {**files, **WEIGHTS[weights](kept)}


def written(tokenizer: Any) -> Files:
    """The files of a tokenizer."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def deberta_v3(vocabulary: str = "spm.model") -> Files:
    """Half precision, a SentencePiece vocabulary alone, and a head under names of its own."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        vocab_size=110,
        pad_id=0,
        pad_piece="[PAD]",
        bos_id=1,
        bos_piece="[CLS]",
        eos_id=2,
        eos_piece="[SEP]",
        unk_id=3,
        unk_piece="[UNK]",
        minloglevel=2,
    )
    native, _ = build("deberta-v2")
    native.resize_token_embeddings(128)
    tensors = {
        name: values.half()
        for name, values in native.state_dict().items()
        if name.startswith("deberta.")
    }
    tensors["lm_predictions.lm_head.dense.bias"] = torch.zeros(32)
    config = json.loads(native.config.to_json_string(use_diff=False))
    return {
        "config.json": as_json({**config, "vocab_size": 128}),
        "pytorch_model.bin": pickled(tensors, zipped=False),
        vocabulary: model.getvalue(),
        "tokenizer_config.json": as_json({"do_lower_case": False, "vocab_type": "spm"}),
    }


#: By hub id: what its owner ships.
REPOSITORIES: dict[str, Callable[[], Files]] = {
    "google-bert/bert-base-uncased": lambda: saved("bert"),
    "FacebookAI/roberta-base": lambda: saved("roberta"),
    "allenai/scibert_scivocab_uncased": lambda: old_bert(cased=False),
    "allenai/scibert_scivocab_cased": lambda: old_bert(cased=True),
    "emilyalsentzer/Bio_ClinicalBERT": lambda: old_bert(cased=True),
    "medicalai/ClinicalBERT": clinicalbert,
    "dmis-lab/biobert-v1.1": lambda: body_only(True, "pytorch_model.bin"),
    "dmis-lab/biobert-base-cased-v1.1": lambda: old_bert(cased=True, model_type=...),
    "dmis-lab/biobert-base-cased-v1.2": lambda: old_bert(cased=True),
    "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract-fulltext": lambda: old_bert(cased=False),
    "sentence-transformers/all-MiniLM-L6-v2": lambda: body_only(False, "model.safetensors"),
    "distilbert/distilbert-base-uncased": lambda: saved("distilbert"),
    "facebook/bart-base": lambda: saved("bart"),
    "google/electra-base-discriminator": lambda: saved(
        "electra", weights="pytorch_model.bin", without="generator_"
    ),
    "microsoft/deberta-v3-base": deberta_v3,
    "answerdotai/ModernBERT-base": lambda: saved("modernbert"),
    "albert/albert-base-v2": lambda: saved("albert"),
    "microsoft/mpnet-base": lambda: saved("mpnet", weights="pytorch_model.bin"),
    "EuroBERT/EuroBERT-210m": lambda: eurobert(),
    "nomic-ai/nomic-embed-text-v1.5": lambda: nomic(),
    "chandar-lab/NeoBERT": lambda: {
        **saved("bert"),
        "config.json": as_json(
            {**BERT_CONFIG, "model_type": "neobert", "auto_map": {"AutoModel": "model.NeoBERT"}}
        ),
    },
}


def eurobert() -> Files:
    """Classes in the repository itself, which transformers has since."""
    code = f"import os\nos.mkdir({OWN_CODE!r})\n".encode()
    files = saved("eurobert", auto_map={"AutoModel": "modeling_eurobert.EuroBertModel"})
    settings = json.loads(files["tokenizer_config.json"])
    settings["auto_map"] = {"AutoTokenizer": ["modeling_eurobert.Tokenizer", None]}
    files["tokenizer_config.json"] = as_json(settings)
    return {**files, "modeling_eurobert.py": code}


def nomic() -> Files:
    """NomicBERT under the names of its own code: joined projections, no prefix, no head."""
    files = saved("nomic_bert")
    model, _ = build("nomic_bert")
    renamed = {
        "layers": "encoder.layers",
        "embeddings.LayerNorm": "emb_ln",
        "self_attn.o_proj": "attn.out_proj",
        "up_proj": "fc11",
        "gate_proj": "fc12",
        "down_proj": "fc2",
        "post_attention_layernorm": "norm1",
        "post_mlp_layernorm": "norm2",
    }
    tensors = {}
    for name, values in model.nomic_bert.state_dict().items():
        for new, old in renamed.items():
            name = name.replace(new, old, 1)
        tensors[name] = values.clone()
    for layer in range(2):
        parts = [
            tensors.pop(f"encoder.layers.{layer}.self_attn.{part}_proj.weight") for part in "qkv"
        ]
        tensors[f"encoder.layers.{layer}.attn.Wqkv.weight"] = torch.cat(parts)
    config = json.loads(files["config.json"])
    config["auto_map"] = {"AutoModel": "nomic-ai/nomic-bert-2048--modeling.NomicBertModel"}
    return {**files, "config.json": as_json(config), **WEIGHTS["model.safetensors"](tensors)}


def write(folder: Path, files: Files) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_cache(hub: Path, repository: str, files: Files) -> str:
    """Write a repository as huggingface_hub caches it; return the commit."""
    root = hub / f"models--{repository.replace('/', '--')}"
    commit = f"{len(repository):040x}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(commit)
    write(root / "snapshots" / commit, files)
    return commit
