"""Keeps what was read and answered in evaluations that a trainer has its rollout hooks make (KEEP_TRAJECTORIES).

In slime and vime the log hook of an evaluation tells of them, in the embedded host whoever asks EVAL_DATA's rows::

    log_eval(12, {"hqa": {"samples": [...]}})     SAVE_PATH/trajectories/eval_000012_hqa.jsonl

All evaluations of a run share KEEP_TRAJECTORIES_MB, beside the one of its rollouts. Invariant: nothing that goes wrong
here ends or changes anything; it costs one warning.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ..config import Config
from ..system.atomic_file import replacing
from ..traces.read_traces import FOLDER
from ..traces.trace import Trace, line_of
from .host import HostArgs
from .keep_trajectories import teller_of, writer
from .reader import reader_for
from .record import Record
from .sample import ended, lost, reward_of
from .task_row import task_of
from .trace_of import Teller

logger = logging.getLogger(__name__)

_UNTOLD = 20
"""Evaluations that a run may have whose EVAL_INTERVAL only its host knows."""


def evaluations_of(config: Config) -> int:
    """How many evaluations of a run share KEEP_TRAJECTORIES_MB."""
    return max(1, math.ceil(config.num_rollout / config.eval_interval)) if config.eval_interval else _UNTOLD


def keep_evaluation(host: HostArgs, rollout: int, answered: Mapping[str, Sequence[Any]]) -> None:
    """Have the samples of each data set written; ``rollout`` is the one that was trained on last."""
    if not host.config.keep_trajectories or not any(answered.values()):
        return
    share = host.config.keep_trajectories_bytes // evaluations_of(host.config) // len(answered)
    for name, samples in answered.items():
        writer.submit(_kept, host, rollout, name, list(samples), share)


def _kept(host: HostArgs, rollout: int, name: str, samples: Sequence[Any], share: int) -> None:
    try:
        _write(host, rollout, name, samples, share)
    except Exception as error:  # whatever the disk, a tokenizer or a user's task does: training goes on
        logger.warning("the trajectories of %s after rollout %d are not kept: %s: %s", name, rollout,
                       type(error).__name__, error)


def _write(host: HostArgs, rollout: int, name: str, samples: Sequence[Any], share: int) -> None:
    teller = teller_of(reader_for(host.hf_checkpoint, host.config, host.chat_template_kwargs).vocabulary)
    plain = re.sub(r"[^\w.-]", "_", name)
    path = Path(host.save) / FOLDER / f"eval_{max(rollout, 0):06d}_{plain}.jsonl"
    questions = _lines(host, teller, rollout, name, samples)
    first = next(questions, b"")
    if not 0 < len(first) <= share:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        for lines in chain((first,), questions):
            share -= len(lines)
            if share < 0:
                return
            file.write(lines)


def _lines(host: HostArgs, teller: Teller, rollout: int, name: str, samples: Sequence[Any]) -> Iterator[bytes]:
    """Of one question at a time: its document, and the answers to it."""
    for first in range(0, len(samples), host.eval_samples):
        told = [(sample, record) for sample in samples[first : first + host.eval_samples]
                if (record := Record.of(sample)) is not None]
        if not told:
            continue
        document = teller.document([record for _, record in told])
        question = str(first // host.eval_samples)
        traces = [
            _trace(host, teller, sample, record, id=f"{rollout}-{name}-{question}-{number}", rollout=rollout,
                   length=name, question_id=question, group=question, sample=number,
                   document=document.id if document else None)
            for number, (sample, record) in enumerate(told)
        ]
        yield (line_of(document) if document else b"") + b"".join(map(line_of, traces))


def _trace(host: HostArgs, teller: Teller, told: Any, record: Record, /, **place: Any) -> Trace:
    return teller.trace(
        host.config, told, record, **place,
        prediction=task_of(host.config, told).read_answer(told.response) if ended(told) else "",
        reward=None if lost(told) else reward_of(told, host.eval_reward_key),
    )
