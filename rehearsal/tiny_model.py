"""A model of the user's family with random weights and the user's own tokenizer, for rehearsals of what is too big."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ..checkpoints.hf_folder import TOKENIZER_FILES, weights_named
from ..config import ConfigError
from ..system.atomic_file import write_atomically
from ..system.model_requests import refuse_other_models
from ..system.model_sizes import check_sizes


def write_tiny_model(content: Mapping[str, Any], tokenizer: Path, folder: Path) -> None:
    """Write a Hugging Face folder with ``content`` as its ``config.json``; the weights are a function of it alone.

    Args:
        tokenizer: the folder whose tokenizer it gets.

    Raises:
        ConfigError: transformers makes no model of such a configuration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in (*TOKENIZER_FILES, "generation_config.json"):
        for file in tokenizer.glob(pattern):
            shutil.copy(file, folder / file.name)
    text = json.dumps({k: v for k, v in content.items() if v is not None}, indent=1)
    write_atomically(folder / "config.json", text.encode())
    check_sizes(folder)  # what was not made small is somebody else's yet
    refuse_other_models(folder)
    try:
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder, trust_remote_code=False), attn_implementation="eager",
            dtype=torch.float32, trust_remote_code=False,
        )
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"HF_CKPT={str(tokenizer)!r}: no small model of its family can be made: {reason}") from None
    with weights_named(folder):
        model.save_pretrained(folder)
