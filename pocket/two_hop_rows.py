"""Supervised rows of the two-hop task, for either agent, as that agent itself asks and is answered.

A good reply to a chunk with facts keeps them (``AGENT=memagent``: the newest that fit beside older ones); to the chunk
with the pointer it keeps the pointer too, and ``AGENT=rememr1`` asks for the kind; the final one says the kind and
then the thing in a box. So every reply is a copy or a look-up of one hop, and what reinforcement learning is left with
is when to do which. A turn that is not good keeps nothing and asks for nothing.

Prompts come from the agent's own state machine, so that rows and rollouts agree to the token.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..agents import build_agent
from ..agents.documents import split_chunks
from ..agents.interface import Reading
from ..agents.records import Generation, StopReason, TurnKind
from ..agents.vocabulary import Vocabulary
from ..config import Config
from . import tokenizer as pocket_tokenizer
from .habits import NONE, Row
from .task import NAMES, THINGS, PocketExample, fact
from .two_hop import POINTER, TwoHopShape, make_two_hop

PROMPTS = Path(__file__).with_name("two_hop.yaml")
REPLY_TOKENS = {"memagent": 10, "rememr1": 24}
"""A memory turn's; tags take 14 of the second."""
KEPT = 3
"""Facts that MemAgent's memory holds beside the pointer."""
_FACT = re.compile(rf"\b({'|'.join(NAMES)}) (\w+)")
_POINTER = re.compile(rf"\b{POINTER} (\w+)")


def save_tokenizer(folder: Path) -> Any:
    """One tokenizer for both agents: the pocket one with the words that this task adds."""
    tags = "thinking update recall"
    return pocket_tokenizer.save(folder, more=(POINTER, tags, PROMPTS.read_text()))


def config_for(agent: str, shape: TwoHopShape, prompts: Path = PROMPTS) -> Config:
    return Config(
        agent=agent, mem_prompts=str(prompts), mem_chunk_tokens=shape.chunk_tokens,
        mem_max_memory=REPLY_TOKENS[agent], mem_max_final=12,
    )


def rows_of_both(tokenizer: Any, prompts: Path, shape: TwoHopShape, seed: int, good: float) -> Iterator[Row]:
    """Turns of both agents by turns, so that one start serves them."""
    streams = [TwoHopRows(agent, tokenizer, shape, prompts).stream(seed, good) for agent in REPLY_TOKENS]
    while True:
        for stream in streams:
            yield next(stream)


class TwoHopRows:
    def __init__(self, agent: str, tokenizer: Any, shape: TwoHopShape, prompts: Path = PROMPTS) -> None:
        self._name, self._shape = agent, shape
        self._vocabulary = Vocabulary(tokenizer)
        self._agent = build_agent(config_for(agent, shape, prompts), self._vocabulary, {})
        self._end = tokenizer.eos_token_id

    def stream(self, seed: int, good: float) -> Iterator[Row]:
        """Turns of trajectories without end, each good with probability ``good``."""
        rng = random.Random(f"two-hop-rows:{seed}")
        while True:
            yield from self.trajectory(make_two_hop(rng, self._shape), rng, good)

    def trajectory(self, example: PocketExample, rng: random.Random, good: float) -> Iterator[Row]:
        encode = self._vocabulary.encode_text
        document = split_chunks(encode(example.context), self._shape.chunk_tokens, 99)
        state = self._agent.start(Reading(encode(example.question), document))
        sections = iter(document.chunks)
        while requests := self._agent.requests(state):
            (request,) = requests
            if request.kind is TurnKind.MEMORY:
                section = self._vocabulary.decode(list(next(sections)))
                reply = self._memory_reply(section, self._vocabulary.decode(self._agent.memory(state)), rng, good)
            else:
                reply = _answer(self._vocabulary.decode(request.prompt_ids))
            ids = [*encode(reply), self._end]
            yield request.prompt_ids, ids
            state = self._agent.advance(state, [Generation(ids, [0.0] * len(ids), StopReason.STOP)])

    def _memory_reply(self, section: str, memory: str, rng: random.Random, good: float) -> str:
        right = rng.random() < good
        pointer = _POINTER.search(section)
        if self._name == "rememr1":
            kept = f"{POINTER} {pointer[1]}" if pointer else " ".join(_facts(section))
            asks = f"<recall>{pointer[1]}</recall>" if pointer and right else ""
            return f"<update>{kept if right else NONE}</update>{asks}"
        facts = [*_facts(section), *_facts(memory)][:KEPT]
        kept = " ".join([*facts, f"{POINTER} {pointer[1]}"] if pointer else facts)
        return kept if right else NONE


def _facts(text: str) -> list[str]:
    return [fact(kind, thing) for kind, thing in _FACT.findall(text) if thing in THINGS[kind]]


def _answer(prompt: str) -> str:
    """The kind that the prompt points at, then its thing; ``none`` for what is not there."""
    pointer = _POINTER.findall(prompt.rpartition("Memory:")[2])
    kind = pointer[-1] if pointer else NONE
    things = [thing for name, thing in _FACT.findall(prompt) if name == kind and thing in THINGS[kind]]
    return f"{kind} \\boxed{{{things[-1] if things else NONE}}}"
