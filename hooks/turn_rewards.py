"""What each turn of a trajectory earned by itself, where turns earn anything (``rewards.memory_state``)."""

from __future__ import annotations

from typing import Any

from ..agents.interface import MemoryAgent
from ..agents.records import Outcome, Trajectory
from ..config import Config
from ..rewards.memory_state import Rewards, state_rewards, supporting_titles
from .sample import gold_answers

__all__ = ["Rewards", "turn_rewards"]


def turn_rewards(config: Config, agent: MemoryAgent, trajectory: Trajectory, sample: Any) -> list[Rewards]:
    """Named rewards for every turn, the final one last; none for a trajectory that did not end, or whose turns earn
    nothing."""
    finished = trajectory.outcome in (Outcome.COMPLETED, Outcome.TRUNCATED)
    steps = agent.state_steps(trajectory) if finished else ()
    if not steps:
        return []
    titles = supporting_titles(sample.metadata or {}) if config.mem_evidence_reward else []
    return state_rewards(steps, trajectory.answer, gold_answers(sample), titles)
