"""Supervised rows of the arithmetic task: the ability to work in any way, then a mix of ways with the right one rare.

After the first stage a model can finish whatever way it has begun; the second moves only which one it begins with. So
what reinforcement learning is left with is to find the right one among those that it tries, and to come back to it.

Prompts come from the agent's own state machine, so that rows and rollouts agree to the token.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..agents import build_agent
from ..agents.chunking import Chunks
from ..agents.interface import Reading
from ..agents.vocabulary import Vocabulary
from ..config import Config
from . import tokenizer as pocket_tokenizer
from .arithmetic import HIGHEST, Way, draw_problem, draw_worked
from .habits import Row

PROMPTS = Path(__file__).with_name("arithmetic.yaml")
REPLY_TOKENS = 64
WORDS = ("reasoning", "answer", "</", "+", "-", "*", "=", "system", "user", "assistant")

ANY = {way: 1 / len(Way) for way in Way}
HABITS = {
    Way.RIGHT: 0.02, Way.LEFT: 0.34, Way.BACKWARDS: 0.16, Way.SHORT: 0.16, Way.LATE: 0.14, Way.SUM: 0.12,
    Way.GUESS: 0.06,
}
"""The shares of the ways in the mix."""
assert set(HABITS) == set(Way) and abs(sum(HABITS.values()) - 1) < 1e-9


def save_tokenizer(folder: Path) -> Any:
    """Write the tokenizer: a token for each number, sign and word of the task."""
    numbers = [str(number) for number in range(HIGHEST + 1)]
    ways = {word for way in Way for word in way.value.split()}
    return pocket_tokenizer.save_words(folder, [*numbers, *WORDS, *sorted(ways)])


def config_for(prompts: Path = PROMPTS) -> Config:
    return Config(agent="single", mem_prompts=str(prompts), mem_max_final=REPLY_TOKENS)


def rows_of_ways(tokenizer: Any, prompts: Path, seed: int, shares: Mapping[Way, float]) -> Iterator[Row]:
    """Rows without end, of problems for training, each worked in a way drawn by its share."""
    rng = random.Random(f"arithmetic-rows:{seed}")
    vocabulary = Vocabulary(tokenizer)
    agent = build_agent(config_for(prompts), vocabulary, {})
    while True:
        problem = draw_problem(rng)
        (way,) = rng.choices(list(shares), list(shares.values()))
        reading = Reading(vocabulary.encode_text(problem.text), Chunks((), 0))
        (request,) = agent.requests(agent.start(reading))
        reply = vocabulary.encode_text(draw_worked(rng, problem, way).reply)
        yield request.prompt_ids, [*reply, tokenizer.eos_token_id]
