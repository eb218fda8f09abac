"""Qwen3 models of random weights, made on the fly: the trainer's speed does not depend on what they learned."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

SIZES = {
    "27M": {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
            "intermediate_size": 1536, "vocab_size": 4096},
    "100M": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4,
             "intermediate_size": 2304, "vocab_size": 16384},
}


def write_random_model(size: str, folder: Path) -> Path:
    """A Hugging Face folder without a tokenizer; equal weights every time."""
    config = Qwen3Config(**SIZES[size], head_dim=64, tie_word_embeddings=True, max_position_embeddings=8192)
    disable_progress_bar()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder
