"""What an evaluation has yet to ask.

Longest documents go first over all lengths, so that no long one is left running alone at the end; the samples of a
question side by side, so that they meet the same prefix cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..agents import agent_class
from ..agents.records import TurnFailed
from ..config import Config, ConfigError
from ..hooks.sample import Sample
from ..hooks.task_row import task_of
from .identity import joined, model_hash, settings_of
from .questions import Entry, EvalError, EvalQuestion, data_hash, load_questions
from .results import Run, answered, read_rows, write_run


@dataclass(frozen=True, slots=True)
class Job:
    """One answer that is to be got."""

    question: EvalQuestion
    context: str
    sample: int


def missing_jobs(config: Config, model: Path, output: Path, api: str, served_model: str, weights: str) -> list[Job]:
    """The answers that ``output`` lacks, longest documents first. Writes ``run.json``.

    Raises:
        EvalError: a file of questions cannot be used, or ``output`` holds rows of something else.
    """
    jobs: list[Job] = []
    root, lengths = Path(config.data_root or "."), list(dict.fromkeys(config.length.split()))
    if not lengths:
        raise ConfigError("LENGTH is empty; name the <n> of the eval_<n>.json to evaluate")
    counts = dict.fromkeys(lengths, 0)
    for length in lengths:
        done = answered(read_rows(output, length))
        for entry in _entries(root, length, config):
            counts[length] += 1
            samples = [s for s in range(config.eval_samples) if (entry.question.id, s) not in done]
            jobs += [Job(entry.question, entry.context, sample) for sample in samples]
    write_run(output, joined(output, Run(
        model=model_hash(model), model_name=str(model.absolute()), weights=weights, mode=config.eval_mode,
        settings=settings_of(config, api, served_model), samples=config.eval_samples,
        data={length: data_hash(root, length) for length in lengths}, questions=counts,
    )))
    return sorted(jobs, key=lambda job: (-len(job.context), job.question.length, job.question.id, job.sample))


def _entries(root: Path, length: str, config: Config) -> Iterator[Entry]:
    """The entries of a file, whose tasks are there, with a document where one is read. Raises EvalError."""
    reads = config.eval_mode != "recurrent" or agent_class(config).needs_document
    for entry in load_questions(root, length):
        where = f"{root}/eval_{length}.json: the entry with the index {entry.question.id}"
        try:
            task = task_of(config, Sample(metadata=entry.question.metadata))
        except TurnFailed as error:
            raise EvalError(f"{where}: {error}") from None
        if not entry.context and reads and (task.needs_document or config.eval_mode != "recurrent"):
            raise EvalError(f"{where} has no usable `context`")
        yield entry
