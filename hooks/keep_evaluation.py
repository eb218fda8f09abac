"""Keeps what was read and answered in evaluations that a trainer has its rollout hooks make (KEEP_TRAJECTORIES).

In slime and vime the log hook of an evaluation tells of them, in the embedded host whoever asks EVAL_DATA's rows::

    log_eval(12, {"hqa": {"samples": [...]}})     SAVE_PATH/trajectories/eval_000012_hqa.jsonl

All evaluations of a run share KEEP_TRAJECTORIES_MB, beside the one of its rollouts. Invariant: nothing that goes wrong
here ends or changes anything; it costs one warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ..system.files import replacing
from ..traces.read_traces import FOLDER
from ..traces.trace import line_of
from .host import HostArgs
from .keep_trajectories import in_background, teller_of
from .reader import reader_for
from .record import Record
from .trace_of import Teller, outcome_of


def keep_evaluation(host: HostArgs, rollout: int, answered: Mapping[str, Sequence[Any]]) -> None:
    """Have the samples of each data set written; ``rollout`` is the one that was trained on last."""
    if not host.config.keep_trajectories or not any(answered.values()):
        return
    share = host.config.keep_trajectories_bytes // host.config.evaluations // len(answered)
    for name, samples in answered.items():
        write = partial(_write, host, rollout, name, list(samples), share)
        in_background(f"evaluation {name} after rollout {rollout}", write)


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
            teller.trace(
                host.config, sample, record, id=f"{rollout}-{name}-{question}-{number}", rollout=rollout, length=name,
                question_id=question, group=question, sample=number, document=document.id if document else None,
                **outcome_of(host.config, sample, host.eval_reward_key),
            )
            for number, (sample, record) in enumerate(told)
        ]
        yield (line_of(document) if document else b"") + b"".join(map(line_of, traces))
