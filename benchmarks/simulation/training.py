"""What a trainer does with a rollout: tokens of rows and of trees, their division among ranks, seconds.

As rows, every turn is encoded whole. As trees, what siblings' prompts of one turn share is encoded once::

    prompt 1 = shared 5000 | own 100, reply 1000        rows: 2 * 6100 = 12200 tokens
    prompt 2 = shared 5000 | own 100, reply 1000        tree: 5000 + 2 * 1100 = 7200 tokens
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from ...launch.layout import Layout
from ...launch.model_args import ModelSize
from .prompts import TrajectoryPlan
from .rates import Rates, attention_flops
from .traces import Trace


@dataclass(frozen=True, slots=True)
class Work:
    """Tokens, and pairs of a token with one before it."""

    tokens: float
    pairs: float

    def __add__(self, other: Work) -> Work:
        return Work(self.tokens + other.tokens, self.pairs + other.pairs)


def row_work(prompt: int, reply: int) -> Work:
    length = prompt + reply
    return Work(length, length * length / 2)


def tree_work(shared: int, branches: Sequence[int]) -> Work:
    """``branches`` are lengths behind the shared tokens."""
    pairs = shared * shared / 2 + sum(length * (shared + length / 2) for length in branches)
    return Work(shared + sum(branches), pairs)


def work_items(trajectories: Sequence[TrajectoryPlan], *, trees: bool) -> list[Work]:
    """What is encoded in one piece: rows, or the trees of a group's turn."""
    if not trees:
        return [row_work(turn.prompt, turn.reply) for trajectory in trajectories for turn in trajectory.turns]
    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for trajectory in trajectories:
        for number, turn in enumerate(trajectory.turns):
            rows.setdefault((trajectory.group, number), []).append((turn.shared, turn.prompt + turn.reply))
    items = []
    for siblings in rows.values():
        shared = min(common for common, _ in siblings) if len(siblings) > 1 else 0
        items.append(tree_work(shared, [length - shared for _, length in siblings]))
    return items


def trace_tree_tokens(trace: Trace) -> int:
    """Tokens of the full trie over a real run's rows; equal replies are not known to be equal."""
    return sum(turn.prompt - turn.shared + turn.reply for turn in trace.turns)


def largest_share(items: Sequence[Work], ranks: int) -> Work:
    """What the rank with most tokens has, when the largest pieces are dealt out first to whoever has least."""
    heap = [(0.0, rank) for rank in range(ranks)]
    totals = [Work(0, 0)] * ranks
    for item in sorted(items, key=lambda work: -work.tokens):
        _, rank = heapq.heappop(heap)
        totals[rank] += item
        heapq.heappush(heap, (totals[rank].tokens, rank))
    return max(totals, key=lambda work: work.tokens)


@dataclass(frozen=True)
class TrainingTime:
    """Seconds."""

    log_probs: float
    update: float
    sync: float


def training_time(
    share: Work, model: ModelSize, layout: Layout, rates: Rates, *, steps: int, skip_old: bool, reference: bool
) -> TrainingTime:
    """Of the rank with most tokens; a model copy is ``tp * pp * cp`` GPUs.

    Args:
        share: what one copy encodes once.
        steps: optimizer steps of the rollout; each reduces the gradient over the copies.
        skip_old: the first step's old log-probs are those of its own forward pass.
    """
    gpus = layout.tp * layout.pp * layout.cp
    forward = 2 * model.parameters * share.tokens + attention_flops(model) * share.pairs
    passes = (1 - skip_old / steps) + reference
    network = rates.network_bandwidth * rates.network_share
    copies = layout.data_parallel
    reduce = 2 * 4 * model.parameters / gpus * (copies - 1) / copies / network
    # Forward, backward (twice as much) and full recomputation.
    update = 4 * forward / (rates.peak_flops * rates.train_utilization * gpus)
    return TrainingTime(
        log_probs=passes * forward / (rates.peak_flops * rates.score_utilization * gpus),
        update=update + steps * (reduce + rates.update_fixed_s),
        sync=rates.sync_fixed_s + 2 * model.parameters / network,
    )
