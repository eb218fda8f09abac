"""Evaluations of a run, in its own process and by the engines that it has.

    before   HF_CKPT, while the trainer is built         DATA_ROOT's eval_<n>.json       SAVE_PATH/eval/before
    between  the policy, every EVAL_INTERVAL rollouts    EVAL_DATA's rows, else those    SAVE_PATH/eval/during-iter_<r>
    after    the last checkpoint, converted              DATA_ROOT's eval_<n>.json       SAVE_PATH/eval/after-iter_<r>

The line of a rollout in ``metrics.jsonl`` then holds, as shares of 1, ``eval/<name of the file>/reward``,
``.../accuracy`` ... for EVAL_DATA, and ``eval/<n>/sub_em``, ``.../turns`` ... for the others.

Invariants:
- training is the same with an evaluation as without: every request has a seed of its own, and all that the engines
  have cached is dropped behind it;
- an evaluation in which an engine had to be replaced asks again what failed (of EVAL_DATA everything);
- one that fails between rollouts is a warning and ``eval_failed``, and the run goes on. Engines that cannot be kept
  alive end it.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from .. import rollout as hooks
from ..config import Config, ConfigError
from ..data.rows import DataError
from ..data.training_file import DataSource, row_slice, without_slice
from ..eval_ruler_hqa import BUSY_ENGINE_S, EvalError, evaluate, missing_answers, while_alive
from ..evaluation.results import has_run, read_run
from ..evaluation.tables import failures, tables
from ..hooks import traces
from ..hooks.host import HostArgs, embedded_args, evaluation_sampling
from ..hooks.metrics import best_of, rollout_metrics
from ..hooks.sample import Sample
from ..hooks.task_row import without_document
from ..hooks.traces import KEPT_BYTES
from ..rollout_client import Dialect, Endpoint
from ..serving.fleet import Fleet
from ..system.gather import gather_or_cancel
from .resume import fingerprint

logger = logging.getLogger("mem_agent")

_COSTS = ("turns", "rounds", "memory_tokens", "response_tokens")
Found = dict[str, dict[str, float]]


def output_of(config: Config, name: str) -> Path:
    return Path(config.save_path) / "eval" / name


# --- before and after -----------------------------------------------------------------------------------------------


def check_before(config: Config) -> None:
    """Raises MemAgentError where DATA_ROOT's questions, or the results of an earlier run, cannot be used."""
    missing_answers(config, Path(config.hf_ckpt), output_of(config, "before"))


async def evaluate_model(config: Config, fleet: Fleet, name: str, model: Path) -> str:
    """Evaluate the engines' weights, which are those of ``model``; the table, and what failed."""
    output, began = output_of(config, name), time.monotonic()
    await while_alive(fleet, evaluate(config, model, fleet.url, output, quiet=True))
    logger.info("evaluation of %s took %.1f s", name, time.monotonic() - began)
    failed = failures(output, config.length.split())
    return "\n".join([tables([output]), *(f"failed: {line}" for line in failed[:20])])


# --- between rollouts -----------------------------------------------------------------------------------------------


async def evaluate_between(config: Config, fleet: Fleet, number: int) -> dict[str, float]:
    """Metrics of the weights that the engines have after rollout ``number``; the engines forget all of it."""
    began = time.monotonic()
    try:
        found = await _measured(config, fleet, number)
    except (EvalError, ConfigError) as error:
        logger.warning("evaluation after rollout %d: %s; the run goes on", number + 1, error)
        return {"eval_failed": 1.0, "seconds/evaluation": time.monotonic() - began}
    seconds = time.monotonic() - began
    # Of each file, what it is judged by.
    line = ", ".join(f"{name}: {metric} {values[metric]:.3f}" for name, values in found.items()
                     for metric in list(values)[:1])
    logger.info("evaluation after rollout %d/%d | %s | %.1f s", number + 1, config.num_rollout, line, seconds)
    metrics = {f"eval/{name}/{metric}": value for name, values in found.items() for metric, value in values.items()}
    return metrics | {"seconds/evaluation": seconds}


