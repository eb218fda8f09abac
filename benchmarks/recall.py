"""ReMemR1's own costs: ``python -m mem_agent.benchmarks.recall {retrieval,reading,rewards} [--model FOLDER]``.

retrieval  one turn's query and the new memory, at 700 earlier memories of 750 words each (20,000 different ones),
           median of 50: TF-IDF and BM25, and what scikit-learn takes to fit the same memories anew
reading    one reply of 1,400 tokens: parsing, cutting the memory's ids out, and adding it
rewards    2,048 trajectories of 8 turns in groups of 16, sections of 400 words, memories of 60, a recall in every
           second turn: the state rewards, and the converter with outcome and state advantages

Retrieval is what the rollout's event loop does between two requests; rewards are computed in a thread beside it.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import SimpleNamespace

from transformers import AutoTokenizer

from ..agents import build_agent
from ..agents.chunking import split_chunks
from ..agents.interface import Reading
from ..agents.recall import History, histories
from ..agents.records import Generation, Outcome, StopReason, Trajectory, Turn, TurnKind
from ..agents.rememr1 import ReMemR1
from ..agents.vocabulary import Vocabulary
from ..config import Config
from ..custom_convert import custom_convert
from ..hooks.record import Record, write_record
from ..hooks.sample import Sample
from ..rewards.memory_state import Rewards, Step, state_rewards

POCKET = Path(__file__).parents[1] / "pocket" / "start"
MEMORIES, WORDS, VOCABULARY = 700, 750, 20_000
TRAJECTORIES, TURNS, GROUP = 2_048, 8, 16
CONFIG = Config(agent="rememr1")


def text(draw: random.Random, words: int = WORDS) -> str:
    """Words as frequent as in English, the second half as often as the first, and so on."""
    return " ".join(f"w{int(VOCABULARY ** draw.random())}" for _ in range(words))


def milliseconds(call: Callable[[], object], times: int) -> str:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(1000 * (time.perf_counter() - began))
    return f"{median(taken):.2f} ms (least {min(taken):.2f})"


def retrieval() -> None:
    draw = random.Random(0)
    texts = [text(draw) for _ in range(MEMORIES)]
    fresh = text(draw)
    for method in ("tfidf", "bm25"):
        held: History = histories(Config(mem_recall=method))()
        for number, memory in enumerate(texts):
            held = held.add((number, number), memory)

        def turn(held: History = held) -> None:
            held.find("w3 w500 w9000", now=(1, 1))
            held.add((0,), fresh)

        print(f"{method}: query and new memory at {MEMORIES} memories {milliseconds(turn, 50)}")
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        return
    print(f"scikit-learn fits them anew in {milliseconds(lambda: TfidfVectorizer().fit_transform(texts), 3)}")


def reading(model: Path) -> None:
    vocabulary, agent = _agent(model)
    ids = vocabulary.encode_text("<thinking>x</thinking>\n<update>" + "Ann has a key.\n" * 1_000)[:1_380]
    ids += vocabulary.encode_text("</update><recall>key</recall>")
    state = agent.start(Reading([5], split_chunks([5, 6], 1, 2)))
    generation = Generation(ids, [0.0] * len(ids), StopReason.STOP)
    print(f"a reply of {len(ids)} tokens: {milliseconds(lambda: agent.advance(state, [generation]), 30)}")


def rewards(model: Path) -> None:
    vocabulary, agent = _agent(model)
    draw = random.Random(0)
    memories = [[text(draw, 60) for _ in range(TURNS - 1)] for _ in range(GROUP)]
    documents = [_reading(vocabulary, draw) for _ in range(TRAJECTORIES // GROUP)]
    trajectories = [_trajectory(reading, kept) for reading in documents for kept in memories]
    golds = ["w7 w300 w4000", "w9"]
    began = time.perf_counter()
    states = [state_rewards(agent.state_steps(t), t.answer, golds) for t in trajectories]
    rewarded = time.perf_counter() - began
    samples = [_sample(i, t, s) for i, (t, s) in enumerate(zip(trajectories, states, strict=True))]
    began = time.perf_counter()
    rows = len(custom_convert(SimpleNamespace(mem_agent=CONFIG), samples)["tokens"])
    converted = time.perf_counter() - began
    print(f"{TRAJECTORIES} trajectories of {TURNS} turns: state rewards {rewarded:.2f} s, "
          f"{rows} rows with advantages {converted:.2f} s, together {rewarded + converted:.2f} s")


def _agent(model: Path) -> tuple[Vocabulary, ReMemR1]:
    vocabulary = Vocabulary(AutoTokenizer.from_pretrained(model))
    agent = build_agent(CONFIG, vocabulary, {})
    assert isinstance(agent, ReMemR1)
    return vocabulary, agent


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
    return Trajectory(tuple(turns), Outcome.COMPLETED, "\\boxed{w9}", state=state)


def _sample(index: int, trajectory: Trajectory, states: list[Rewards]) -> Sample:
    sample = Sample(index=index, group_index=index // GROUP, reward=float(index % 2))
    return write_record(sample, Record.of_trajectory(trajectory, states=states), trajectory)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what AGENT=rememr1 adds.")
    parser.add_argument("what", choices=("retrieval", "reading", "rewards"))
    parser.add_argument("--model", type=Path, default=POCKET, help="folder of the tokenizer")
    options = parser.parse_args()
    match options.what:
        case "retrieval":
            retrieval()
        case "reading":
            reading(options.model)
        case "rewards":
            rewards(options.model)


if __name__ == "__main__":
    main()
