"""How a killed run resumes: the journal of its rollouts, and the state that a checkpoint carries.

``SAVE_PATH/rollouts/rollout_0000017.json`` is written, atomically, before rollout 17 is trained on. A run that resumes
from checkpoint 14 replays 15, 16 and 17 from these files without sampling; since training is deterministic, it
arrives at the same weights, bit for bit. Files that not even the oldest kept checkpoint needs are removed.

Invariants:
- a replay is refused when settings that shape a rollout have changed since (the fingerprint differs);
- a rollout is replayed behind the one it was sampled behind: where one is sampled again, its record and those after it
  are removed, and a warning says so;
- a run keeps its start, which is its reference model, and its loss.
"""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from ..checkpoints.folders import newest_of_run, number_of, numbered, prune
from ..checkpoints.hf_model import left_settings
from ..checkpoints.model_card import PLACES
from ..config import Config, ConfigError
from ..data.training_file import data_bytes
from ..system.files import write_atomically
from ..system.plugins import name_by_content
from .ranks import is_rank_zero

logger = logging.getLogger("mem_agent")

NEUTRAL = (*PLACES, "NUM_ROLLOUT", "EVAL_TEMPERATURE", "EVAL_TOP_P", "EVAL_MODE")
"""Settings under which a rollout may be replayed whatever they are: where things are, how long, how fast, what is
evaluated. Every other setting of the run is in its fingerprint."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """What one rollout hands to the trainer."""

    train_data: dict[str, list[Any]]
    next_group: int
    metrics: dict[str, float]


def fingerprint(config: Config) -> str:
    """A hash of the settings under which two runs must behave alike, and of what the files hold that they name."""
    values = config.with_absolute_paths().to_mapping()  # a run may be continued from another folder
    values = {name: value for name, value in values.items() if name not in NEUTRAL}
    for name in ("AGENT", "TASK", "REWARD"):
        values[name] = [name_by_content(one) for one in values[name].split(",")]
    values["MEM_PROMPTS"] = Path(config.mem_prompts).read_text(encoding="utf-8") if config.mem_prompts else ""
    values["train_data_bytes"] = data_bytes(config.train_data) if config.train_data else 0
    return hashlib.sha256(orjson.dumps(values, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


class Journal:
    """The rollouts of the run in SAVE_PATH."""

    def __init__(self, config: Config) -> None:
        self.folder = Path(config.save_path) / "rollouts"
        self.fingerprint = fingerprint(config)

    def write(self, number: int, rollout: Rollout) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if old := self._records(number):
            logger.warning("rollout %d is sampled again; %s to %s are removed", number + 1, old[0].name, old[-1].name)
        for path in old:
            path.unlink()
        record = {"fingerprint": self.fingerprint, **asdict(rollout)}
        write_atomically(self._path(number), orjson.dumps(record))

    def read(self, number: int) -> Rollout | None:
        """The rollout, or None if it was not written, cannot be read, or was written under other settings."""
        path = self._path(number)
        try:
            record = orjson.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            logger.warning("%s is damaged (%s); rollout %d is sampled again", path, error, number + 1)
            return None
        return Rollout(**record) if record.pop("fingerprint") == self.fingerprint else None

    def digest(self, number: int) -> str:
        """Of the record: it was sampled from the weights before the rollout and trained those after it."""
        return hashlib.sha256(self._path(number).read_bytes()).hexdigest()[:16]

    def forget(self, before: int) -> None:
        """Remove the records before rollout ``before``, which no kept checkpoint needs."""
        for path in set(self._records()) - set(self._records(before)):
            path.unlink()

    def _records(self, first: int = 0) -> list[Path]:
        """From rollout ``first`` on. Names have equal widths, so their order is that of the rollouts."""
        return sorted(path for path in self.folder.glob("rollout_*.json") if path >= self._path(first))

    def _path(self, number: int) -> Path:
        return self.folder / f"rollout_{number:07d}.json"


# --- checkpoints ----------------------------------------------------------------------------------------------------


def kept_for_life(config: Config) -> dict[str, str]:
    """Where a run's policy and reference model come from, and its loss."""
    return {"start": os.path.realpath(config.torch_dist or config.hf_ckpt), "loss": config.loss}


def changed_settings(config: Config) -> str:
    """``LR=3e-05 (was 1e-05), ...``: the settings of a fingerprint that are others than those left in SAVE_PATH."""
    left, ours = left_settings(config.save_path), config.with_absolute_paths().to_mapping()
    return ", ".join(f"{name}={value!r} (was {left[name]!r})" for name, value in ours.items()
                     if name not in NEUTRAL and name in left and left[name] != value)


def resume(config: Config, trainer: Any) -> tuple[int, int]:
    """Load the newest whole checkpoint, if any: (first rollout to do, next group of the data order)."""
    from ..checkpoints import checkpoint

    newest = newest_of_run(config.save_path)
    if newest is None:
        return 0, 0
    state = checkpoint.load(config.save_path, trainer)
    for name, own in kept_for_life(config).items():
        if state[name] != own:
            raise ConfigError(f"{config.save_path} holds a run with {name} {state[name]}, not {own}; set another "
                              "SAVE_PATH, or HF_CKPT, TORCH_DIST and LOSS as they were")
    first = state["rollout"] + 1
    if state["fingerprint"] != fingerprint(config):
        logger.warning("settings have changed since rollout %d: %s; the run continues under the new ones", first,
                       changed_settings(config) or "what a file holds that they name")
    logger.info("continuing after rollout %d from %s", first, config.save_path)
    return first, state["next_group"]


def save(config: Config, trainer: Any, number: int, next_group: int) -> None:
    """The checkpoint after rollout ``number``; older ones, and rollouts that no kept checkpoint needs, are removed."""
    from ..checkpoints import checkpoint

    journal = Journal(config)
    state = {"rollout": number, "next_group": next_group, "fingerprint": journal.fingerprint}
    path = checkpoint.save(config.save_path, number, trainer, state | kept_for_life(config))
    logger.info("checkpoint %s", path)
    if is_rank_zero():
        prune(config.save_path, config.keep_checkpoints)
        until = [n for n in map(number_of, numbered(config.save_path)) if n <= number]
        # Whoever goes back to the oldest kept checkpoint replays what came after it; where all are kept, to the last
        # but one.
        journal.forget(1 + (until[0] if config.keep_checkpoints else until[-2:][0]))
