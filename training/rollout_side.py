"""What only rank 0 of a run has: engines behind a router, the documents, the journal, and the hooks that read them.

The engines start and answer on an event loop in a thread of its own, so they come up, and the starting weights are
evaluated, while the trainer is built.

A rollout is whole: where a server died or hung under it, what it had sampled is thrown away, the server is replaced,
and the rollout is sampled again with the same weights and seeds and with empty caches. So the batch, and the run, are
those of servers that never fail; ENGINE_RESTARTS bounds it::

    ensure_alive | sample .. 3 of 16 lost | ensure_alive: 1 replaced | start_over | sample .. 16 | journal
    ensure_alive | sample .. 1 of 16 lost | ensure_alive: all well   | journal, the failed one masked
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from .. import rollout as hooks
from ..checkpoints.hf_folder import HfTensors
from ..config import Config
from ..custom_convert import custom_convert, row_counts
from ..data.training_file import DataSource, TrainingRow
from ..hooks import batch_reward
from ..hooks.engine_api import Dialect, Endpoint
from ..hooks.host import HostArgs, embedded_args
from ..hooks.metrics import rollout_metrics
from ..hooks.sample import Sample
from ..rollout_client import close_clients
from ..serving.fleet import Fleet
from .evaluation import Evaluation
from .group_rollout import Batch, Hooks, RolloutError, collect_batch
from .journal import Journal, Rollout

logger = logging.getLogger("mem_agent")

WATCH_EVERY_S = 1.0
"""How often a rollout looks whether anybody is left to answer, instead of waiting for the last retry to fail."""


class Background:
    """An event loop in its own thread, so that engines start and answer while this thread trains."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
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
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class RolloutSide:
    """What only rank 0 has: engines behind a router, the documents, the hooks."""

    def __init__(self, config: Config, evaluated: Evaluation | None = None, engine_len: int = 0) -> None:
        """``evaluated``: what is to be evaluated of the starting weights, with ``engine_len`` tokens of context."""
        self.config = config
        self.source = DataSource(config.train_data, config.seed, shuffle=config.rollout_shuffle)
        self.journal = Journal(config.save_path, config)
        served = replace(config, engine_max_len=max(config.engine_max_len, engine_len))
        self.fleet = Fleet(served, config.hf_ckpt, run_folder=config.save_path)
        self.background = Background()
        self._evaluated = evaluated
        self._starting = self.background.submit(self._start())

    async def _start(self) -> None:
        await self.fleet.start()
        if self._evaluated is not None:
            await self._evaluated.run(self.fleet)

    def wait_until_ready(self) -> None:
        """Return once the engines may get weights: until then they have HF_CKPT's, which are evaluated."""
        self._starting.result()
        if self._evaluated is not None:
            print(self._evaluated.said(), flush=True)

    def evaluate(self, evaluation: Evaluation, model: Path) -> None:
        """Evaluate the converted ``model``, whose number format may be another than the trainer's."""
        weights = HfTensors(model)
        self.background.run(
            self.fleet.sync_weights({name: weights.read(name) for name in weights.shapes}, evaluation.name)
        )
        self.background.run(evaluation.run(self.fleet))
        print(evaluation.said(), flush=True)

    def sync(self, tensors: dict[str, Any], version: int) -> float:
        return self.background.run(self.fleet.sync_weights(tensors, str(version)))

    def rollout(self, number: int, first_group: int) -> Rollout:
        """Rollout ``number`` from the journal, else sampled and journalled."""
        known = self.journal.read(number)
        if known is not None:
            logger.info("rollout %d is replayed from the journal", number + 1)
            return known
        fresh = self.background.run(self._sample(number, first_group))
        self.journal.write(number, fresh)
        return fresh

    async def _sample(self, number: int, first_group: int) -> Rollout:
        # Before, not to learn after a rollout that its state is gone.
        await asyncio.to_thread(batch_reward.prepare, HostArgs.of(self._args()), number)
        await self.fleet.ensure_alive()
        repeated = 0
        while (batch := await self._whole_batch(first_group)) is None:
            repeated += 1
            logger.warning("rollout %d is sampled again: a server had to be replaced", number + 1)
        args, samples = self._args(), batch.samples
        stale = mask_stale(samples, str(number))
        host = HostArgs.of(args)
        await asyncio.to_thread(batch_reward.apply, host, samples, number)  # the loop still serves routers and engines
        metrics = rollout_metrics(batch.sampled) | row_counts(args, samples) | batch_reward.metrics(host)
        metrics |= {"dropped_groups": len(batch.dropped), "stale": stale, "repeated": repeated}
        return Rollout(custom_convert(args, samples), batch.next_group, metrics)

    async def _whole_batch(self, first_group: int) -> Batch | None:
        """A batch that no server spoilt; None where one did, all servers then being ready for another attempt."""
        try:
            batch = await self._while_served(self._collect(first_group))
        except RolloutError:
            if await self._repaired():
                return None
            raise
        return None if batch.lost and await self._repaired() else batch

    async def _collect(self, first_group: int) -> Batch:
        config = self.config
        keep = hooks.nonzero_std if config.dynamic_filter == "nonzero_std" else None
        return await collect_batch(
            Hooks(hooks.generate, hooks.reward_func, keep),
            self._args(),
            lambda group: siblings(self.source.row(group), group, config.n_samples_per_prompt),
            first_group,
            config.rollout_batch_size,
            config.groups_in_flight,
            lambda sample: training_sampling(config, sample),
        )

    async def _while_served(self, sampling: Coroutine[Any, Any, Batch]) -> Batch:
        """The result of ``sampling``, which is cancelled when the router or the last engine ends."""
        task = asyncio.ensure_future(sampling)
        try:
            while not (await asyncio.wait({task}, timeout=WATCH_EVERY_S))[0]:
                if self.fleet.out_of_service:
                    raise RolloutError("the router or all engines ended during a rollout")
            return await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _repaired(self) -> bool:
        """Whether a server had to be replaced. All engines then stand where the rollout found them."""
        # An engine may be inside a long step of requests that were given up. It is asked twice: one request's time.
        if not await self.fleet.ensure_alive(self.config.mem_request_timeout / 2):
            return False
        await self.fleet.start_over()
        return True

    def _args(self) -> SimpleNamespace:
        config = self.config
        limit = config.mem_max_prompt_tokens or config.engine_max_len
        return embedded_args(config, Endpoint(Dialect.VLLM, self.fleet.url, limit))

    def close(self) -> None:
        self._starting.cancel()
        self.background.run(self.fleet.stop())
        self.background.run(close_clients())
        self.background.close()


def siblings(row: TrainingRow, group: int, count: int) -> list[Sample]:
    """Fresh Samples of one document; ``index`` is unique over the run."""
    return [
        Sample(row.prompt, row.label, dict(row.metadata), group_index=group, index=group * count + number)
        for number in range(count)
    ]


def training_sampling(config: Config, sample: Sample) -> dict[str, Any]:
    """Sampling parameters of one trajectory. Its seed depends on the run's seed and its number only."""
    seed = config.seed_for(sample.index)
    return {"temperature": config.temperature, "top_p": 1.0, "top_k": -1, "sampling_seed": seed}


def mask_stale(samples: list[Sample], version: str) -> int:
    """Take trajectories that any other weight version sampled out of training; returns how many there were."""
    stale = [s for s in samples if s.weight_versions and s.weight_versions != [version]]
    for sample in stale:
        sample.remove_sample = True
        logger.warning("trajectory %s has turns of weights %s, not %s", sample.index, sample.weight_versions, version)
    if stale and len(stale) == sum(bool(s.weight_versions) for s in samples):
        raise RolloutError(f"every trajectory came from other weights than version {version}; the engines are stale")
    return len(stale)
