"""Evaluate a memory agent on RULER-HQA and RULER files: one question, one long document, all accepted answers.

    mem-agent eval --model HF_FOLDER --data-root DATA --length "50 200" --output results/NAME    on engines of its own
    BASE_URL=https://HOST/v1 mem-agent eval --model HF_FOLDER --output results/NAME ...          on a running server
    mem-agent eval --table results/before results/after
    mem-agent eval --compare results/before results/after

The loop, for each (question, sample) that ``OUTPUT`` lacks, longest documents first, MEM_CONCURRENCY at a time::

    sample = Sample(prompt=question, metadata={"context": ..., "ground_truth": [...], "task": ...})
    sample = await rollout.generate(args, sample, sampling, evaluation=True)      the hook that training uses
    scores = task.metrics(task.read_answer(sample.response), sample.response, row) appended to OUTPUT/<length>.jsonl

Training calls ``evaluate`` in its own process, on the engines that it has (``training/evaluate.py``). EVAL_MODE=direct
and rag ask one prompt in place of the hook (``evaluation/baselines.py``); ``OUTPUT/run.json`` says what the rows were
made from (``evaluation/results.py``).

Invariants:
- every question asked has a row; a failed one counts as wrong in every mean and is listed by reason; one that was not
  asked yet is counted as missing in the table;
- a row is on disk as soon as it is known; a second run does only what is missing, and retries what failed;
- rows made from other data, another model or other settings are never mixed in, nor compared: the run refuses;
- the sampling seed of (question, sample) is a function of SEED and the two alone.
"""

from __future__ import annotations

if not __package__:
    from __init__ import run_in_package

    run_in_package(__file__)

import argparse
import asyncio
import logging
import math
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
from tqdm import tqdm

from . import rollout
from .agents import agent_class
from .agents.records import Outcome
from .checkpoints.hf_model import model_to_ask, shell_words
from .config import Config, ConfigError
from .evaluation.baselines import one_prompt
from .evaluation.endpoint import Api, EvalEndpoint, connect
from .evaluation.questions import EvalQuestion, Job, KeptTrajectories, as_asked, missing_jobs
from .evaluation.results import METRICS, EvalError, Row, lock_results, read_results, write_row
from .evaluation.summary import comparison, failures, summary_of, tables
from .hooks.host import embedded_args, evaluation_sampling
from .hooks.reader import row_of, task_of
from .hooks.rewards import check_plugins
from .hooks.sample import Record, Sample
from .hooks.traces import KEPT_BYTES
from .rollout_client import PASSING, RouterClient, client_for, close_clients
from .system.cli import log_to_terminal, one_line_errors, run_stoppable
from .system.concurrency import gather_or_cancel, watched
from .system.errors import place_of
from .system.text import one_line
from .tasks import Task

logger = logging.getLogger(__name__)
T = TypeVar("T")

FINISHED_WITH_FAILURES = 3
"""Exit code when every question has a row, but some of them failed; 1 is an error that ended the evaluation."""
LOOK_EVERY_S = 10.0
BUSY_ENGINE_S = 600.0
"""An engine that has not answered for so long hangs; it may be inside a long step."""
SERVER_WAIT_S, ASK_AGAIN_S = 600.0, 10.0
"""How long a server that stopped answering may take to come back, and how often it is asked meanwhile."""
Ask = Callable[[EvalQuestion, str, dict[str, Any]], Awaitable[Sample]]
"""One answer to one question about a document, with these sampling parameters."""


# --- the evaluation -------------------------------------------------------------------------------------------------


async def evaluate(
    config: Config, model: Path, url: str, output: Path, *, weights: str = "", served_model: str = "",
    kept_bytes: int = KEPT_BYTES, quiet: bool = False,
) -> pd.DataFrame:
    """Get the answers of LENGTH's files in DATA_ROOT that ``output`` lacks, and summarise all that it has.

    Args:
        model: the folder whose tokenizer the server uses.
        url: the router of engines that were started for this; empty: BASE_URL.
        weights: names those of the server, where they are not the ones in ``model``.
        served_model: the model's name at BASE_URL; empty: the only one there.
        kept_bytes: what the kept trajectories may take.

    Raises:
        EvalError: data, endpoint or folder cannot be used, or the server went away and stayed away.
    """
    config = config.replace(hf_ckpt=str(model))
    check_plugins(config, training=False)
    endpoint = await connect(url, model, config, served_model)
    if endpoint.api is Api.CHAT and config.eval_mode == "recurrent" and agent_class(config).shows_messages:
        raise EvalError(f"{endpoint.base_url} takes one message at a time (EVAL_API=chat), AGENT={config.agent} shows "
                        "conversations; ask a server of token ids or completions")
    if config.eval_mode == "direct":
        config = config.replace(engine_max_len=endpoint.max_tokens)
    with lock_results(output):
        jobs = missing_jobs(config, model, output, endpoint.api, endpoint.model, weights)
        ask, waiting = _ask(config, endpoint), iter(jobs)
        kept = KeptTrajectories(output, endpoint.vocabulary, config, kept_bytes)
        with tqdm(total=len(jobs), unit="answer", disable=quiet or None, smoothing=0.05) as bar:

            async def work() -> None:
                for job in waiting:
                    write_row(output, await _row(job, ask, config, endpoint, kept))
                    bar.update()

            try:
                await gather_or_cancel(*(work() for _ in range(min(config.mem_concurrency, len(jobs)))))
            finally:
                await close_clients(endpoint)
    return summary_of(read_results([output]))


