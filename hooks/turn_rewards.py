"""What each turn of a trajectory earned by itself, where turns earn anything (``rewards.memory_state``), and what its
advantage counts (MEM_TURN_WEIGHT)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..agents.interface import MemoryAgent
from ..agents.records import Outcome, Trajectory, TurnKind
from ..config import Config
from ..rewards.memory_state import Rewards, state_rewards, supporting_titles
from ..rewards.published_state import prompt_weight, published_state_rewards
from .sample import gold_answers

__all__ = ["Rewards", "turn_rewards", "turn_weights"]


def turn_rewards(config: Config, agent: MemoryAgent, trajectory: Trajectory, sample: Any) -> list[Rewards]:
    """Named rewards for every turn, the final one last; none for a trajectory that did not end, or whose turns earn
    nothing."""
    finished = trajectory.outcome in (Outcome.COMPLETED, Outcome.TRUNCATED)
    steps = agent.state_steps(trajectory) if finished else ()
    if not steps:
        return []
    if config.mem_state_reward == "published":
        return published_state_rewards(steps, trajectory.answer, gold_answers(sample))
    titles = supporting_titles(sample.metadata or {}) if config.mem_evidence_reward else []
    return state_rewards(steps, trajectory.answer, gold_answers(sample), titles)


def turn_weights(
    config: Config, decode: Callable[[Sequence[int]], str], trajectory: Trajectory, sample: Any
) -> list[float]:
    """The factor of every turn's advantage; none where all count alike."""
    if config.mem_turn_weight == "even":
        return []
    golds = gold_answers(sample)
    return [
        prompt_weight(decode(turn.prompt_ids), golds) if turn.kind is TurnKind.MEMORY else 1.0
        for turn in trajectory.turns
    ]
