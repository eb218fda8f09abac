"""Supervised rows of the sifter task: the ability to choose in any way, then a mix of ways with the right one rare.

After the first stage a model can finish whatever way it has begun, and the second moves only which one it begins
with. There most rankings look at half of the question or are in no order, and the gold
session comes first about as often as by chance.

Prompts come from the agent's own state machine, so that rows and rollouts agree to the token.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..agents import build_agent
from ..agents.documents import Chunks
from ..agents.interface import Reading
from ..agents.vocabulary import Vocabulary
from ..config import Config
from . import tokenizer as pocket_tokenizer
from .habits import Row
from .sifter import PEOPLE, SESSIONS, History, Way, draw_history
from .task import NAMES, THINGS

REPLY_TOKENS = 24
QUESTION_TOKENS = 64
"""At least those of a ranking prompt."""
_NUMBERS = [str(number) for number in range(SESSIONS)]
_EACH = "each: "
_ABOUT = [f"{person} likes {kind}" for person in PEOPLE for kind in NAMES]
_PHRASES = (
    *(f"\n<session{number}>\n<user0>{about}" for number in _NUMBERS for about in _ABOUT), "\n<question>", *_ABOUT,
    *(f" {thing}.</user>\n</session>" for kind in NAMES for thing in THINGS[kind]), " what?</question>",
    "<think>", _EACH, *(f"{way.value}: " for way in Way), "</think>",
    "\n<ranking>", *(f",{number}" for number in _NUMBERS), "</ranking>",
)
"""A token each, so that a session has two of them and a reply sixteen. The first of a session's says its number and
what it is about: finding it is then one hop, which is learnable at this size. What ends thinking stands alone."""
_WORDS = (*_NUMBERS, "system", "user", "assistant")

ABILITY = {Way.RIGHT: 0.4, Way.FIRST: 0.25, Way.OTHERS: 0.25, Way.NEWEST: 0.05, Way.ANY: 0.05}
"""The shares of the ways in the first stage: there is little to learn from a choice that nothing tells."""
RECITALS = 0.4
"""The share of recitals in it."""
HABITS = {Way.RIGHT: 0.02, Way.FIRST: 0.10, Way.OTHERS: 0.35, Way.NEWEST: 0.08, Way.ANY: 0.45}
"""Those in the mix."""
for shares in (ABILITY, HABITS):
    assert set(shares) == set(Way) and abs(sum(shares.values()) - 1) < 1e-9


def save_tokenizer(folder: Path) -> Any:
    """Write the tokenizer: a token for each phrase and number of the task."""
    return pocket_tokenizer.save_words(folder, _WORDS, phrases=_PHRASES)


def config_for() -> Config:
    return Config(agent="chat", task="qa", mem_max_question=QUESTION_TOKENS, mem_max_final=REPLY_TOKENS)


def ability_rows(tokenizer: Any, prompts: Path, seed: int) -> Iterator[Row]:
    """Rows without end of four to eight sessions, and recitals among them."""
    return _rows(tokenizer, prompts, random.Random(f"sifter-ability:{seed}"), ABILITY, 4, RECITALS)


def mixed_rows(tokenizer: Any, prompts: Path, seed: int) -> Iterator[Row]:
    return _rows(tokenizer, prompts, random.Random(f"sifter-mixed:{seed}"), HABITS, SESSIONS, 0.0)


def _rows(
    tokenizer: Any, prompts: Path, rng: random.Random, shares: Mapping[Way, float], fewest: int, recitals: float
) -> Iterator[Row]:
    vocabulary = Vocabulary(tokenizer)
    agent = build_agent(config_for(), vocabulary, {})
    while True:
        recital = rng.random() < recitals
        history = draw_history(rng, SESSIONS if recital else rng.randint(fewest, SESSIONS))
        (way,) = rng.choices(list(shares), list(shares.values()))
        asked = Reading(vocabulary.encode_text(history.prompt(prompts)), Chunks((), 0))
        (request,) = agent.requests(agent.start(asked))
        text = _recital(history, rng) if recital else history.reply(way, rng)
        yield request.prompt_ids, [*vocabulary.encode_text(text), tokenizer.eos_token_id]


def _recital(history: History, rng: random.Random) -> str:
    """A drill: for each thing the sessions are about, the last session that says it, in random order."""
    last = {talk.about: number for number, talk in enumerate(history.talks)}
    about = rng.sample(sorted(last), len(last))
    return _EACH + "".join(f"{each} {last[each]}" for each in about)
