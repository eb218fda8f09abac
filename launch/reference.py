"""The reference model as a torch_dist checkpoint, made from the Hugging Face folder when it is not there.

Made in a hidden folder beside its place and renamed when complete, so a half-converted model is never trained from.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ..checkpoints.folders import TRACKER
from ..config import Config, ConfigError
from ..system.errors import MemAgentError
from ..system.files import scratch_folder
from ..system.processes import ChildProcess
from ..system.python_command import python_module
from .checkout import Checkout

logger = logging.getLogger("mem_agent")


def default_folder(config: Config) -> Path:
    """TORCH_DIST, or as the hosts do: beside the Hugging Face folder, with ``_torch_dist``; SAVE_PATH for a hub id."""
    model = Path(os.path.expanduser(config.hf_ckpt))
    beside = model.absolute() if model.is_dir() else Path(config.save_path) / model.name
    return Path(os.path.expanduser(config.torch_dist or f"{beside}_torch_dist")).absolute()


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


_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")


def convert_reference(
    command: Callable[[Path], list[str]], python_path: str, folder: Path, cwd: Path, log: Path
) -> None:
    """Run the conversion ``command(output)`` into a hidden folder, and rename the result to ``folder``."""
    # In an allocation of many the host's tool would wait for ranks that nobody starts.
    single = {name: value for name, value in os.environ.items() if name not in _RANK_VARIABLES}
    environment = single | {"PYTHONPATH": python_path, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(f".{folder.name}.writing-", folder.parent) as own:
        draft = own / folder.name
        logger.info("converting the reference model; log %s", log)
        _convert(ChildProcess("conversion", command(draft), environment, log, [own], cwd), draft)
        if not has_checkpoint(folder):  # that of another launch, which was quicker, stays
            if folder.exists():
                folder.rmdir()
            draft.rename(folder)


def _convert(conversion: ChildProcess, draft: Path) -> None:
    try:
        while conversion.exit_code is None:
            time.sleep(0.1)
        if conversion.exit_code or not (draft / TRACKER).is_file():
            raise MemAgentError(
                f"the reference model was not converted: {conversion.describe()}; set TORCH_DIST to a converted "
                "model, or TORCH_DIST_WRITER=pack to convert without a GPU"
            )
    finally:
        conversion.stop()

