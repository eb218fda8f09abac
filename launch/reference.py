"""The reference model as a torch_dist checkpoint, made from the Hugging Face folder when it is not there.

Made in a hidden folder beside its place and renamed when complete, so a half-converted model is never trained from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..checkpoints.folders import TRACKER
from ..config import Config, ConfigError
from ..system.errors import MemAgentError
from ..system.process_environment import without_secrets
from ..system.python_command import python_module
from .checkout import Checkout


def default_folder(config: Config) -> Path:
    """TORCH_DIST, or as the hosts do: beside the Hugging Face folder, with ``_torch_dist``; SAVE_PATH for a hub id."""
    model = Path(config.hf_ckpt).expanduser()
    beside = model.absolute() if model.is_dir() else Path(config.save_path) / model.name
    return Path(config.torch_dist or f"{beside}_torch_dist").expanduser().absolute()


def has_checkpoint(folder: Path) -> bool:
    """Whether ``folder`` holds a torch_dist checkpoint.

    Raises:
        ConfigError: something else is in its place.
    """
    if (folder / TRACKER).is_file():
        return True
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"TORCH_DIST={str(folder)!r}: holds files, but no checkpoint; name another folder")
    return False


def conversion_command(config: Config, checkout: Checkout, model: list[str], output: Path) -> list[str]:
    if config.torch_dist_writer == "pack":
        writer = "mem_agent.checkpoints.hf_to_torch_dist"
        return python_module(writer, "--hf", config.hf_ckpt, "--output", str(output))
    tool = checkout.tool("convert_hf_to_torch_dist.py")
    return [sys.executable, str(tool), *model, "--hf-checkpoint", config.hf_ckpt, "--save", str(output)]


def draft_folder(folder: Path) -> Path:
    """Where the conversion for ``folder`` writes; this process's own, as two launches may convert the same model."""
    return folder.with_name(f".{folder.name}.{os.getpid()}.writing")


_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")


def convert_reference(command: list[str], python_path: str, folder: Path, cwd: Path) -> None:
    """Run the conversion ``command``, which writes ``draft_folder(folder)``, and rename the result to ``folder``."""
    draft = draft_folder(folder)
    # In an allocation of many the host's tool would wait for ranks that nobody starts.
    single = {name: value for name, value in without_secrets(os.environ).items() if name not in _RANK_VARIABLES}
    environment = single | {"PYTHONPATH": python_path, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        code = subprocess.run(command, env=environment, cwd=cwd).returncode
        if code or not (draft / TRACKER).is_file():
            raise MemAgentError(
                f"the conversion of the reference model ended with code {code}, see above; set TORCH_DIST to a "
                "converted model, or TORCH_DIST_WRITER=pack to convert without a GPU"
            )
        if not has_checkpoint(folder):
            if folder.exists():
                folder.rmdir()
            draft.rename(folder)
    except OSError as error:
        if has_checkpoint(folder):  # of another launch, which was quicker
            return
        raise MemAgentError(f"TORCH_DIST={str(folder)!r} cannot be written: {error}; name another folder") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
