"""Rollouts on disk, so that a killed run trains on exactly what it had sampled.

``<save>/rollouts/rollout_0000017.json`` is written, atomically, before rollout 17 is trained on. A run that resumes
from checkpoint 14 replays 15, 16 and 17 from these files without sampling; since training is deterministic, it
arrives at the same weights, bit for bit. Files that not even the oldest kept checkpoint needs are removed.

A record begins with the hash of the rest of its bytes, and says its number::

    {"sha256":"9f86d0...","number":17,"fingerprint":"...","train_data":{...},"next_group":9,"metrics":{...}}

Invariants:
- a replay is refused when settings that shape a rollout have changed since (the fingerprint differs), and when the
  record is not as it was written, or is a copy of another rollout's;
- a rollout is replayed behind the one it was sampled behind: where one is sampled again, its record, refused or
  damaged, and those after it are put aside, under ``rollout_0000017.json.1``. Nothing is deleted, a warning says it;
- records of older versions have no number, or no hash either, and are replayed without that check.
"""

from __future__ import annotations

import hashlib
import logging
import re
from dataclasses import asdict, dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any, cast

import orjson

from ..agents import training_settings
from ..config import Config
from ..data.training_file import data_bytes
from ..system import bounded_json
from ..system.atomic_file import remove_drafts, write_atomically
from ..system.errors import MemAgentError
from ..system.removal import remove_or_tell

logger = logging.getLogger("mem_agent")

_NAME = re.compile(r"rollout_(\d{7})\.json")
_HASH = re.compile(rb'\{"sha256":"([0-9a-f]{64})",')


MOST_GROUPS = 2**53
"""A run that has sampled as many is none; and JSON holds no larger number exactly."""


class DamagedRecord(MemAgentError):
    """A record of the journal is not what was written: the message names the file and the problem."""


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
        remove_drafts(self.folder)
        if aside := self.put_aside(number):
            logger.warning("rollout %d was sampled anew; put aside, with what followed: %s", number + 1, aside)
        body = orjson.dumps({"number": number, "fingerprint": self._fingerprint, **asdict(rollout)})
        head = b'{"sha256":"%b",' % hashlib.sha256(body).hexdigest().encode()
        write_atomically(self._path(number), head + body[1:])

    def read(self, number: int) -> Rollout | None:
        """The rollout, or None if it was not written, is damaged, or was written under other settings."""
        path = self._path(number)
        if not path.exists():
            return None
        try:
            content = _content(path)
            if (said := content.pop("number", number)) != number:
                raise DamagedRecord(f"{path}: is the record of rollout {said + 1}")
        except DamagedRecord as error:
            logger.warning("%s; rollout %d is sampled anew; put aside: %s", error, number + 1, self.put_aside(number))
            return None
        if content.pop("fingerprint") != self._fingerprint:
            return None
        return Rollout(**content)

    def first_lacking(self, number: int) -> int:
        """The first rollout from ``number`` on that cannot be replayed."""
        return next(n for n in count(number) if self.read(n) is None)

    def put_aside(self, first: int) -> str:
        """Move the records from ``first`` on out of the way; their names, for people."""
        aside = [path for number, path in self._records() if number >= first]
        for path in aside:
            path.rename(next(new for n in count(1) if not (new := path.with_name(f"{path.name}.{n}")).exists()))
        return ", ".join(path.name for path in aside)

    def forget(self, up_to: int) -> None:
        """Remove the rollouts that checkpoint ``up_to`` has absorbed."""
        for number, path in self._records():
            if number <= up_to and (path.is_file() or path.is_symlink()):
                remove_or_tell(path)

    def _records(self) -> list[tuple[int, Path]]:
        found = [(_NAME.fullmatch(path.name), path) for path in self.folder.glob("rollout_*.json")]
        return sorted((int(match[1]), path) for match, path in found if match)

    def _path(self, number: int) -> Path:
        return self.folder / f"rollout_{number:07d}.json"


def _content(path: Path) -> dict[str, Any]:
    """What a record holds beside its hash. Raises DamagedRecord."""
    if not path.is_file():
        raise DamagedRecord(f"{path}: is no file")
    content = path.read_bytes()
    head = _HASH.match(content)
    if head:
        content = b"{" + content[head.end():]
        if hashlib.sha256(content).hexdigest().encode() != head[1]:
            raise DamagedRecord(f"{path}: is not as it was written, its hash is another")
    else:
        logger.info("%s has no hash: it is replayed without a check", path)
    try:
        record = bounded_json.loads(content)
    except ValueError as error:
        raise DamagedRecord(f"{path}: cannot be read as JSON: {error}") from None
    if not _is_rollout(record):
        raise DamagedRecord(f"{path}: holds no rollout")
    return cast("dict[str, Any]", record)


def _is_rollout(record: Any) -> bool:
    return (
        isinstance(record, dict)
        and record.keys() - {"number"} == {"fingerprint", *(field.name for field in fields(Rollout))}
        and type(record.get("number", 0)) is int
        and isinstance(record["train_data"], dict)
        and all(isinstance(column, list) for column in record["train_data"].values())
        and type(record["next_group"]) is int
        and 0 <= record["next_group"] < MOST_GROUPS
        and isinstance(record["metrics"], dict)
        and all(isinstance(value, int | float | None) for value in record["metrics"].values())
    )
