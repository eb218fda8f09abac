"""A model of the user's family with random weights and the user's own tokenizer, for rehearsals of what is too big."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ..checkpoints.hf_folder import copy_model_files, weights_named
from ..config import ConfigError
from ..system.atomic_file import write_atomically
from ..system.errors import MemAgentError, reason_of
from ..system.model_requests import refuse_other_models
from ..system.model_sizes import check_sizes


def write_tiny_model(content: Mapping[str, Any], tokenizer: Path, folder: Path) -> None:
    """Write a Hugging Face folder with ``content`` as its ``config.json``; the weights are a function of it alone.

    Args:
        tokenizer: the folder whose tokenizer it gets.

    Raises:
        ConfigError: transformers makes no model of such a configuration.
        UnsupportedModel: a file of ``tokenizer`` is a link out of that folder.
        WeightsNotWritten: most often the disk is full.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copy_model_files(tokenizer, folder)
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
        with weights_named(folder):
            model.save_pretrained(folder)
    except (MemAgentError, OSError):
        raise
    except Exception as error:  # for what it cannot take the code of each family has errors of its own
        reason = reason_of(error)
        raise ConfigError(f"HF_CKPT={str(tokenizer)!r}: no small model of its family can be made: {reason}") from error
