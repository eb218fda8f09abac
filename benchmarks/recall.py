"""What AGENT=rememr1 does in the rollout's event loop, between two requests.

Retrieval: one turn's query and the new memory, at 700 earlier memories of 750 words each (20,000 different ones), by
TF-IDF and BM25; and what scikit-learn takes to fit the same memories anew, where it is installed. Reading: one reply
of 1,400 tokens: parsing, cutting the memory's ids out, and adding it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from transformers import AutoTokenizer

from ..agents import build_agent
from ..agents.chunking import split_chunks
from ..agents.interface import Reading
from ..agents.recall import History, histories
from ..agents.records import Generation, StopReason
from ..agents.vocabulary import Vocabulary
from ..config import Config
from .outcome import Outcome, print_alone
from .rewards import CONFIG, text
from .rows import POCKET
from .stopwatch import Sample, interleaved, timed

NAME = "recall"
MEMORIES, WORDS = 700, 750


def measure(quick: bool = False) -> list[Outcome]:
    rounds = 5 if quick else 50
    return [*retrieval(rounds), reading(rounds)]


def retrieval(rounds: int) -> list[Outcome]:
    draw = random.Random(0)
    texts = [text(draw, WORDS) for _ in range(MEMORIES)]
    fresh = text(draw, WORDS)
    turns = {method: _turn(method, texts, fresh) for method in ("tfidf", "bm25")}
    samples = interleaved(turns, rounds)
    lines = [_line(f"a query and a new memory at {MEMORIES} memories, {name}", samples[name]) for name in turns]
    try:
        from sklearn.feature_extraction.text import TfidfVectorizer
    except ImportError:
        return lines
    refit = interleaved({"fit": lambda: timed(lambda: TfidfVectorizer().fit_transform(texts))}, 3)
    return [*lines, _line("scikit-learn fits the same memories anew", refit["fit"])]


def _turn(method: str, texts: list[str], fresh: str) -> Callable[[], Sample]:
    held: History = histories(Config(mem_recall=method))()
    for number, memory in enumerate(texts):
        held = held.add((number, number), memory)

    def turn() -> None:
        held.find("w3 w500 w9000", now=(1, 1))
        held.add((0,), fresh)

    turn()
    return lambda: timed(turn)


def reading(rounds: int) -> Outcome:
    vocabulary = Vocabulary(AutoTokenizer.from_pretrained(POCKET))
    agent = build_agent(CONFIG, vocabulary, {})
    ids = vocabulary.encode_text("<thinking>x</thinking>\n<update>" + "Ann has a key.\n" * 1_000)[:1_380]
    ids += vocabulary.encode_text("</update><recall>key</recall>")
    state = agent.start(Reading([5], split_chunks([5, 6], 1, 2)))
    generation = Generation(ids, [0.0] * len(ids), StopReason.STOP)
    samples = interleaved({"read": lambda: timed(lambda: agent.advance(state, [generation]))}, rounds)
    return _line(f"a reply of {len(ids):,} tokens read", samples["read"])


def _line(what: str, samples: list[Sample]) -> Outcome:
    return Outcome(NAME, what, tuple(1000 * s.cpu for s in samples), unit="ms", samples={"call": samples})


if __name__ == "__main__":
    print_alone(measure)
