"""A checkout with what the launcher reads of slime or vime, and model folders of the sizes the recipes are for."""

from __future__ import annotations

import json
from pathlib import Path

from dotenv import dotenv_values

from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

FLAGS = (
    "custom-config-path", "custom-convert-samples-to-train-data-path", "custom-eval-rollout-log-function-path",
    "custom-generate-function-path", "custom-megatron-init-path", "custom-rm-path",
    "custom-rollout-log-function-path",
    "dynamic-sampling-filter-path", "eval-function-path", "num-steps-per-rollout", "rollout-function-path",
    "use-dynamic-batch-size",
)
MODELS = {
    # config.json of the models on the hub, as far as their size goes
    "qwen3-4b": {"model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32,
                 "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936,
                 "tie_word_embeddings": True, "max_position_embeddings": 40960},
    "qwen3-4b-2507": {"model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32,
                      "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936,
                      "tie_word_embeddings": True, "max_position_embeddings": 262144, "rope_theta": 5000000.0},
    "qwen3-0.6b": {"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
                   "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936,
                   "tie_word_embeddings": True, "max_position_embeddings": 40960},
    "qwen2.5-7b": {"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
                   "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
                   "tie_word_embeddings": False, "max_position_embeddings": 32768},
    "qwen2.5-3b": {"model_type": "qwen2", "hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16,
                   "num_key_value_heads": 2, "intermediate_size": 11008, "vocab_size": 151936,
                   "tie_word_embeddings": True, "max_position_embeddings": 32768},
    "qwen2.5-0.5b": {"model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
                     "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151936,
                     "tie_word_embeddings": True, "max_position_embeddings": 32768},
    "qwen2.5-14b": {"model_type": "qwen2", "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40,
                    "num_key_value_heads": 8, "intermediate_size": 13824, "vocab_size": 152064,
                    "tie_word_embeddings": False, "max_position_embeddings": 32768},
    "qwen2.5-1.5b": {"model_type": "qwen2", "hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12,
                     "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151936,
                     "tie_word_embeddings": True, "max_position_embeddings": 32768},
    "falcon3-1b": {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 18, "num_attention_heads": 8,
                   "num_key_value_heads": 4, "head_dim": 256, "intermediate_size": 8192, "vocab_size": 131072,
                   "tie_word_embeddings": False, "max_position_embeddings": 8192, "rope_theta": 1000042},
    "smollm2-1.7b": {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
                     "num_key_value_heads": 32, "intermediate_size": 8192, "vocab_size": 49152,
                     "tie_word_embeddings": True, "max_position_embeddings": 8192, "rope_theta": 130000,
                     "rms_norm_eps": 1e-5},
    "llama-3.2-1b": {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
                     "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192, "vocab_size": 128256,
                     "tie_word_embeddings": True, "max_position_embeddings": 131072, "rope_theta": 500000.0,
                     "rms_norm_eps": 1e-5, "rope_scaling": {
                         "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192}},
}
ROW = '{"prompt": "q", "label": "a", "metadata": {"context": "c", "ground_truth": ["a"]}}\n'
ROTARY = {"rope_theta": 1000000.0, "rms_norm_eps": 1e-6}
RECIPES = {
    # recipe -> the model it is for
    "qwen3-4b": "qwen3-4b", "qwen2.5-7b": "qwen2.5-7b", "qwen2.5-3b": "qwen2.5-3b", "qwen2.5-0.5b": "qwen2.5-0.5b",
    "qwen3-0.6b-24gb": "qwen3-0.6b", "rememr1-qwen2.5-3b": "qwen2.5-3b", "rememr1-qwen2.5-7b": "qwen2.5-7b",
    "qwen2.5-14b": "qwen2.5-14b", "memory-r": "qwen2.5-0.5b",
    "memsifter-qwen3-4b": "qwen3-4b-2507",
}
GPU_GIB = {"qwen3-0.6b-24gb": 24, "memsifter-qwen3-4b": 141}
"""Memory of the GPUs that a recipe is for, unless that is 80 GiB."""
OUTSIDE = {"memsifter-qwen3-4b": {"ANSWER_URL": "http://10.0.0.9:8000/v1"}}
"""What a recipe needs beside the host and its data."""


def recipe(name: str) -> dict[str, str]:
    """The settings in ``recipes/<name>.env``, unexpanded."""
    values = dotenv_values(Path(__file__).parents[2] / "recipes" / f"{name}.env", interpolate=False)
    return {name: str(value) for name, value in values.items()}


def make_model(folder: Path, name: str, **changes) -> Path:
    """``config.json`` and a small tokenizer; no weights, which nothing before the conversion reads."""
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(ROTARY | MODELS[name] | changes))
    return folder


def make_host(root: Path, name: str = "slime", *, train: str = "", without: str = "") -> Path:
    """A checkout whose ``train.py`` is ``train``; ``without`` leaves a flag or a file out."""
    package = root / name
    (package / "utils").mkdir(parents=True)
    (package / "__init__.py").touch()
    flags = "\n".join(f'add("--{flag}")' for flag in FLAGS if flag != without)
    (package / "utils" / "arguments.py").write_text(flags)
    for driver in ("train.py", "train_async.py"):
        (root / driver).write_text(train)
    return root


def make_megatron(root: Path) -> Path:
    (root / "megatron" / "training").mkdir(parents=True)
    return root


def settings(tmp_path: Path, host: str = "slime", model: str = "qwen3-4b", **changes: str) -> dict[str, str]:
    """Environment of a launch that works, with its files made."""
    train = tmp_path / "train.jsonl"
    if not train.exists():
        train.write_text(ROW * 200)
        make_host(tmp_path / host, host)
        make_megatron(tmp_path / "megatron")
        make_model(tmp_path / "model", model)
    return {
        "HOST": host, "HOST_ROOT": str(tmp_path / host), "MEGATRON_ROOT": str(tmp_path / "megatron"),
        "HF_CKPT": str(tmp_path / "model"), "TRAIN_DATA": str(train), "SAVE_PATH": str(tmp_path / "run"),
        "NUM_GPUS": "8",
    } | changes