def missing_answers(config: Config, model: Path, output: Path, *, write: bool = True) -> int:
    """How many answers ``output`` lacks, asked before engines are started; ``write`` False: nothing is written.

    Raises:
        EvalError: data or folder cannot be used. ConfigError: settings cannot.
    """
    check_plugins(config, training=False)
    with lock_results(output) if write else nullcontext():
        return len(missing_jobs(config, model, output, Api.GENERATE, "", "", write=write))


def _ask(config: Config, endpoint: EvalEndpoint) -> Ask:
    if config.eval_mode != "recurrent":
        return one_prompt(config, endpoint)
    args = embedded_args(config, endpoint)

    async def recurrent(question: EvalQuestion, context: str, sampling: dict[str, Any]) -> Sample:
        sample = Sample(prompt=question.prompt, metadata=question.metadata | {"context": question.example + context})
        return await rollout.generate(args, sample, sampling, evaluation=True)

    return recurrent


async def _row(job: Job, ask: Ask, config: Config, endpoint: EvalEndpoint, kept: KeptTrajectories) -> Row:
    """The answer as a row. Raises EvalError if the server stays away.

    The trajectory is kept before the row is written, so a killed run leaves no row without one.
    """
    task = task_of(config, Sample(metadata=job.question.metadata))
    question = as_asked(job.question, task, thinks=config.mem_thinking or endpoint.frame.thinking_is_open)
    sampling = evaluation_sampling(config, config.seed_for(f"{question.id}/{job.sample}"))
    began = time.monotonic()
    client = client_for(endpoint, config.mem_concurrency)
    sample, record = await _answered(partial(ask, question, job.context, sampling), client)
    prediction, scores, unscored = await asyncio.to_thread(_scored, task, sample)
    outcome, failure, message = record.outcome.value, record.failure and record.failure.value, record.failure_message
    if record.outcome is Outcome.ABORTED:  # nobody here asked for it, so the server was stopped
        failure, message = "aborted", "the server ended the request"
    elif unscored and not failure:
        outcome, failure, message = Outcome.FAILED.value, "internal", unscored
    row = {
        "_id": question.id, "sample": job.sample, "length": question.length, "task": question.task,
        "mode": config.eval_mode, "input": question.text, "answers": question.answers, "response": sample.response,
        "pred": prediction, "headline": task.headline, "outcome": outcome, "failure": failure,
        "failure_message": message, "counts": record.counts,
        "memories": [{"tokens": memory.tokens, "gold": memory.gold} for memory in record.memories],
        "seconds": round(time.monotonic() - began, 3),
        **{name: scores.pop(name) for name in METRICS if name in scores}, "scores": scores,
    }
    await kept.write(sample, record, row)
    return row


async def _answered(ask: Callable[[], Awaitable[Sample]], client: RouterClient) -> tuple[Sample, Record]:
    """The answer, asked for again while the server is away or busy, on top of the client's own retries.

    After ``SERVER_WAIT_S`` it has failed where the server gave others meanwhile. Raises EvalError where it did not.
    """
    away_since, turns = 0.0, 0
    while True:
        sample = await ask()
        record = Record.of(sample)
        assert record is not None, "a mode writes its trajectory into the sample"
        if record.failure not in PASSING:
            return sample, record
        if not away_since:
            away_since, turns = time.monotonic(), client.answered["turns"]
        elif time.monotonic() - away_since > SERVER_WAIT_S:
            if client.answered["turns"] > turns:
                return sample, record
            url, reason = client.endpoint.base_url, record.failure_message
            raise EvalError(f"{url} has not answered for {SERVER_WAIT_S:g} s ({reason}); the same command continues")
        await asyncio.sleep(ASK_AGAIN_S)


