"""What the ranker is shown: the most similar sessions that fit its prompt, in the order of time.

Stage 1 counted tokens with a tokenizer that need not be the ranker's, so the whole prompt is counted again. Where it
is too long, so are the sessions that it shows, and less is shown until it fits::

    limit 100, prompt without history 20; sessions of 30, 25, 20 tokens by stage 1, most similar first
    budget 80 -> all three, and the prompt has 110; counted again they are 36, 30, 24 -> the first two, 86: it fits
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...sessions.packing import by_score, pack
from ...sessions.records import HistoryQuestion
from ...sessions.render import render_history, render_session
from ...sessions.wording import Wording
from ...system.errors import MemAgentError


class NoRoom(MemAgentError):
    """Not one session fits; the message has the figures."""


@dataclass(frozen=True, slots=True)
class RankingPrompt:
    text: str
    shown: tuple[int, ...]
    """Positions in the history; the prompt's session n is ``shown[n]``."""


def ranking_prompt(
    asked: HistoryQuestion, similarities: Sequence[float | None], tokens: Sequence[int], *, limit: int, top_k: int,
    wording: Wording, count: Callable[[str], int],
) -> RankingPrompt:
    """A prompt of at most ``limit`` tokens by ``count``; ``top_k`` 0 for all sessions. Raises NoRoom."""
    order = by_score(similarities)[: top_k or None]
    sizes, counted = list(tokens), set[int]()
    budget = limit - count(_text(asked, (), wording))
    while (packed := pack(order, sizes, budget)).shown:
        text = _text(asked, packed.shown, wording)
        over = count(text) - limit
        if over <= 0:
            return RankingPrompt(text, packed.shown)
        if unsure := set(packed.shown) - counted:
            counted |= unsure
            for position in unsure:
                sizes[position] = count(f"{render_session(asked.sessions[position], position)}\n")
        else:
            budget = packed.tokens - over
    least = min(sizes, default=0)
    raise NoRoom(f"no session fits: the smallest of {len(sizes)} has {least} tokens, and a prompt of {limit} has room "
                 f"for {max(0, budget)}")


def _text(asked: HistoryQuestion, shown: Sequence[int], wording: Wording) -> str:
    history = render_history([asked.sessions[position] for position in shown])
    return wording.ranking_prompt(asked.question, history, len(shown), asked.language, asked.date)
