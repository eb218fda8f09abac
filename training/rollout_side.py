"""What only rank 0 of a run has: engines behind a router, the documents, the journal, and the hooks that read them.

The engines start and answer on an event loop in a thread of its own, so they come up while the trainer is built.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any

from .. import rollout as hooks
from ..config import Config
from ..custom_convert import custom_convert, row_counts
from ..data.training_file import DataSource
from ..hooks import batch_reward
from ..hooks.engine_api import Dialect, Endpoint
from ..hooks.host import HostArgs, embedded_args
from ..hooks.metrics import rollout_metrics
from ..hooks.sample import Sample
from ..rollout_client import close_clients
from ..serving.fleet import Fleet
from .group_rollout import Hooks, RolloutError, collect_batch
from .journal import Journal, Rollout

logger = logging.getLogger("mem_agent")


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

    def __init__(self, config: Config) -> None:
        self.config = config
        self.source = DataSource(config.train_data, config.seed, config.n_samples_per_prompt)
        self.journal = Journal(config.save_path, config)
        self.fleet = Fleet(config, config.hf_ckpt, run_folder=config.save_path)
        self.background = Background()
        self._starting = self.background.submit(self.fleet.start())

    def wait_until_ready(self) -> None:
        self._starting.result()

    def sync(self, tensors: dict[str, Any], version: int) -> float:
        return self.background.run(self.fleet.sync_weights(tensors, str(version)))

    def rollout(self, number: int, first_group: int) -> Rollout:
        """Rollout ``number`` from the journal, else sampled and journalled."""
        known = self.journal.read(number)
        if known is not None:
            logger.info("rollout %d is replayed from the journal", number + 1)
            return known
        self.background.run(self.fleet.ensure_alive())
        fresh = self.background.run(self._sample(number, first_group))
        self.journal.write(number, fresh)
        return fresh

    async def _sample(self, number: int, first_group: int) -> Rollout:
        config = self.config
        endpoint = Endpoint(Dialect.VLLM, self.fleet.url, config.mem_max_prompt_tokens or config.engine_max_len)
        args = embedded_args(config, endpoint)
        keep = hooks.nonzero_std if config.dynamic_filter == "nonzero_std" else None
        batch = await collect_batch(
            Hooks(hooks.generate, hooks.reward_func, keep),
            args,
            self.source.group,
            first_group,
            config.rollout_batch_size,
            config.groups_in_flight,
            lambda sample: training_sampling(config, sample),
        )
        samples = batch.samples
        stale = mask_stale(samples, str(number))
        batch_reward.apply(HostArgs.of(args), samples, number)
        metrics = rollout_metrics(batch.sampled) | row_counts(args, samples)
        metrics |= {"dropped_groups": len(batch.dropped), "stale": stale}
        return Rollout(custom_convert(args, samples), batch.next_group, metrics)

    def close(self) -> None:
        self._starting.cancel()
        self.background.run(self.fleet.stop())
        self.background.run(close_clients())
        self.background.close()


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
