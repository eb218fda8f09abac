"""Rewards: those of 2,048 answers by their task, and the state rewards of 2,048 trajectories of ReMemR1.

An answer is 60 words and a box, its row has three golds. The trajectories have 8 turns, sections of 400 words and
memories of 60, in groups of 16, and recall in every second turn. Both are computed in a thread beside the rollout.
"""

from __future__ import annotations

import random
from itertools import pairwise
from types import SimpleNamespace

from transformers import AutoTokenizer

from ..agents import build_agent
from ..agents.chunking import split_chunks
from ..agents.interface import Reading
from ..agents.records import Outcome as Ending
from ..agents.records import StopReason, Trajectory, Turn, TurnKind
from ..agents.rememr1 import ReMemR1
from ..agents.vocabulary import Vocabulary
from ..config import Config
from ..hooks.record import Record, write_record
from ..hooks.sample import Sample as HostSample
from ..hooks.task_row import row_of, task_of
from ..rewards.memory_state import Step, state_rewards
from .outcome import Outcome, print_alone
from .rows import POCKET
from .stopwatch import interleaved, timed

NAME = "rewards"
VOCABULARY = 20_000
TRAJECTORIES, TURNS, GROUP = 2_048, 8, 16
GOLDS = ["w7 w300 w4000", "w9", "the w12"]
CONFIG = Config(agent="rememr1")


def measure(quick: bool = False, count: int = TRAJECTORIES) -> list[Outcome]:
    config = Config()
    answers = [_answer(i) for i in range(count)]
    agent, trajectories = _trajectories(count)
    samples = interleaved(
        {f"rewards of {count:,} answers": lambda: timed(lambda: _rewards(config, answers)),
         f"state rewards of {count:,} trajectories of {TURNS} turns":
             lambda: timed(lambda: [state_rewards(agent.state_steps(t), t.answer, GOLDS) for t in trajectories])},
        1 if quick else 5,
    )
    return [Outcome(NAME, what, tuple(s.cpu for s in taken), unit="s", note="CPU seconds", samples={"call": taken})
            for what, taken in samples.items()]


def _rewards(config: Config, answers: list[HostSample]) -> None:
    rewards = [sum(task_of(config, one).reward(one.response, row_of(one)).values()) for one in answers]
    assert set(rewards) == {0.0, 1.0}, set(rewards)


def text(draw: random.Random, words: int) -> str:
    """Words as frequent as in English, the second half as often as the first, and so on."""
    return " ".join(f"w{int(VOCABULARY ** draw.random())}" for _ in range(words))


def _answer(index: int) -> HostSample:
    """Every second one is right."""
    draw = random.Random(index)
    reply = f"{text(draw, 60)} \\boxed{{{GOLDS[index % 3] if index % 2 else 'w1 w2'}}}"
    turn = Turn(TurnKind.FINAL, [5] * 100, [6] * 80, [-0.5] * 80, StopReason.STOP)
    trajectory = Trajectory((turn,), Ending.COMPLETED, reply)
    sample = HostSample(index=index, group_index=index // GROUP, prompt="w5?", label=GOLDS[0],
                        metadata={"ground_truth": GOLDS})
    return write_record(sample, Record.of_trajectory(trajectory), trajectory)


def _trajectories(count: int) -> tuple[ReMemR1, list[Trajectory]]:
    vocabulary = Vocabulary(AutoTokenizer.from_pretrained(POCKET))
    agent = build_agent(CONFIG, vocabulary, {})
    assert isinstance(agent, ReMemR1)
    draw = random.Random(0)
    memories = [[text(draw, 60) for _ in range(TURNS - 1)] for _ in range(GROUP)]
    documents = [_reading(vocabulary, draw) for _ in range(count // GROUP)]
    return agent, [_trajectory(reading, kept) for reading in documents for kept in memories]


def _reading(vocabulary: Vocabulary, draw: random.Random) -> Reading:
    document = vocabulary.encode_text(text(draw, 400 * (TURNS - 1)))
    return Reading([5], split_chunks(document, -(-len(document) // (TURNS - 1)), TURNS - 1))


def _trajectory(reading: Reading, memories: list[str]) -> Trajectory:
    """Every second turn recalls the memory before."""
    prompt, reply = [5] * 1_500, [6] * 200
    turns = [
        Turn(TurnKind.MEMORY if number < TURNS - 1 else TurnKind.FINAL, prompt, reply, [-0.5] * len(reply),
             StopReason.STOP)
        for number in range(TURNS)
    ]
    steps = tuple(
        Step(True, before, after, before if number % 2 else "")
        for number, (before, after) in enumerate(pairwise(["", *memories]))
    )
    state = SimpleNamespace(steps=steps, reading=reading)
    return Trajectory(tuple(turns), Ending.COMPLETED, "\\boxed{w9}", state=state)


if __name__ == "__main__":
    print_alone(measure)
