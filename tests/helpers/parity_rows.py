"""Rows as a rollout leaves them, with everything that a converter meets: the material of the parity tests.

Replies are sampled from the policy itself, so that log-probs, ratios and KL have the sizes they have in a run.
"""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from mem_agent.agents.records import StopReason, Turn, TurnKind
from mem_agent.config import Config
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks.sample import Sample
from mem_agent.tests.helpers import samples

GROUPS, SIBLINGS = 4, 4
# By trajectory. Each step of eight has lost, removed and cut ones; a group may have lost all but one.
STATUSES = (
    "completed", "completed", "failed", "truncated", "completed", "aborted", "completed", "removed",
    "truncated", "completed", "completed", "completed", "failed", "aborted", "failed", "completed",
)
REWARDS = (1.0, 0.0, 1.0, 0.5, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0)


def rollout(model: Path, config: Config, seed: int) -> dict[str, Any]:
    """The converter's rows of sixteen trajectories of one to four turns."""
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    rng = random.Random(seed)
    torch.manual_seed(seed)
    drawn = [_trajectory(policy, rng, index, config.temperature) for index in range(GROUPS * SIBLINGS)]
    # Three data-parallel ranks, which no test has, only so that there is padding.
    args = SimpleNamespace(global_batch_size=config.step_trajectories, data_parallel_size=3, mem_agent=config)
    return custom_convert(args, drawn)


def _trajectory(policy: Any, rng: random.Random, index: int, temperature: float) -> Sample:
    status = STATUSES[index]
    outcome = "completed" if status == "removed" else status
    count = 1 + index % 4
    turns = [_turn(policy, rng, temperature, last=n == count - 1, cut=status == "truncated") for n in range(count)]
    return samples.trajectory(
        turns, outcome, failure="timeout" if status == "failed" else None, reward=REWARDS[index], index=index,
        group_index=index // SIBLINGS, rollout_id=index, remove_sample=status == "removed", prompt="p")


@torch.no_grad()
def _turn(policy: Any, rng: random.Random, temperature: float, *, last: bool, cut: bool) -> Turn:
    prompt = [rng.randrange(3, policy.config.vocab_size) for _ in range(rng.randint(10, 90))]
    tokens, log_probs = list(prompt), []
    for _ in range(rng.randint(1, 12)):
        distribution = (policy(torch.tensor([tokens])).logits[0, -1] / temperature).log_softmax(-1)
        tokens.append(int(torch.multinomial(distribution.exp(), 1)))
        log_probs.append(float(distribution[tokens[-1]]))
    stop = StopReason.LENGTH if last and cut else StopReason.STOP
    return Turn(TurnKind.FINAL if last else TurnKind.MEMORY, tokens, len(prompt), log_probs, stop)
