"""A model of the user's family with random weights and the user's own tokenizer, for rehearsals of what is too big."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ..checkpoints.hf_folder import copy_model_files
from ..config import ConfigError
from ..system.errors import reason_of
from ..system.files import naming, write_atomically


def write_tiny_model(content: Mapping[str, Any], tokenizer: Path, folder: Path) -> None:
    """Write a Hugging Face folder with ``content`` as its ``config.json``; the weights are a function of it alone.

    Args:
        tokenizer: the folder whose tokenizer it gets.

    Raises:
        ConfigError: transformers makes no model of such a configuration.
        OSError: most often the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copy_model_files(tokenizer, folder)
    text = json.dumps({k: v for k, v in content.items() if v is not None}, indent=1)
    write_atomically(folder / "config.json", text.encode())
    torch.manual_seed(1)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"HF_CKPT={str(tokenizer)!r}: no small model of its family can be made: "
                          f"{reason_of(error)}") from error
    with naming(folder):
        model.save_pretrained(folder)
