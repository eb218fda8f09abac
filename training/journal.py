"""Rollouts on disk, so that a killed run trains on exactly what it had sampled.

``<save>/rollouts/rollout_0000017.json`` is written, atomically, before rollout 17 is trained on. A run that resumes
from checkpoint 14 replays 15, 16 and 17 from these files without sampling; since training is deterministic, it
arrives at the same weights, bit for bit. Files that not even the oldest kept checkpoint needs are removed.

A replay is refused when settings that shape a rollout have changed since (the fingerprint differs).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from ..agents import training_settings
from ..config import Config
from ..data.training_file import data_bytes
from ..system.atomic_file import write_atomically

_NAME = re.compile(r"rollout_(\d{7})\.json$")


@dataclass(frozen=True, slots=True)
class Rollout:
    """What one rollout hands to the trainer."""

    train_data: dict[str, list[Any]]
    next_group: int
    metrics: dict[str, float]


def fingerprint(config: Config) -> str:
    """A hash of the settings under which two runs must behave alike, and of what the files hold that they name."""
    values = training_settings(config.with_absolute_paths())  # a run may be continued from another folder
    values["train_data_bytes"] = data_bytes(config.train_data) if config.train_data else 0
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


class Journal:
    def __init__(self, save_path: str | Path, config: Config) -> None:
        self.folder = Path(save_path) / "rollouts"
        self._fingerprint = fingerprint(config)

    def write(self, number: int, rollout: Rollout) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path(number), orjson.dumps({"fingerprint": self._fingerprint, **asdict(rollout)}))

    def read(self, number: int) -> Rollout | None:
        """The rollout, or None if it was not written whole, or was written under other settings."""
        path = self._path(number)
        if not path.is_file():
            return None
        try:
            content = orjson.loads(path.read_bytes())
        except orjson.JSONDecodeError:
            return None
        if content.pop("fingerprint") != self._fingerprint:
            return None
        return Rollout(**content)

    def forget(self, up_to: int) -> None:
        """Remove the rollouts that checkpoint ``up_to`` has absorbed."""
        for path in self.folder.glob("rollout_*.json"):
            match = _NAME.search(path.name)
            if match and int(match[1]) <= up_to:
                path.unlink()

    def _path(self, number: int) -> Path:
        return self.folder / f"rollout_{number:07d}.json"
