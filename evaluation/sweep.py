"""All questions of all lengths through one pool of requests, longest documents first.

Invariants:
- at most MEM_CONCURRENCY answers are in the making;
- longest first, so that no long document is left running alone at the end; the samples of a question side by side, so
  that they meet the same prefix cache;
- every answer that was begun has a row, whatever became of it; a failed one scores 0 everywhere. Its trajectory is
  kept before the row is written, so a row without one is not for having been killed;
- the sampling seed of (question, sample) is a function of SEED and the two alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tqdm import tqdm

from ..agents.records import FailureKind, Outcome
from ..config import Config
from ..hooks.record import Record
from ..hooks.sample import Sample
from ..hooks.task_row import row_of, task_of
from ..rewards.reward import plain_parts
from ..system.gather import gather_or_cancel
from ..tasks import Task
from .keep_trajectories import KeptTrajectories
from .questions import EvalError, EvalQuestion
from .reading import read
from .results import Row, RowWriter

logger = logging.getLogger(__name__)

Answer = Callable[[EvalQuestion, str, dict[str, Any]], Awaitable[Sample]]
"""A mode: one answer to one question about a document, with these sampling parameters."""


@dataclass(frozen=True, slots=True)
class Job:
    question: EvalQuestion
    context: str
    sample: int

    @property
    def key(self) -> tuple[str, int]:
        return self.question.id, self.sample


def schedule(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: (-len(job.context), job.question.length, job.question.id, job.sample))


async def sweep(
    jobs: Sequence[Job], answer: Answer, config: Config, rows: RowWriter, kept: KeptTrajectories,
    gone: Callable[[], bool], *, quiet: bool,
) -> None:
    """Answer every job and write its row; ends early when the server is ``gone``."""
    waiting = iter(schedule(jobs))
    bar = tqdm(total=len(jobs), unit="answer", disable=quiet or None, smoothing=0.05)

    async def work() -> None:
        for job in waiting:
            if gone():
                return
            rows.write(await _row(job, answer, config, kept))
            bar.update()

    try:
        await gather_or_cancel(*(work() for _ in range(min(config.mem_concurrency, len(jobs)))))
    finally:
        bar.close()


async def _row(job: Job, answer: Answer, config: Config, kept: KeptTrajectories) -> Row:
    question = job.question
    sampling = {
        "temperature": config.eval_temperature,
        "top_p": config.eval_top_p,
        "top_k": -1,
        "seed": config.seed_for(f"{question.id}/{job.sample}"),
    }
    began = time.monotonic()
    sample = await answer(question, job.context, sampling)
    record = Record.of(sample)
    assert record is not None, "a mode writes its trajectory into the sample"
    task = task_of(config, sample)
    scored = partial(_scored, task, sample, config)
    prediction, scores, unscored = await asyncio.to_thread(scored) if task.slow else scored()
    outcome, failure, message = record.outcome.value, record.failure and record.failure.value, record.failure_message
    if record.outcome is Outcome.ABORTED:  # nobody here asked for it, so the server was stopped
        failure, message = "aborted", "the server ended the request"
    elif unscored and not failure:
        outcome, failure, message = Outcome.FAILED.value, FailureKind.INTERNAL.value, unscored
    row = Row(
        question=question.id, sample=job.sample, length=question.length, task=question.task, mode=config.eval_mode,
        text=question.text, answers=question.answers, response=sample.response,
        prediction=prediction, scores=scores, headline=task.headline, outcome=outcome, failure=failure,
        failure_message=message, counts=record.counts,
        memory_tokens=tuple(memory.tokens for memory in record.memories),
        memory_gold=tuple(memory.gold for memory in record.memories), seconds=round(time.monotonic() - began, 3),
    )
    await kept.write(sample, record, row)
    return row


def _scored(task: Task, sample: Sample, config: Config) -> tuple[str, dict[str, float], str]:
    """The answer, its scores, and why it could not be scored: one bad row must not end the evaluation.

    Raises:
        EvalError: what the task gives is no answer or lacks its headline, and would be for every row.
    """
    name = type(task).__name__
    try:
        prediction, measured = read(task, sample.response, row_of(sample), config)
        scores = plain_parts(measured)
    except Exception as error:  # whatever a user's task raises
        logger.exception("the task %s cannot score an answer", name)
        return "", {task.headline: 0.0}, f"the task {name} cannot score it: {type(error).__name__}: {error}"
    if not isinstance(prediction, str):
        raise EvalError(f"the task {name}: read_answer gave {prediction!r:.80}, expected text")
    if task.headline not in scores:
        raise EvalError(f"the task {name}: metrics has no {task.headline!r}, its headline; it has {', '.join(scores)}")
    return prediction, scores, ""

