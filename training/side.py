"""What only rank 0 of a run has: the rows in their order, the journal, and engines where something is asked of them.

The engines start and answer on an event loop in a thread of its own, so they come up, and the starting weights are
evaluated, while the trainer is built.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from ..checkpoints.hf_folder import HfTensors
from ..config import Config
from ..data.training_file import DataSource
from ..hooks.sample import Sample
from ..rollout import generate
from ..rollout_client import answered, close_clients
from ..serving.fleet import Fleet
from .evaluate import evaluate_between, evaluate_model, forget_answers
from .journal import Journal, Rollout
from .progress import Counts

logger = logging.getLogger("mem_agent")

ENDING_S = 30.0
"""For tasks that are cancelled when a run ends; most take none."""


class Background:
    """An event loop in its own thread, so that engines start and answer while this thread trains."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="rollouts", daemon=True)
        self._thread.start()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Result of ``coroutine``; an interrupt of this thread cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Let interrupted tasks finish first: asyncio prints a warning for each task that is dropped."""
        self.submit(self._end_tasks()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            if not task.cancelling():  # another one would cut short what it does to end
                task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=ENDING_S)


class Side(ABC):
    """Gives rollouts one after the other, and evaluates before the first and after the last."""

    def __init__(self, config: Config, fleet: Fleet | None, *, evaluate: bool = False) -> None:
        """
        Args:
            fleet: not started; None where nothing is evaluated and nothing sampled.
            evaluate: evaluate the starting weights first.
        """
        self.config = config
        self.source = DataSource(config.train_data, config.seed, shuffle=config.rollout_shuffle)
        self.journal = Journal(config.save_path, config)
        self.background = Background()
        self._engines = fleet
        self._ended = 0
        self.speed: dict[str, float] = {}
        """``tokens_per_second`` of the last rollout: of all replies, kept or not. One that is replayed has none."""
        self._evaluates, self._before = evaluate, ""
        self._starting = self.background.submit(self._start())

    async def _start(self) -> None:
        if self._engines is None:
            return
        await self._engines.start()
        if self._evaluates:
            self._before = await evaluate_model(self.config, self._engines, "before", Path(self.config.hf_ckpt))

    def wait_until_ready(self) -> None:
        """Return once the engines may get weights: until then they have HF_CKPT's, which are evaluated."""
        self._starting.result()
        if self._before:
            print(self._before, flush=True)

    def rollout(self, number: int, first_group: int) -> Rollout:
        """Rollout ``number`` from the journal, else made and journalled."""
        self.speed, known = {}, self.journal.read(number)
        if known is not None:
            logger.info("rollout %d is replayed from the journal", number + 1)
            return known
        began, before = time.monotonic(), self.counts()
        fresh = self.background.run(self._sample(number, first_group))
        if tokens := self.counts().since(before).sampled_tokens:
            self.speed = {"tokens_per_second": tokens / (time.monotonic() - began)}
        self.journal.write(number, fresh)
        forget_answers(self.config, number)
        return fresh

    def counts(self) -> Counts:
        """What has been sampled since this began; for any thread."""
        return Counts(trajectories=self._ended, **answered(self.background.loop))

    async def _generate(self, *arguments: Any, **options: Any) -> Sample:
        """The hook, counted."""
        sample: Sample = await generate(*arguments, **options)
        self._ended += 1
        return sample

    @abstractmethod
    async def _sample(self, number: int, first_group: int) -> Rollout:
        """Rollout ``number``, of the groups from ``first_group`` on."""

    def sync(self, tensors: dict[str, Any], version: int | str) -> float:
        """Send the policy's weights to the engines under ``version``; returns the seconds it took."""
        assert self._engines is not None, "a run that samples or evaluates has engines"
        return self.background.run(self._engines.sync_weights(tensors, str(version)))

    def evaluate(self, name: str, model: Path) -> None:
        """Evaluate the converted ``model``, whose number format may be another than the trainer's."""
        assert self._engines is not None, "a run that evaluates has engines"
        weights = HfTensors(model)
        self.sync({tensor: weights.read(tensor) for tensor in weights.shapes}, name)
        print(self.background.run(evaluate_model(self.config, self._engines, name, model)), flush=True)

    def evaluate_policy(self, number: int) -> dict[str, float]:
        """Metrics of the policy after rollout ``number``, whose weights the engines have."""
        assert self._engines is not None, "a run that evaluates has engines"
        return self.background.run(evaluate_between(self.config, self._engines, number))

    def close(self) -> None:
        self._starting.cancel()
        if self._engines is not None:
            self.background.run(self._engines.stop())
        self.background.run(close_clients())
        self.background.close()


