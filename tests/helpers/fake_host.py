"""A checkout with what the launcher reads of slime or vime, and model folders of the sizes the recipes are for."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from dotenv import dotenv_values
from safetensors.torch import save_file

from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

FLAGS = (
    "custom-config-path", "custom-convert-samples-to-train-data-path", "custom-eval-rollout-log-function-path",
    "custom-generate-function-path", "custom-megatron-init-path", "custom-rm-path", "num-steps-per-rollout",
    "custom-rollout-log-function-path", "dynamic-sampling-filter-path", "eval-function-path", "rollout-function-path",
    "use-dynamic-batch-size",
)
_NAMES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
          "vocab_size", "max_position_embeddings")
_SIZES = {
    "qwen3-4b": (2560, 36, 32, 8, 9728, 151936, 40960),
    "qwen3-4b-2507": (2560, 36, 32, 8, 9728, 151936, 262144),
    "qwen3-0.6b": (1024, 28, 16, 8, 3072, 151936, 40960),
    "qwen2.5-7b": (3584, 28, 28, 4, 18944, 152064, 32768),
    "qwen2.5-3b": (2048, 36, 16, 2, 11008, 151936, 32768),
    "qwen2.5-0.5b": (896, 24, 14, 2, 4864, 151936, 32768),
    "qwen2.5-14b": (5120, 48, 40, 8, 13824, 152064, 32768),
    "qwen2.5-1.5b": (1536, 28, 12, 2, 8960, 151936, 32768),
    "falcon3-1b": (2048, 18, 8, 4, 8192, 131072, 8192),
    "smollm2-1.7b": (2048, 24, 32, 32, 8192, 49152, 8192),
    "smollm2-135m": (576, 30, 9, 3, 1536, 49152, 8192),
    "llama-3.2-1b": (2048, 16, 32, 8, 8192, 128256, 131072),
}
KINDS = {"qwen3": {"model_type": "qwen3", "head_dim": 128}, "qwen2.5": {"model_type": "qwen2"}}
LLAMA = {"model_type": "llama", "rms_norm_eps": 1e-5}
OTHERS = {
    "qwen3-4b-2507": {"rope_theta": 5000000.0},
    "falcon3-1b": LLAMA | {"rms_norm_eps": 1e-6, "head_dim": 256, "rope_theta": 1000042},
    "smollm2-1.7b": LLAMA | {"rope_theta": 130000, "tie_word_embeddings": True},
    "smollm2-135m": LLAMA | {"rope_theta": 100000, "tie_word_embeddings": True},
    "llama-3.2-1b": LLAMA | {"head_dim": 64, "rope_theta": 500000.0, "tie_word_embeddings": True, "rope_scaling": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192}},
}
MODELS = {
    name: dict(zip(_NAMES, sizes, strict=True)) | KINDS.get(name.partition("-")[0], {})
    | {"tie_word_embeddings": sizes[5] == 151936} | OTHERS.get(name, {}) for name, sizes in _SIZES.items()
}
"""``config.json`` of the models on the hub, as far as their size goes."""
ROTARY = {"rope_theta": 1000000.0, "rms_norm_eps": 1e-6}
RECIPES = {
    # recipe -> the model it is for
    "qwen3-4b": "qwen3-4b", "qwen2.5-7b": "qwen2.5-7b", "qwen2.5-3b": "qwen2.5-3b", "qwen2.5-0.5b": "qwen2.5-0.5b",
    "qwen3-0.6b-24gb": "qwen3-0.6b", "rememr1-qwen2.5-3b": "qwen2.5-3b", "rememr1-qwen2.5-7b": "qwen2.5-7b",
    "qwen2.5-14b": "qwen2.5-14b", "memory-r": "qwen2.5-0.5b", "memsifter-qwen3-4b": "qwen3-4b-2507",
}
GPU_GIB = {"qwen3-0.6b-24gb": 24, "memsifter-qwen3-4b": 141}
"""Memory of the GPUs that a recipe is for, unless that is 80 GiB."""
OUTSIDE = {"memsifter-qwen3-4b": {"ANSWER_URL": "http://10.0.0.9:8000/v1"}}
"""What a recipe needs beside the host and its data."""


def recipe(name: str) -> dict[str, str]:
    """The settings in ``recipes/<name>.env``, of their variables PACK_DIR alone put in."""
    pack = Path(__file__).parents[2]
    values = dotenv_values(pack / "recipes" / f"{name}.env", interpolate=False)
    return {name: str(value).replace("${PACK_DIR}", str(pack)) for name, value in values.items()}


def make_model(folder: Path, name: str, **changes) -> Path:
    """``config.json`` and a small tokenizer; of weights a file, which nothing before the conversion reads."""
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer().save_pretrained(folder)
    save_file({"model.norm.weight": torch.ones(1)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(ROTARY | MODELS[name] | changes))
    return folder


def make_host(root: Path, name: str = "slime", *, without: str = "") -> Path:
    """A checkout; ``without`` leaves a flag out."""
    package = root / name
    (package / "utils").mkdir(parents=True)
    (package / "__init__.py").touch()
    flags = "\n".join(f'add("--{flag}")' for flag in FLAGS if flag != without)
    (package / "utils" / "arguments.py").write_text(flags)
    for driver in ("train.py", "train_async.py"):
        (root / driver).touch()
    return root


def settings(tmp_path: Path, host: str = "slime", model: str = "qwen3-4b", **changes: str) -> dict[str, str]:
    """Environment of a launch that works, with its files made."""
    train = tmp_path / "train.jsonl"
    if not train.exists():
        row = {"prompt": "q", "label": "a", "metadata": {"context": "c", "ground_truth": ["a"]}}
        train.write_text(f"{json.dumps(row)}\n" * 300)
        make_host(tmp_path / host, host)
        (tmp_path / "megatron" / "megatron" / "training").mkdir(parents=True)
        make_model(tmp_path / "model", model)
    folders = {"HOST_ROOT": host, "MEGATRON_ROOT": "megatron", "HF_CKPT": "model", "SAVE_PATH": "run"}
    made = {name: str(tmp_path / folder) for name, folder in folders.items()}
    return {"HOST": host, "TRAIN_DATA": str(train), "NUM_GPUS": "8"} | made | changes
