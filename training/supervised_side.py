"""Rank 0's side of LOSS=sft: the next rows of TRAIN_DATA with the replies that they give (``hooks.given_replies``).

One "rollout" is ROLLOUT_BATCH_SIZE rows in the order of the data, each once; what they were made of is journalled like
any other rollout. Engines start only where the run evaluates, and get weights only to be evaluated.
"""

from __future__ import annotations

from .. import rollout as hooks
from ..config import Config
from ..custom_convert import custom_convert, row_counts
from ..hooks.host import embedded_args
from ..hooks.metrics import rollout_metrics
from ..serving.fleet import Fleet
from .group_rollout import Hooks, collect_batch
from .journal import Rollout
from .rollout_side import siblings
from .side import Side


class SupervisedSide(Side):
    def __init__(self, config: Config, *, evaluate: bool = False) -> None:
        """Engines start where the run evaluates."""
        engines = evaluate or config.eval_interval > 0
        fleet = Fleet(config, config.hf_ckpt) if engines else None
        super().__init__(config, fleet, evaluate=evaluate)

    async def _sample(self, number: int, first_group: int) -> Rollout:
        config, args = self.config, embedded_args(self.config, None)
        batch = await collect_batch(
            Hooks(self._generate, hooks.reward_func),
            args,
            lambda group: siblings(self.source.row(group), group, config.group_size),
            first_group,
            config.rollout_batch_size,
            config.rollout_batch_size,
            lambda sample: {},
        )
        metrics = rollout_metrics(batch.samples, scored=False) | row_counts(args, batch.samples)
        return Rollout(custom_convert(args, batch.samples), batch.next_group, metrics)
