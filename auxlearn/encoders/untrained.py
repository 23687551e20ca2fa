"""Small encoders with random weights, for checks that need no pretrained one."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from auxlearn import rng
from auxlearn.encoder_names import encoder_source
from auxlearn.encoders.quiet import quiet_transformers


def save_untrained(folder: Path, *, layers: int = 1, size: int = 32, seed: int = 0) -> Path:
    """Write a BERT with random weights and the tokenizer of ``tiny`` as a transformers folder.

    Args:
        folder: The folder, created if it does not exist.
        layers: Number of layers.
        size: Hidden size, a multiple of 16.
        seed: Seed of the weights.

    Returns:
        The folder.
    """
    source = encoder_source("tiny")
    with quiet_transformers(), rng.seeded(seed, "untrained"):
        config = AutoConfig.from_pretrained(
            source,
            num_hidden_layers=layers,
            hidden_size=size,
            intermediate_size=2 * size,
            num_attention_heads=size // 16,
            trust_remote_code=False,
        )
        model = AutoModelForMaskedLM.from_config(config, trust_remote_code=False)
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(source, trust_remote_code=False).save_pretrained(folder)
    return folder
