"""Any agent on the one loop, over replies that a test has written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from mem_agent.agents import build_agent
from mem_agent.agents.documents import split_chunks
from mem_agent.agents.interface import MemoryAgent, Reading
from mem_agent.agents.records import Generation, StopReason, Trajectory, TurnKind
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config
from mem_agent.rollout import run_trajectory
from mem_agent.system.concurrency import gather_or_cancel
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

VOCABULARY = Vocabulary(make_tokenizer())
END = VOCABULARY.encode_markup("<|im_end|>")
QUESTION = "Who, then?"
SECTIONS = "QWZRXYUJOPGSKVFHBDNM"
"""Two letters are a section: ``QW`` is the first."""


@dataclass
class Run:
    trajectory: Trajectory
    prompts: list[str]

    @property
    def kinds(self) -> str:
        return "".join({TurnKind.MEMORY: "m", TurnKind.FINAL: "f"}[turn.kind] for turn in self.trajectory.turns)

    @property
    def memories(self) -> list[str]:
        return [VOCABULARY.decode(ids) for ids in self.trajectory.memories]

    @property
    def read(self) -> list[str]:
        """The sections that were shown, in order of the turns."""
        shown = (p.partition("<section>\n")[2].partition("\n</section>")[0] for p in self.prompts)
        return [section for section in shown if section]

    def count(self, name: str) -> float:
        return self.trajectory.counts[name]


def build(config: Config, vocabulary: Vocabulary = VOCABULARY) -> MemoryAgent:
    return build_agent(config, vocabulary, {})


def by_turn(sample):
    """A sampler of rounds from one of single turns, ``sample(request, number)``."""

    async def sample_round(requests, number):
        return await gather_or_cancel(*(sample(request, number + i) for i, request in enumerate(requests)))

    return sample_round


def read(replies, chunks: int = 3, args: str = "", question: str = QUESTION, **settings) -> Run:
    """``replies`` by the turn's number, or a function of its prompt and number.

    One is a text, which ends by itself; (text, stop); token ids; or an exception.
    """
    config = Config(**{"mem_max_memory": 32, "mem_max_final": 16, "agent_args": args} | settings)
    sections = split_chunks([i for c in SECTIONS[: 2 * chunks] for i in VOCABULARY.encode_text(c)], 2, 99)
    prompts: dict[int, str] = {}

    async def sample(request, number):
        prompts[number] = VOCABULARY.tokenizer.decode(request.prompt_ids)
        reply = replies(prompts[number], number) if callable(replies) else replies[number]
        if isinstance(reply, Exception):
            raise reply
        text, stop = reply if isinstance(reply, tuple) else (reply, StopReason.STOP)
        ids = text if isinstance(text, list) else VOCABULARY.encode_text(text) + END * (stop is StopReason.STOP)
        return Generation(ids, [-0.5] * len(ids), stop)

    reading = Reading(VOCABULARY.encode_text(question), sections)
    trajectory = asyncio.run(run_trajectory(build(config), reading, by_turn(sample)))
    return Run(trajectory, [prompts[number] for number in sorted(prompts)])


def spliced(prompt: Sequence[int], ids: Sequence[int]) -> bool:
    """Whether ``ids`` stand in ``prompt`` as they are."""
    return any(list(prompt[i : i + len(ids)]) == list(ids) for i in range(len(prompt) - len(ids) + 1))
