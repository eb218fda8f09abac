"""Rank 0's source of rollouts: rows in their order, the journal, and engines where something is asked of them.

A batch is deterministic. Invariants:

- it is the first ROLLOUT_BATCH_SIZE groups, in data order, that survive the dynamic filter; over-sampling only starts
  later groups early. A slow document is never dropped for being slow, and the same weights and seeds give the same
  batch;
- leftovers are cancelled and their documents are drawn again by the next rollout;
- every trajectory of an accepted group is in the result, failed ones included.

Example, batch of 2, 3 in flight, the filter drops group 5::

    started 4 5 6 | 4 kept | 5 dropped, 7 started | 6 kept -> batch [4, 6], next group 7, group 7 cancelled

A rollout is whole: where a server died or hung under it, what it had sampled is thrown away, the server is replaced,
and the rollout is sampled again with the same weights and seeds and with empty caches. So the batch, and the run, are
those of servers that never fail; the fleet bounds it (``fleet.MOST_RESTARTS``)::

    ensure_alive | sample .. 3 of 16 lost | ensure_alive: 1 replaced | start_over | sample .. 16 | journal
    ensure_alive | sample .. 1 of 16 lost | ensure_alive: all well   | journal, the failed one masked

LOSS=sft takes the replies that rows give (``hooks/reader.py``): engines start only where the run evaluates, and get
weights only to be evaluated.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from .. import rollout as hooks
from ..checkpoints.hf_folder import HfTensors
from ..config import Config
from ..custom_convert import custom_convert, row_counts
from ..data.training_file import DataSource
from ..hooks import no_signal, rewards, traces
from ..hooks.host import HostArgs, embedded_args
from ..hooks.metrics import rollout_metrics
from ..hooks.sample import AllFailed, Sample, ended, require_survivors
from ..rollout_client import Dialect, Endpoint, answered, close_clients
from ..serving.fleet import Fleet
from ..serving.servers import REQUEST_TIMEOUT_S
from ..system.concurrency import gather_or_cancel, watched
from .evaluate import evaluate_between, evaluate_model
from .resume import Journal, Rollout

logger = logging.getLogger("mem_agent")

WATCH_EVERY_S = 1.0
"""Seconds between checks that a server can still answer; otherwise the rollout would wait for its last retry."""


# --- a batch --------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    samples: list[Sample]
    next_group: int
    dropped: list[Sample]
    """Of groups that the filter left out; they cost as much as the others."""


async def collect_batch(
    run_group: Callable[[int], Coroutine[Any, Any, list[Sample]]], keep: Callable[[list[Sample]], bool],
    first_group: int, batch_size: int, in_flight: int,
) -> Batch:
    """Run groups from ``first_group`` on until ``batch_size`` of them are kept."""
    running: deque[asyncio.Task[list[Sample]]] = deque()
    samples: list[Sample] = []
    dropped: list[Sample] = []
    kept, started = 0, first_group
    try:
        while kept < batch_size:
            while len(running) < max(in_flight, batch_size) - kept:
                running.append(asyncio.ensure_future(run_group(started)))
                started += 1
            group = await running.popleft()
            wanted = keep(group)
            (samples if wanted else dropped).extend(group)
            kept += wanted
        return Batch(samples, started - len(running), dropped)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def training_sampling(config: Config, sample: Sample) -> dict[str, Any]:
    """Sampling parameters of one trajectory. Its seed depends on the run's seed and its number only."""
    seed = config.seed_for(sample.index)
    return {"temperature": config.temperature, "top_p": 1.0, "top_k": -1, "sampling_seed": seed}


# --- rollouts -------------------------------------------------------------------------------------------------------


