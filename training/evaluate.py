"""Evaluations of a run, in its own process and by the engines that it has.

    before   HF_CKPT, while the trainer is built         DATA_ROOT's eval_<n>.json       SAVE_PATH/eval/before
    between  the policy, every EVAL_INTERVAL rollouts    EVAL_DATA's rows, else those    SAVE_PATH/eval/during-iter_<r>
    after    the last checkpoint, converted              DATA_ROOT's eval_<n>.json       SAVE_PATH/eval/after-iter_<r>

The line of a rollout in ``metrics.jsonl`` then holds, as shares of 1, ``eval/<name of the file>/reward``,
``.../accuracy`` ... for EVAL_DATA, and ``eval/<n>/sub_em``, ``.../turns`` ... for the others.

Invariants:
- training is the same with an evaluation as without: every request has a seed of its own, and all that the engines
  have cached is dropped behind it;
- an evaluation in which an engine had to be replaced is asked again;
- one that fails between rollouts is a warning and ``eval_failed``, and the run goes on. Engines that cannot be kept
  alive end it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tqdm import tqdm

from .. import rollout as hooks
from ..config import Config, ConfigError
from ..data.rows import DataError
from ..data.training_file import DataSource, row_slice, without_slice
from ..eval_ruler_hqa import BUSY_ENGINE_S, EvalError, evaluate, missing_answers, while_alive
from ..evaluation.results import has_run, read_run
from ..evaluation.summary import cells_of, failures, tables
from ..hooks.host import embedded_args, evaluation_sampling
from ..hooks.metrics import rollout_metrics
from ..hooks.reader import without_document
from ..hooks.sample import Sample
from ..hooks.traces import KEPT_BYTES
from ..rollout_client import Dialect, Endpoint
from ..serving.fleet import Fleet
from ..system.concurrency import gather_or_cancel
from ..system.files import remove

logger = logging.getLogger("mem_agent")

COSTS = ("turns", "rounds", "memory_tokens", "response_tokens")


def output_of(config: Config, name: str) -> Path:
    return Path(config.save_path) / "eval" / name


# --- before and after -----------------------------------------------------------------------------------------------


async def evaluate_model(config: Config, fleet: Fleet, name: str, model: Path) -> None:
    """Evaluate the engines' weights, which are those of ``model``; print the table, and what failed."""
    output = output_of(config, name)
    await while_alive(fleet, evaluate(config, model, fleet.url, output, quiet=True))
    failed = failures(output, config.length.split())
    tqdm.write("\n".join([tables([output]), *(f"failed: {line}" for line in failed[:20])]))


async def evaluate_alone(config: Config, models: Mapping[str, Path]) -> None:
    """Evaluate models by name, each on engines of its own, where answers are missing."""
    for name, model in models.items():
        if missing_answers(config, model, output_of(config, name)):
            async with Fleet(config, model) as fleet:
                await evaluate_model(config, fleet, name, model)


# --- between rollouts -----------------------------------------------------------------------------------------------


async def evaluate_between(config: Config, fleet: Fleet, number: int, weights: str) -> dict[str, float]:
    """Metrics of the weights that the engines have after rollout ``number``; the engines forget all of it.

    Args:
        weights: what names them: answers of others, which a run that was set back has left, are removed.
    """
    began, restarts = time.monotonic(), -1
    try:
        while restarts != fleet.restarts:  # until no engine had to be replaced meanwhile
            restarts = fleet.restarts
            found = await while_alive(fleet, _ask(config, fleet, number, weights))
            await fleet.ensure_alive(BUSY_ENGINE_S)
            await fleet.start_over()
    except (EvalError, ConfigError) as error:
        logger.warning("evaluation after rollout %d: %s; the run goes on", number + 1, error)
        return {"eval_failed": 1.0, "seconds/evaluation": time.monotonic() - began}
    metrics = {"seconds/evaluation": time.monotonic() - began}
    for name, values in found.items():
        judged_by, score = next(iter(values.items()))
        logger.info("evaluation after rollout %d | %s: %s %.3f", number + 1, name, judged_by, score)
        metrics |= {f"eval/{name}/{metric}": value for metric, value in values.items()}
    return metrics


async def _ask(config: Config, fleet: Fleet, number: int, weights: str) -> dict[str, dict[str, float]]:
    """Of EVAL_DATA's files, else of DATA_ROOT's: scores as shares of 1, what a file is judged by first; then costs."""
    if config.eval_files:
        return {Path(file).stem: await ask_rows(config, fleet, file, number) for file in config.eval_files}
    output = output_of(config, f"during-iter_{number:07d}")
    if has_run(output) and read_run(output).weights != weights:
        remove(output)
    kept = KEPT_BYTES // math.ceil(config.num_rollout / config.eval_interval)
    model = Path(config.hf_ckpt)
    summary = await evaluate(config, model, fleet.url, output, weights=weights, kept_bytes=kept, quiet=True)
    return {
        file: {name: line.mean / 100 for name, line in lines.items() if line.family == "score"}
        | {name: lines[name].mean for name in (*COSTS, "questions", "failed") if name in lines}
        for _, file, lines, _ in cells_of(summary)
    }


async def ask_rows(config: Config, fleet: Fleet, file: str, number: int) -> dict[str, float]:
    """EVAL_SAMPLES answers to each row of ``file`` through the hooks: the reward first, then whatever is one number.

    As in slime and vime failed answers are counted (``failed``) and left out of every mean.
    """
    source, rows = rows_of(config, file)
    name = Path(file).stem
    args = embedded_args(config, Endpoint(Dialect.VLLM, fleet.url, config.engine_max_len))
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
    metrics = rollout_metrics(samples)
    first = {key: metrics[key] for key in ("reward", "accuracy") if key in metrics}
    return first | {key: float(value) for key, value in metrics.items() if "/" not in key}


def rows_of(config: Config, file: str) -> tuple[DataSource, Sequence[int]]:
    """A file of EVAL_DATA, and which of its rows are asked. Raises DataError where it cannot be used, or has none."""
    source = DataSource(without_slice(file), config.seed, shuffle=False)
    rows = range(len(source))[row_slice(file)]
    if not rows:
        raise DataError(f"EVAL_DATA: {file}: none of its {len(source)} rows")
    return source, rows
