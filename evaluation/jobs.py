"""What an evaluation has yet to ask, which rows may stand beside its own, and what is kept to be read by people.

Longest documents go first over all lengths, so that no long one is left running alone at the end; the samples of a
question side by side, so that they meet the same prefix cache. More lengths and more samples join an earlier run; rows
of other data, another model or other settings are refused in one line that names what differs.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from ..agents import agent_class
from ..agents.records import TurnFailed
from ..agents.vocabulary import Vocabulary
from ..config import Config, ConfigError
from ..hooks.reader import task_of
from ..hooks.sample import Record, Sample
from ..hooks.traces import EvaluationFiles, Teller
from .questions import EvalError, EvalQuestion, data_hash, load_questions
from .results import Row, Run, has_run, read_rows, read_run, scores_of, write_run

logger = logging.getLogger(__name__)

_EVERY_MODE = ("task", "task_args", "mem_max_final", "mem_max_question", "mem_prompts", "mem_thinking",
               "eval_temperature", "eval_top_p", "eval_mode", "seed")
_READING = ("agent", "agent_args", "mem_chunk_tokens", "mem_max_memory", "mem_layout")
_SHAPE_ANSWERS = {"recurrent": (*_EVERY_MODE, *_READING), "direct": (*_EVERY_MODE, "engine_max_len"),
                  "rag": _EVERY_MODE}
"""The settings that shape an answer, by EVAL_MODE."""


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
    jobs, counts = list[Job](), dict[str, int]()
    root, mode = Path(config.data_root or "."), config.eval_mode.partition(":")[0]
    reads = mode != "recurrent" or agent_class(config).needs_document
    for length in dict.fromkeys(config.length.split()):
        counts[length] = 0
        done = {(row["_id"], row["sample"]) for row in read_rows(output, length) if row["failure"] is None}
        for question, context in load_questions(root, length):
            counts[length] += 1
            where = f"{root}/eval_{length}.json: the entry with the index {question.id}"
            try:
                task = task_of(config, Sample(metadata=question.metadata))
            except TurnFailed as error:
                raise EvalError(f"{where}: {error}") from None
            if not context and reads and (task.needs_document or mode != "recurrent"):
                raise EvalError(f"{where} has no usable `context`")
            jobs += [Job(question, context, sample) for sample in range(config.eval_samples)
                     if (question.id, sample) not in done]
    if not counts:
        raise ConfigError("LENGTH is empty; name the <n> of the eval_<n>.json to evaluate")
    settings = {name: getattr(config, name) for name in _SHAPE_ANSWERS[mode]}
    if config.mem_prompts:
        settings["mem_prompts"] = Path(config.mem_prompts).read_text(encoding="utf-8")
    _write_run(output, Run(
        model=model_hash(model), model_name=str(model.absolute()), weights=weights, mode=config.eval_mode,
        settings=settings | {"eval_api": api, "served_model": served_model}, samples=config.eval_samples,
        data={length: data_hash(root, length) for length in counts}, questions=counts,
    ))
    return sorted(jobs, key=lambda job: (-len(job.context), job.question.length, job.question.id, job.sample))


def _write_run(output: Path, run: Run) -> None:
    """With the lengths and samples that ``output`` has already. Raises EvalError."""
    if has_run(output):
        known = read_run(output)
        found = [f"{name.upper()} was {known.settings.get(name)!r}, is {value!r}"[:80]
                 for name, value in run.settings.items() if known.settings.get(name) != value]
        found += ["another model"] * ((known.model, known.weights) != (run.model, run.weights))
        found += [f"another eval_{length}.json" for length, digest in run.data.items()
                  if known.data.get(length, digest) != digest]
        if found:
            raise EvalError(f"{output} holds other results ({'; '.join(found[-3:])}); set another SAVE_FILE (of a "
                            "training run: SAVE_PATH), or remove it")
        run = replace(run, samples=max(known.samples, run.samples), data={**known.data, **run.data},
                      questions={**known.questions, **run.questions})
    write_run(output, run)


def model_hash(model: Path) -> str:
    """Of names, sizes and heads of the weight files: it tells checkpoints apart without reading them whole."""
    digest = hashlib.sha256()
    for path in sorted(p for p in model.iterdir() if p.suffix in (".safetensors", ".json", ".bin") and p.is_file()):
        with path.open("rb") as file:
            size = path.stat().st_size
            for position in (0, max(0, size // 2), max(0, size - 2**20)):
                file.seek(position)
                digest.update(file.read(2**20))
        digest.update(f"{path.name} {size}".encode())
    return digest.hexdigest()[:16]


class KeptTrajectories:
    """What an evaluation read and wrote (KEEP_TRAJECTORIES), in ``RESULTS/trajectories``.

    Nothing that goes wrong here ends the evaluation or changes a row. It costs one warning, after which nothing more
    is kept. ``most`` is how many bytes they may take.
    """

    def __init__(self, output: Path, vocabulary: Vocabulary, config: Config, most: int) -> None:
        self._config, self._teller, self._open = config, Teller(vocabulary), config.keep_trajectories > 0
        self._files = EvaluationFiles(output, most)

    async def write(self, sample: Sample, record: Record, row: Row) -> None:
        """Keep the trajectory that ``row`` is the answer of."""
        if not self._open:
            return
        scores = scores_of(row)
        try:
            document = self._teller.document([record])
            # Long readings take a while to decode, and other answers need this loop meanwhile.
            trace = await asyncio.to_thread(
                self._teller.trace, self._config, sample, record, id=f"{row['length']}-{row['_id']}-{row['sample']}",
                length=row["length"], question_id=row["_id"], group=row["_id"], sample=row["sample"],
                question=row["input"], golds=tuple(row["answers"]), document=document.id if document else None,
                prediction=row["pred"], scores={row["headline"]: scores[row["headline"]]} | scores,
                failure_message=row["failure_message"])
            if not self._files.write(document, trace):
                logger.warning("no more trajectories are kept: 500 MB are used up")
                self._open = False
        except Exception as error:  # whatever the disk or a tokenizer does: the evaluation goes on
            if self._open:
                logger.warning("no more trajectories are kept: %s: %s", type(error).__name__, error)
            self._open = False