async def _measured(config: Config, fleet: Fleet, number: int) -> Found:
    """What engines measured of which none had to be replaced."""
    while True:
        restarts = fleet.restarts
        found = await while_alive(fleet, _ask(config, fleet, number))
        await fleet.ensure_alive(BUSY_ENGINE_S)
        await fleet.start_over()
        if fleet.restarts == restarts:
            return found
        logger.warning("the evaluation after rollout %d is asked again: a server had to be replaced", number + 1)


def forget_answers(config: Config, number: int) -> None:
    """Remove the answers from rollout ``number`` on, which is sampled again: its weights may be others."""
    for folder in output_of(config, "").glob("during-iter_*"):
        if int(folder.name.removeprefix("during-iter_")) >= number:
            shutil.rmtree(folder)


async def _ask(config: Config, fleet: Fleet, number: int) -> Found:
    """Of EVAL_DATA's files, else of DATA_ROOT's: scores as shares of 1, what the file is judged by first; then costs.

    A run with the same settings comes to the same weights; answers of others are removed.
    """
    if config.eval_files:
        return {Path(file).stem: await ask_rows(config, fleet, file, number) for file in config.eval_files}
    output = output_of(config, f"during-iter_{number:07d}")
    weights = f"rollout {number} of {fingerprint(config)}"
    if has_run(output) and read_run(output).weights != weights:
        shutil.rmtree(output)
    kept = KEPT_BYTES // math.ceil(config.num_rollout / config.eval_interval)
    model = Path(config.hf_ckpt)
    summaries = await evaluate(config, model, fleet.url, output, weights=weights, kept_bytes=kept, quiet=True)
    return {
        one.name: {name: score.mean / 100 for name, score in one.scores.items()}
        | {name: one.costs[name].mean for name in _COSTS if name in one.costs}
        | {"questions": float(one.questions), "failed": float(one.failed)}
        for one in summaries
    }


async def ask_rows(config: Config, fleet: Fleet, file: str, number: int) -> dict[str, float]:
    """EVAL_SAMPLES answers to each row of ``file`` through the hooks: the reward first, then whatever is one number.

    As in slime and vime failed answers are counted (``failed``) and left out of every mean.
    """
    source, rows = rows_of(config, file)
    name = Path(file).stem
    args = embedded_args(config, Endpoint(Dialect.VLLM, fleet.url, config.engine_max_len))
    args.n_samples_per_eval_prompt = config.eval_samples
    samples = [Sample()] * (len(rows) * config.eval_samples)
    waiting = iter(range(len(samples)))

    async def work() -> None:
        for place in waiting:  # rows are read as they are asked: a document is in memory only while it is read
            row = source.row(rows[place // config.eval_samples])
            sampling = evaluation_sampling(config, config.seed_for(f"{name}/{place}"))
            sample = Sample(row.prompt, row.label, dict(row.metadata), index=place)
            sample = await hooks.generate(args, sample, sampling, evaluation=True)
            sample.reward = await hooks.reward_func(args, sample)
            sample.metadata = without_document(sample.metadata)
            samples[place] = sample

    await gather_or_cancel(*(work() for _ in range(config.mem_concurrency)))
    host = HostArgs.of(args)
    traces.keep_evaluation(host, number, {name: samples})
    metrics = rollout_metrics(samples) | best_of(samples, host)
    first = {key: metrics[key] for key in ("reward", "accuracy") if key in metrics}
    return first | {key: float(value) for key, value in metrics.items() if "/" not in key}


def rows_of(config: Config, file: str) -> tuple[DataSource, Sequence[int]]:
    """A file of EVAL_DATA, and which of its rows are asked. Raises DataError where it cannot be used, or has none."""
    source = DataSource(without_slice(file), config.seed, shuffle=False)
    rows = range(len(source))[row_slice(file)]
    if not rows:
        raise DataError(f"EVAL_DATA: {file}: none of its {len(source)} rows")
    return source, rows
