"""The settings of the agent that a model was trained as, written beside its weights (``hf_model`` reads them).

``SAVE_PATH/mem_agent.yaml`` has all settings of the run. Of those a model gets what says how its agent reads and
answers, none that says where things are or how answers are sampled. Prompts come along as a file; a class of the
user's (``AGENT=file.py:Name``) does not, so its absolute path stays, with a comment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..config import SETTINGS_FILE, ConfigError, read_yaml
from ..system.files import write_atomically

AGENT_FIELDS = (
    "AGENT", "AGENT_ARGS", "TASK", "TASK_ARGS", "MEM_CHUNK_TOKENS", "MEM_MAX_MEMORY", "MEM_MAX_FINAL",
    "MEM_MAX_QUESTION", "MEM_LAYOUT", "MEM_PROMPTS", "MEM_THINKING",
)
"""What a model takes along."""
PROMPTS_FILE = "mem_agent_prompts.yaml"
_HEAD = "# How this model was trained to read. Evaluation takes these settings where its environment has none.\n"


def settings_of_run(run: Path) -> dict[str, bytes]:
    """Files for a model that was trained in ``run``, by name; none where the run has left no settings.

    Raises:
        ConfigError: what it has left is damaged, or names prompts that are gone.
    """
    source = run / SETTINGS_FILE
    if not source.is_file():
        return {}
    of_run = read_yaml(source)
    settings = {name: of_run[name] for name in AGENT_FIELDS if name in of_run}
    files: dict[str, bytes] = {}
    if settings.get("MEM_PROMPTS"):
        prompts = Path(str(settings["MEM_PROMPTS"]))
        if not prompts.is_file():
            raise ConfigError(f"{source}: MEM_PROMPTS={str(prompts)!r} is gone; put it back, or remove {source}")
        files[PROMPTS_FILE], settings["MEM_PROMPTS"] = prompts.read_bytes(), PROMPTS_FILE
    text = _HEAD + _warning(settings) + yaml.safe_dump({"mem_agent": settings}, sort_keys=False)
    return files | {SETTINGS_FILE: text.encode()}


def _warning(settings: dict[str, Any]) -> str:
    """About files that stay where they are; ``write_settings`` has made the paths of classes absolute."""
    here = [name for name in ("AGENT", "TASK") if ".py:" in str(settings.get(name))]
    here += [name for name in ("AGENT_ARGS", "TASK_ARGS") if "=/" in str(settings.get(name))]
    return f"# {', '.join(here)}: of the machine that trained; set the variable on another one.\n" if here else ""


def shared_settings(models: Sequence[Path]) -> dict[str, bytes] | None:
    """The files that all of ``models`` have alike; None where they differ."""
    of_models = [_files_of(model) for model in models]
    return of_models[0] if all(files == of_models[0] for files in of_models) else None


def _files_of(model: Path) -> dict[str, bytes]:
    paths = [model / name for name in (SETTINGS_FILE, PROMPTS_FILE)]
    return {path.name: path.read_bytes() for path in paths if path.is_file()}


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    for name, content in files.items():
        write_atomically(folder / name, content)
