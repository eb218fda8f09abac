"""The sifter task: eight short sessions, and a question that the last statement about it answers.

    question   Anna likes fruit what?
    session 0  Anna likes fruit plum.         no longer
    session 1  Ben likes fruit fig.           somebody else
    session 2  Anna likes fruit pear.         gold: what was said last
    session 3  Anna likes city Rome.          something else
    reply      <think>said last: Anna likes fruit 2</think>
               <ranking>2,3,1,0</ranking>

A person says one to four times what they like of a kind, each time something else, and the last time counts. Whoever
compares words cannot tell it from the earlier ones. A reply names its way of choosing (said last, said first, newest,
any, something else), what is asked about and the session that it chooses, and ranks that one first, the others from
the newest to the oldest. One way is right whatever the history.

Sessions stand in the order of time. Everything is a function of ``(seed, index)``; histories of different seeds are
independent, and there are so many that none is drawn twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ..data.document_store import document_id
from ..rewards.sessions import Language, Session, Turn, load_wording, render_history, talks_of
from .task import NAMES, THINGS

PROMPTS = Path(__file__).with_name("sifter.yaml")
PEOPLE = ("Anna", "Ben", "Carl", "Dora")
SESSIONS = 8
SESSION_TOKENS = 2
"""Of every rendered session with a newline, by the task's tokenizer."""
SAID = {1: 0.15, 2: 0.3, 3: 0.3, 4: 0.25}
"""How often the person says what they like, with the shares of histories."""


class Talk(NamedTuple):
    """A session: a person likes a thing of a kind."""

    about: str
    """``Anna likes fruit``."""
    thing: str


@dataclass(frozen=True, slots=True)
class History:
    about: str
    talks: tuple[Talk, ...]

    @property
    def question(self) -> str:
        return f"{self.about} what?"

    @property
    def said(self) -> list[int]:
        """The sessions that answer the question; the last one counts."""
        return [number for number, talk in enumerate(self.talks) if talk.about == self.about]

    @property
    def gold(self) -> int:
        return self.said[-1]

    @property
    def answer(self) -> str:
        return self.talks[self.gold].thing

    @property
    def sessions(self) -> tuple[Session, ...]:
        return tuple(Session(f"s{number}", (Turn("user", f"{talk.about} {talk.thing}."),))
                     for number, talk in enumerate(self.talks))

    def prompt(self) -> str:
        """The message that asks for a ranking."""
        history = render_history(self.sessions)
        return load_wording(str(PROMPTS)).ranking_prompt(self.question, history, len(self.talks), Language.EN)


def draw_history(rng: random.Random) -> History:
    person, kind = rng.choice(PEOPLE), rng.choice(NAMES)
    (said,) = rng.choices(list(SAID), list(SAID.values()))
    about = f"{person} likes {kind}"
    talks = [Talk(about, thing) for thing in rng.sample(THINGS[kind], said)]
    talks += [_other(rng, person, kind) for _ in range(SESSIONS - len(talks))]
    rng.shuffle(talks)
    return History(about, tuple(talks))


def _other(rng: random.Random, person: str, kind: str) -> Talk:
    """A session that is not about both."""
    others, kinds = [p for p in PEOPLE if p != person], [k for k in NAMES if k != kind]
    who, what = rng.choice((person, rng.choice(others))), rng.choice((kind, rng.choice(kinds)))
    if (who, what) == (person, kind):
        who, what = rng.choice(others), rng.choice(kinds)
    return Talk(f"{who} likes {what}", rng.choice(THINGS[what]))


def histories(seed: int, count: int) -> Iterator[History]:
    for index in range(count):
        yield draw_history(random.Random(f"sifter:{seed}:{index}"))


def stored(history: History) -> str:
    """The sessions of a prompt as the document store keeps them."""
    ids = [session.id for session in history.sessions]
    return orjson.dumps({"sessions": talks_of(history.sessions), "ids": ids, "dates": [""] * len(ids)}).decode()


def _metadata(index: int, history: History) -> dict[str, Any]:
    return {
        "task": "rank_sessions", "id": f"sifter-{index}", "shown": SESSIONS, "gold": [history.gold],
        "question": history.question, "question_date": "", "language": Language.EN.value,
        "answers": [history.answer], "history_id": document_id(stored(history)),
        "session_tokens": [SESSION_TOKENS] * SESSIONS,
    }


def train_row(index: int, history: History) -> dict[str, Any]:
    prompt = [{"role": "user", "content": history.prompt()}]
    return {"prompt": prompt, "label": "", "metadata": _metadata(index, history)}


def eval_entry(index: int, history: History) -> dict[str, Any]:
    return {"input": history.prompt(), "answers": [history.answer], "index": index, "task": "rank_sessions",
            "metadata": _metadata(index, history)}
