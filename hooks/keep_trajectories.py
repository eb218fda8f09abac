"""Keeps a rollout's trajectories to be read (KEEP_TRAJECTORIES), in every host.

Hosts tell the log hook the rollout's number, and then give its samples to the converter, which knows the advantages::

    log_rollout(12, ...)       begin(host, 12)
    custom_convert(samples)    keep(host, samples, advantages)     SAVE_PATH/trajectories/rollout_000012.jsonl
    log_rollout(13, ...)       take(host); begin(host, 13)         the metric keeping_failed, if 12 could not be kept

Samples are told as text and written by a thread of their own, while the trainer trains on them.

Invariants:
- nothing that goes wrong here ends a rollout or changes it. It costs one warning and a metric;
- one rollout at a time is written, and no sample is read after ``take`` has returned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ..agents.vocabulary import Vocabulary
from ..traces.rollout_files import Group, Kept, sampled_first, write_rollout
from .host import HostArgs
from .reader import reader_for
from .record import Record
from .trace_of import Teller, outcome_of

logger = logging.getLogger(__name__)


@dataclass
class _Run:
    """What this process knows of one run."""

    rollout: int | None = None
    """The one whose samples come next; None where no host has told it."""
    writing: Future[bool] | None = None
    """Of the one before; whether it was written."""
    thinned: bool = False
    """The log has said that the bound is reached."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A sample with its outcome's advantage and that of each of its turns; None of what is not trained."""

    sample: Any
    advantage: float | None
    by_turn: Sequence[float | None]


_runs: dict[str, _Run] = {}
_writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trajectories")


def in_background(what: str, write: Callable[[], None]) -> Future[bool]:
    """Have ``write`` called, which writes below ``SAVE_PATH/trajectories``: one such call at a time, and whatever goes
    wrong is a warning. Gives whether it went well."""
    return _writer.submit(_went_well, what, write)


def _went_well(what: str, write: Callable[[], None]) -> bool:
    try:
        write()
    except Exception as error:  # whatever the disk, a tokenizer or a user's task does: training goes on
        logger.warning("%s: its trajectories are not kept: %s: %s", what, type(error).__name__, error)
        return False
    return True


def begin(host: HostArgs, rollout: int) -> None:
    """The next samples are those of ``rollout``."""
    if host.config.keep_trajectories and not host.config.supervised:
        _runs.setdefault(host.save, _Run()).rollout = rollout


def take(host: HostArgs) -> dict[str, float]:
    """Wait for the rollout that was given last to be written: a metric where that failed, told once."""
    run = _runs.get(host.save)
    if run is None or run.writing is None:
        return {}
    done, run.writing = run.writing, None
    return {} if done.result() else {"keeping_failed": 1}


def wait() -> None:
    """Until all that was given is on disk."""
    for run in _runs.values():
        if run.writing is not None:
            run.writing.result()


def keep(host: HostArgs, trained: Sequence[Trained]) -> None:
    """Have the trajectories written of the rollout that ``begin`` told; none where it told none."""
    run = _runs.get(host.save)
    if run is None or run.rollout is None:
        return
    take(host)
    rollout, run.rollout = run.rollout, None
    run.writing = in_background(f"rollout {rollout}", partial(_keep, host, run, rollout, trained))


def _keep(host: HostArgs, run: _Run, rollout: int, trained: Sequence[Trained]) -> None:
    kept, groups = _write(host, rollout, trained)
    if (kept.thinned or kept.groups < groups) and not run.thinned:
        run.thinned = True
        logger.warning(
            "%s/trajectories: KEEP_TRAJECTORIES_MB=%d is reached; of rollout %d %d of %d documents are kept, and the "
            "oldest rollouts are thinned", host.save, host.config.keep_trajectories_mb, rollout, kept.groups, groups,
        )


def _write(host: HostArgs, rollout: int, trained: Sequence[Trained]) -> tuple[Kept, int]:
    config = host.config
    groups: dict[Any, list[Trained]] = {}
    for number, one in enumerate(trained):
        group = one.sample.group_index
        groups.setdefault(("alone", number) if group is None else group, []).append(one)
    named = list(groups.items())
    order = sampled_first(config.seed, rollout, len(named), config.keep_trajectories)
    teller = teller_of(reader_for(host.hf_checkpoint, config, host.chat_template_kwargs).vocabulary)
    told = (_told(host, teller, rollout, *named[number]) for number in order)
    bound = config.keep_trajectories_bytes
    return write_rollout(Path(host.save), rollout, told, config.keep_trajectories, bound), len(named)


def _told(host: HostArgs, teller: Teller, rollout: int, group: Any, siblings: Sequence[Trained]) -> Group:
    """A group's lines: its document, and its trajectories in their order."""
    records = [Record.of(one.sample) for one in siblings]
    document = teller.document([record for record in records if record is not None])
    return [*([document] if document else []), *_traces(host, teller, rollout, group, siblings, records, document)]


def _traces(
    host: HostArgs, teller: Teller, rollout: int, group: Any, siblings: Sequence[Trained],
    records: Sequence[Record | None], document: Any,
) -> Iterator[Any]:
    name = "-".join(map(str, group)) if isinstance(group, tuple) else str(group)
    for number, (one, record) in enumerate(zip(siblings, records, strict=True)):
        if record is None:  # of another generate hook
            continue
        sample = one.sample
        yield teller.trace(
            host.config, sample, record, one.by_turn,
            id=f"{rollout}-{name}-{number}", rollout=rollout, group=name, sample=number,
            question_id=_question_id(sample) or name,
            document=document.id if document and any(turn.section for turn in record.turns) else None,
            advantage=one.advantage, **outcome_of(host.config, sample, host.reward_key),
        )


def _question_id(sample: Any) -> str:
    """What the data calls the question; empty where it has no name for it."""
    given = ((sample.metadata or {}).get(name) for name in ("id", "_id", "index"))
    return next((str(one) for one in given if isinstance(one, str | int)), "")


@lru_cache(maxsize=2)
def teller_of(vocabulary: Vocabulary) -> Teller:
    return Teller(vocabulary)
