"""The pocket model: a Qwen3 of 2.6 million weights, and the random weights its training starts from.

The plain initialisation (every matrix with a deviation of 0.02) suits wide models; at a width of 256 it leaves the
token embeddings weaker than what the first block adds to them.  So the embeddings start larger, and the two matrices
of each block that write to the residual stream start smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM


@dataclass(frozen=True)
class PocketModel:
    """Sizes and initialisation; ``vocab`` is the tokenizer's size rounded up to a multiple of 128."""

    vocab: int = 768
    hidden: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    ffn: int = 512
    max_positions: int = 2048
    embedding_std: float = 0.1
    output_scale: float = 0.4
    pad_id: int = 0
    end_id: int = 2


def config(shape: PocketModel) -> Qwen3Config:
    """The Hugging Face configuration."""
    return Qwen3Config(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.ffn,
        tie_word_embeddings=True,
        max_position_embeddings=shape.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        attention_dropout=0.0,
        initializer_range=0.02,
        rms_norm_eps=1e-6,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=shape.end_id,
        pad_token_id=shape.pad_id,
        dtype="float32",
    )


def initial_model(shape: PocketModel, seed: int = 0) -> Qwen3ForCausalLM:
    """Random weights, alike for a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config(shape))
        with torch.no_grad():
            model.model.embed_tokens.weight.normal_(0.0, shape.embedding_std)
            for layer in model.model.layers:
                layer.self_attn.o_proj.weight.mul_(shape.output_scale)
                layer.mlp.down_proj.weight.mul_(shape.output_scale)
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=1.0, eos_token_id=shape.end_id, pad_token_id=shape.pad_id
    )
    return model


def save_initial(folder: Path | str, shape: PocketModel, seed: int = 0) -> None:
    """Write the random weights and configuration as a Hugging Face folder (the tokenizer is saved separately)."""
    initial_model(shape, seed).save_pretrained(str(folder))
