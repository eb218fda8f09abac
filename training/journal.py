"""Rollouts on disk, so that a killed run trains on exactly what it had sampled.

``<save>/rollouts/rollout_0000017.json`` is written, atomically, before rollout 17 is trained on. A run that resumes
from checkpoint 14 replays 15, 16 and 17 from these files without sampling; since training is deterministic, it
arrives at the same weights, bit for bit. Files that not even the oldest kept checkpoint needs are removed.

Invariants:
- a replay is refused when settings that shape a rollout have changed since (the fingerprint differs);
- a rollout is replayed behind the one it was sampled behind: where one is sampled again, its record and those after it
  are removed, and a warning says so.
"""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from ..config import Config
from ..data.training_file import data_bytes
from ..system.files import remove_drafts, write_atomically
from ..system.plugins import name_by_content

logger = logging.getLogger("mem_agent")

PLACES = (
    "HOST", "SAVE_PATH", "DATA_ROOT", "TRACKER", "TRUST_REMOTE_CODE", "ANSWER_URL",
    "NUM_ROLLOUT", "OVER_SAMPLING_BATCH_SIZE", "SAVE_INTERVAL", "KEEP_CHECKPOINTS", "KEEP_TRAJECTORIES",
    "MEM_CONCURRENCY", "NUM_ENGINES",
    "LENGTH", "EVAL_TEMPERATURE", "EVAL_TOP_P", "EVAL_SAMPLES", "EVAL_MODE", "EVAL_INTERVAL", "EVAL_DATA", "BASE_URL",
    "EVAL_API",
)
"""Settings under which a rollout may be replayed whatever they are: where things are, how long, how fast, what is
evaluated. Every other setting of the run is in its fingerprint."""

_NAME = re.compile(r"rollout_(\d{7})\.json")


@dataclass(frozen=True, slots=True)
class Rollout:
    """What one rollout hands to the trainer."""

    train_data: dict[str, list[Any]]
    next_group: int
    metrics: dict[str, float]


def fingerprint(config: Config) -> str:
    """A hash of the settings under which two runs must behave alike, and of what the files hold that they name."""
    values = config.with_absolute_paths().to_mapping()  # a run may be continued from another folder
    values = {name: value for name, value in values.items() if name not in PLACES}
    classes = {"AGENT": (config.agent,), "TASK": config.tasks, "REWARD": (config.reward,)}
    values |= {name: [name_by_content(one) for one in names] for name, names in classes.items()}
    values["MEM_PROMPTS"] = Path(config.mem_prompts).read_text(encoding="utf-8") if config.mem_prompts else ""
    values["train_data_bytes"] = data_bytes(config.train_data) if config.train_data else 0
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


class Journal:
    def __init__(self, save_path: str | Path, config: Config) -> None:
        self.folder = Path(save_path) / "rollouts"
        self._fingerprint = fingerprint(config)

    def write(self, number: int, rollout: Rollout) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_drafts(self.folder)
        if later := self.remove_from(number):
            logger.warning("rollout %d was sampled again; removed with what followed: %s", number + 1, later)
        record = {"fingerprint": self._fingerprint, **asdict(rollout)}
        write_atomically(self._path(number), orjson.dumps(record))

    def read(self, number: int) -> Rollout | None:
        """The rollout, or None if it was not written, cannot be read, or was written under other settings."""
        path = self._path(number)
        try:
            record = orjson.loads(path.read_bytes())
            return Rollout(**record) if record.pop("fingerprint") == self._fingerprint else None
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            logger.warning("%s is damaged (%s); rollout %d is sampled again", path, error, number + 1)
            return None

    def first_lacking(self, number: int) -> int:
        """The first rollout from ``number`` on that cannot be replayed."""
        return next(n for n in count(number) if self.read(n) is None)

    def remove_from(self, first: int) -> str:
        """Remove the records from ``first`` on; their names, for people."""
        later = [path for number, path in self._records() if number >= first]
        for path in later:
            path.unlink()
        return ", ".join(path.name for path in later)

    def forget(self, up_to: int) -> None:
        """Remove the rollouts that checkpoint ``up_to`` has absorbed."""
        for number, path in self._records():
            if number <= up_to:
                path.unlink()

    def _records(self) -> list[tuple[int, Path]]:
        found = [(_NAME.fullmatch(path.name), path) for path in self.folder.glob("rollout_*.json")]
        return sorted((int(match[1]), path) for match, path in found if match)

    def _path(self, number: int) -> Path:
        return self.folder / f"rollout_{number:07d}.json"