class Rollouts:
    """Gives rollouts one after the other, and evaluates. The engines start while the trainer is built."""

    def __init__(self, config: Config, *, evaluate: bool = False) -> None:
        """``evaluate``: evaluate the starting weights first."""
        self.config = config
        self.source = DataSource(config.train_data, config.seed, shuffle=config.rollout_shuffle)
        self.journal = Journal(config)
        self.fleet = Fleet(config, config.hf_ckpt)
        self._background = Background()
        self._starting = self._background.submit(self._start(evaluate))

    async def _start(self, evaluate: bool) -> None:
        """Engines where something is asked of them."""
        if evaluate or self.config.eval_interval > 0 or not self.config.supervised:
            await self.fleet.start()
        if evaluate:
            await evaluate_model(self.config, self.fleet, "before", Path(self.config.hf_ckpt))

    def begin(self) -> None:
        """Wait until the engines may get weights: the starting weights are evaluated first."""
        self._starting.result()

    def rollout(self, number: int, first_group: int) -> Rollout:
        """Rollout ``number``, of the groups from ``first_group`` on: from the journal, else made and journalled."""
        if (known := self.journal.read(number)) is not None:
            logger.info("rollout %d is replayed from the journal", number + 1)
            return known
        fresh = self._background.run(self._rollout(number, first_group))
        self.journal.write(number, fresh)
        return fresh

    def sync(self, tensors: Mapping[str, Any], version: int | str) -> float:
        """Send weights to the engines under ``version``; returns the seconds it took."""
        return self._background.run(self.fleet.sync_weights(tensors, str(version)))

    def evaluate(self, name: str, model: Path) -> None:
        """Evaluate the converted ``model``, whose number format may be another than the trainer's."""
        weights = HfTensors(model)
        self.sync({tensor: weights.read(tensor) for tensor in weights.shapes}, name)
        self._background.run(evaluate_model(self.config, self.fleet, name, model))

    def evaluate_policy(self, number: int) -> dict[str, float]:
        """Metrics of the policy after rollout ``number``, whose weights the engines have."""
        return self._background.run(evaluate_between(self.config, self.fleet, number, self.journal.digest(number)))

    def close(self) -> None:
        self._starting.cancel()
        self._background.run(self.fleet.stop())
        self._background.run(close_clients())
        self._background.close()

    # --- on the event loop ------------------------------------------------------------------------------------------

    async def _rollout(self, number: int, first_group: int) -> Rollout:
        args = self._args()
        if self.config.supervised:
            given = await self._collect(first_group)
            metrics = rollout_metrics(given.samples, scored=False) | row_counts(args, given.samples)
            traces.begin(HostArgs(args), number)
            return Rollout(custom_convert(args, given.samples), given.next_group, metrics)
        host = HostArgs(args)
        # Before sampling: a missing state must not come to light after a whole rollout.
        await asyncio.to_thread(rewards.prepare, host, number)
        await self.fleet.ensure_alive()
        loop = asyncio.get_running_loop()
        began, before = time.monotonic(), answered(loop)["sampled_tokens"]
        batch, repeated = await self._whole_batch(number, first_group)
        samples = batch.samples
        speed = (answered(loop)["sampled_tokens"] - before) / (time.monotonic() - began)  # of all replies, kept or not
        metrics = {"dropped_groups": len(batch.dropped) // self.config.group_size, "repeated": repeated,
                   "tokens_per_second": speed}
        if batch.dropped:  # of all that was sampled, before the rollout as a whole adds to the kept ones
            metrics["sampled_reward"] = rollout_metrics(samples + batch.dropped)["reward"]
        await asyncio.to_thread(rewards.apply, host, samples, number)  # the loop still serves routers and engines
        no_signal.watch(host, samples)
        # Of the groups that are trained on, as in slime and vime.
        metrics = rollout_metrics(samples) | row_counts(args, samples) | rewards.metrics(host) | metrics
        traces.begin(host, number)
        return Rollout(custom_convert(args, samples), batch.next_group, metrics)

    async def _whole_batch(self, number: int, first_group: int) -> tuple[Batch, int]:
        """A batch that no server spoilt, and how many before it were."""

        async def look() -> None:
            if self.fleet.out_of_service:
                raise AllFailed("the router or all engines ended during a rollout")

        repeated = 0
        while True:
            lost: AllFailed | None = None
            try:
                batch = await watched(self._collect(first_group), look, WATCH_EVERY_S)
                # In a dropped group a failure may be why the filter dropped it.
                if all(map(ended, batch.samples + batch.dropped)):
                    return batch, repeated
                require_survivors(batch.samples, "a rollout")
                if not any(map(ended, batch.samples)):
                    raise AllFailed("all trajectories of a rollout were aborted by their engines")
            except AllFailed as error:  # a dead server's failures look like it
                lost = error
            # An engine may be inside a long step of requests that were given up.
            if not await self.fleet.ensure_alive(REQUEST_TIMEOUT_S):
                if lost:
                    raise lost
                return batch, repeated
            await self.fleet.start_over()
            repeated += 1
            logger.warning("rollout %d is sampled again: a server had to be replaced", number + 1)

    async def _collect(self, first_group: int) -> Batch:
        config, args = self.config, self._args()
        filtered = config.dynamic_filter == "nonzero_std" and not config.supervised

        async def run_group(group: int) -> list[Sample]:
            """Of one document; a sample's ``index`` is unique over the run."""
            row, numbers = self.source.row(group), range(group * config.group_size, (group + 1) * config.group_size)
            fresh = [Sample(row.prompt, row.label, dict(row.metadata), group_index=group, index=n) for n in numbers]
            return await gather_or_cancel(*(run_sample(args, one, training_sampling(config, one)) for one in fresh))

        def keep(group: list[Sample]) -> bool:
            return not filtered or hooks.nonzero_std(args, group)

        return await collect_batch(run_group, keep, first_group, config.rollout_batch_size, config.groups_in_flight)

    def _args(self) -> SimpleNamespace:
        router = Endpoint(Dialect.VLLM, self.fleet.url, self.config.engine_max_len)
        return embedded_args(self.config, None if self.config.supervised else router)


async def run_sample(args: SimpleNamespace, sample: Sample, sampling: dict[str, Any]) -> Sample:
    """One trajectory through the hooks."""
    sample = await hooks.generate(args, sample, sampling)
    if sample.reward is None and sample.status is not Sample.Status.ABORTED:
        sample.reward = await hooks.reward_func(args, sample)
    return sample


class Background:
    """An event loop in its own thread, so that engines start and answer while this thread trains."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rollouts", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Result of ``coroutine``; an interrupt of this thread cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, and wait for its end."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._runner.close()
