"""How a saved state that cannot go on is refused, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...system.errors import ConfigError, reason_of

_REMEDY = "set it as it was, or start a new SAVE_PATH"


def refuse_other(file: Path, held: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raises ConfigError where ``held`` has another value of anything in ``own``."""
    for name, value in own.items():
        if held[name] != value:
            raise ConfigError(f"{file}: a memory of {name}={held[name]}, set is {name}={value}; {_REMEDY}")


def unreadable(file: Path, error: Exception) -> ConfigError:
    """The error for a file that is missing or damaged; a ConfigError stays as it is."""
    if isinstance(error, ConfigError):
        return error
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"{file}: the memory of MEM_IR is not there; {_REMEDY}")
    return ConfigError(f"{file}: the memory is damaged ({reason_of(error, 120)}); go back to a checkpoint whose "
                       "reward_state is whole, or start a new SAVE_PATH")
