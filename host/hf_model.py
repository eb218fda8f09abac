"""A Hugging Face model by folder or by hub id."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from ..config import ConfigError


def local_folder(name: str, variable: str = "HF_CKPT") -> Path:
    """The folder of model ``name``, downloaded if it is a hub id.

    Raises:
        ConfigError: it is neither a model folder nor a hub id that can be loaded.
    """
    if not name:
        raise ConfigError(f"{variable} is not set; name a Hugging Face model folder or hub id")
    folder = Path(name)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{variable}={name!r}: the folder has no config.json")
        return folder
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ConfigError(f"{variable}={name!r}: no such folder")
    try:
        return Path(snapshot_download(name))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{variable}={name!r}: no such folder, and not to be had from the hub: {reason}") from None