_told: set[str] = set()
"""Where tasks failed to score an answer."""


def _scored(task: Task, sample: Sample) -> tuple[str, dict[str, float], str]:
    """The answer, its scores, and why it could not be scored: one bad row must not end the evaluation.

    Raises:
        EvalError: the task's metrics lack its headline, and would for every row.
    """
    try:
        prediction = str(task.read_answer(sample.response))
        measured = task.metrics(prediction, sample.response, row_of(sample))
        scores = {metric: float(value) for metric, value in measured.items()}
        if not all(map(math.isfinite, scores.values())):
            raise ValueError(f"expected finite numbers, got {scores}")
    except Exception as error:  # whatever a user's task raises
        why = f"{type(task).__name__} cannot score it: {type(error).__name__}: {error} ({(place := place_of(error))})"
        if place not in _told:
            _told.add(place)
            logger.exception("%s; others like it are only counted", why)
        return "", {task.headline: 0.0}, why
    if task.headline not in scores:
        raise EvalError(f"{type(task).__name__}.metrics lacks its headline {task.headline!r}: {', '.join(scores)}")
    return prediction, scores, ""


async def while_alive(fleet: Any, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work``; engines of ``fleet`` that die meanwhile are replaced. Raises FleetError where that
    cannot be done."""
    return await watched(work, lambda: fleet.ensure_alive(BUSY_ENGINE_S), LOOK_EVERY_S)


# --- command line ---------------------------------------------------------------------------------------------------


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="mem-agent eval", description="Evaluate a memory agent on RULER-HQA and RULER files.")
    add = parser.add_argument
    add("--model", help="HF folder or id; with BASE_URL the one whose tokenizer the server uses")
    add("--output", type=Path, help="folder of the results; a second run continues there")
    add("--data-root", help="folder of eval_<length>.json (default: DATA_ROOT)")
    add("--length", help="lengths, separated by blanks (default: LENGTH)")
    add("--served-model", default="", metavar="NAME", help="the model's name at BASE_URL (default: the only one)")
    add("--dry-run", action="store_true", help="only read model and questions, and say what would be asked")
    add("--table", nargs="+", type=Path, metavar="OUTPUT", help="only print the table of these runs")
    add("--compare", nargs=2, type=Path, metavar="OUTPUT", help="only print second minus first")
    options = parser.parse_args(argv)
    log_to_terminal(logging.ERROR)
    logging.getLogger(f"{__package__}.agents").setLevel(logging.WARNING)  # what it says of a model, it says once
    logging.getLogger(f"{__package__}.checkpoints").setLevel(logging.INFO)
    if options.table or options.compare:
        print(tables(options.table) if options.table else comparison(*options.compare))
        return 0
    if not (options.model and options.output):
        raise ConfigError("--model and --output are needed, or --table or --compare")
    (model, config), output = model_to_ask(options.model, "--model"), options.output
    config = config.replace(length=options.length or config.length, data_root=options.data_root or config.data_root)
    if options.dry_run:
        count = missing_answers(config, model, output, write=False)
        server = config.base_url or f"{config.num_engines} engines of {config.engine_max_len} tokens, which it starts"
        print("# settings that are not their defaults", *shell_words(config.changed()), sep="\n")
        print(f"# {count} answers of {config.length} in {config.data_root}, by {server}; rows go to {output}")
        return 0
    run_stoppable(
        evaluate(config, model, "", output, served_model=options.served_model) if config.base_url
        else _on_own_engines(config, model, output)
    )
    print(tables([output]))
    failed = failures(output, config.length.split())
    for line in failed[:20]:
        print(f"failed: {one_line(line, 500)}", file=sys.stderr)
    if failed:
        print(f"{len(failed)} answers failed and count as wrong; run again to retry them", file=sys.stderr)
    return FINISHED_WITH_FAILURES if failed else 0


async def _on_own_engines(config: Config, model: Path, output: Path) -> None:
    """NUM_ENGINES engines for as long as answers are missing."""
    if not (missing := missing_answers(config, model, output)):
        print(f"{output} has all answers", file=sys.stderr)
        return
    from .serving.fleet import Fleet  # which imports torch

    print(f"{missing} answers to get on {config.num_engines} engines of {config.engine_max_len} tokens; logs in "
          f"{output}/logs", file=sys.stderr)
    async with Fleet(config, model, run_folder=output) as fleet:
        await while_alive(fleet, evaluate(config, model, fleet.url, output))


if __name__ == "__main__":
    sys.exit(main())
