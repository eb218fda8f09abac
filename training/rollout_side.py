"""Rank 0's side of a GRPO run: rollouts that engines sample.

A rollout is whole: where a server died or hung under it, what it had sampled is thrown away, the server is replaced,
and the rollout is sampled again with the same weights and seeds and with empty caches. So the batch, and the run, are
those of servers that never fail; the fleet bounds it (``fleet.MOST_RESTARTS``)::

    ensure_alive | sample .. 3 of 16 lost | ensure_alive: 1 replaced | start_over | sample .. 16 | journal
    ensure_alive | sample .. 1 of 16 lost | ensure_alive: all well   | journal, the failed one masked
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from .. import rollout as hooks
from ..config import Config
from ..custom_convert import custom_convert, row_counts
from ..data.training_file import TrainingRow
from ..hooks import rewards, traces
from ..hooks.host import HostArgs, embedded_args
from ..hooks.metrics import rollout_metrics
from ..hooks.sample import AllFailed, Sample
from ..rollout_client import Dialect, Endpoint
from ..serving.fleet import Fleet
from ..serving.router import REQUEST_TIMEOUT_S
from ..system.gather import watched
from .group_rollout import Batch, Hooks, RolloutError, collect_batch
from .journal import Rollout
from .side import Side

logger = logging.getLogger("mem_agent")

WATCH_EVERY_S = 1.0
"""How often a rollout looks whether anybody is left to answer, instead of waiting for the last retry to fail."""


class RolloutSide(Side):
    """That of LOSS=grpo: engines behind a router, and the hooks that ask them."""

    def __init__(self, config: Config, *, evaluate: bool = False) -> None:
        self.fleet = Fleet(config, config.hf_ckpt)
        self._goes_on = False
        super().__init__(config, self.fleet, evaluate=evaluate)

    def rollout(self, number: int, first_group: int) -> Rollout:
        if not self._goes_on:
            self._goes_on = True
            self._replay_to_a_state(number)
        return super().rollout(number, first_group)

    def _replay_to_a_state(self, number: int) -> None:
        """Replay from ``number`` on only what leads to a rollout that can be sampled: a replay trains the policy, and
        a reward with a state learns nothing from it. What leads nowhere is removed and sampled again.
        """
        host, lacking = HostArgs.of(self._args()), self.journal.first_lacking(number)
        if number < lacking < self.config.num_rollout and not rewards.can_prepare(host, lacking):
            logger.warning(
                "the reward's state before rollout %d is not there: those from %d on are sampled again; removed: %s",
                lacking + 1, number + 1, self.journal.remove_from(number),
            )

    def close(self) -> None:
        super().close()
        traces.wait()

    async def _sample(self, number: int, first_group: int) -> Rollout:
        # Before sampling: a missing state must not come to light after a whole rollout.
        await asyncio.to_thread(rewards.prepare, HostArgs.of(self._args()), number)
        await self.fleet.ensure_alive()
        repeated = 0
        while (batch := await self._whole_batch(first_group)) is None:
            repeated += 1
            logger.warning("rollout %d is sampled again: a server had to be replaced", number + 1)
        args, samples = self._args(), batch.samples
        stale = mask_stale(samples, str(number))
        host = HostArgs.of(args)
        # Of all that was sampled, before the rollout as a whole adds to the kept ones.
        sampled = {"sampled_reward": rollout_metrics(batch.sampled)["reward"]} if batch.dropped else {}
        await asyncio.to_thread(rewards.apply, host, samples, number)  # the loop still serves routers and engines
        # Of the groups that are trained on, as in slime and vime.
        metrics = rollout_metrics(samples) | row_counts(args, samples) | rewards.metrics(host)
        metrics |= {"dropped_groups": len(batch.dropped), "stale": stale, "repeated": repeated}
        metrics |= sampled | traces.begin(host, number)
        return Rollout(custom_convert(args, samples), batch.next_group, metrics)

    async def _whole_batch(self, first_group: int) -> Batch | None:
        """A batch that no server spoilt; None where one did, all servers then being ready for another attempt."""
        try:
            batch = await self._while_served(self._collect(first_group))
        except (RolloutError, AllFailed):  # a dead server's failures look like both
            if await self._repaired():
                return None
            raise
        return None if batch.lost and await self._repaired() else batch

    async def _collect(self, first_group: int) -> Batch:
        config = self.config
        keep = hooks.nonzero_std if config.dynamic_filter == "nonzero_std" else None
        return await collect_batch(
            Hooks(self._generate, hooks.reward_func, keep),
            self._args(),
            lambda group: siblings(self.source.row(group), group, config.group_size),
            first_group,
            config.rollout_batch_size,
            config.groups_in_flight,
            lambda sample: training_sampling(config, sample),
        )

    async def _while_served(self, sampling: Coroutine[Any, Any, Batch]) -> Batch:
        """The result of ``sampling``, which is cancelled when the router or the last engine ends."""

        async def look() -> None:
            if self.fleet.out_of_service:
                raise RolloutError("the router or all engines ended during a rollout")

        return await watched(sampling, look, WATCH_EVERY_S)

    async def _repaired(self) -> bool:
        """Whether a server had to be replaced. All engines then stand where the rollout found them."""
        # An engine may be inside a long step of requests that were given up. It is asked twice: one request's time.
        if not await self.fleet.ensure_alive(REQUEST_TIMEOUT_S / 2):
            return False
        await self.fleet.start_over()
        return True

    def _args(self) -> SimpleNamespace:
        return embedded_args(self.config, Endpoint(Dialect.VLLM, self.fleet.url, self.config.engine_max_len))


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
