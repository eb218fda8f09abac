"""The rows of one file of EVAL_DATA, answered by a fleet through the hooks of training, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import rollout as hooks
from ..client.engine_api import Dialect, Endpoint
from ..config import Config
from ..data.document_store import row_slice, without_slice
from ..data.training_file import DataError, DataSource
from ..hooks.host import HostArgs, embedded_args
from ..hooks.keep_evaluation import keep_evaluation
from ..hooks.metrics import best_of, rollout_metrics
from ..hooks.sample import Sample
from ..hooks.task_row import without_document
from ..serving.fleet import Fleet
from ..system.gather import gather_or_cancel


@dataclass
class _Place:
    number: int
    sample: Sample


async def ask_rows(config: Config, fleet: Fleet, file: str, rollout: int) -> dict[str, float]:
    """VAL_SAMPLES answers to each row of ``file``: the reward first, then whatever else is one number.

    ``rollout`` is the last one that was trained on; what was read and answered is kept under its number.

    As in slime and vime failed answers are counted (``failed``) and left out of every mean.
    """
    limit = config.mem_max_prompt_tokens or fleet.config.engine_max_len
    args = embedded_args(config, Endpoint(Dialect.VLLM, fleet.url, limit))
    args.n_samples_per_eval_prompt = config.val_samples
    waiting, done = _samples(config, file), []

    async def work() -> None:
        for place in waiting:  # rows are read as they are asked: a document is in memory only while it is read
            sample = await hooks.generate(args, place.sample, _sampling(config, file, place.number), evaluation=True)
            sample.reward = await hooks.reward_func(args, sample)
            sample.metadata = without_document(sample.metadata)
            done.append(_Place(place.number, sample))

    await gather_or_cancel(*(work() for _ in range(config.mem_concurrency)))
    samples = [place.sample for place in sorted(done, key=lambda place: place.number)]
    host = HostArgs.of(args)
    keep_evaluation(host, rollout, {Path(file).stem: samples})
    metrics = rollout_metrics(samples) | best_of(samples, host)
    first = {name: metrics[name] for name in ("reward", "accuracy") if name in metrics}
    return first | {name: float(value) for name, value in metrics.items() if "/" not in name}


def rows_of(config: Config, file: str) -> tuple[DataSource, range]:
    """A file of EVAL_DATA, and which of its rows are asked. Raises DataError where it cannot be used, or has none."""
    source = DataSource(without_slice(file), config.seed, shuffle=False)
    rows = range(len(source))[row_slice(file)]
    if not rows:
        raise DataError(f"EVAL_DATA: {file}: none of its {len(source)} rows")
    return source, rows


def _samples(config: Config, file: str) -> Iterator[_Place]:
    source, rows = rows_of(config, file)
    for number in range(len(rows) * config.val_samples):
        row = source.row(rows[number // config.val_samples])
        yield _Place(number, Sample(row.prompt, row.label, dict(row.metadata), index=number))


def _sampling(config: Config, file: str, number: int) -> dict[str, Any]:
    temperature = config.eval_temperature if config.val_temperature < 0 else config.val_temperature
    seed = config.seed_for(f"{Path(file).stem}/{number}")
    return {"temperature": temperature, "top_p": config.val_top_p or config.eval_top_p, "top_k": -1,
            "sampling_seed": seed}
