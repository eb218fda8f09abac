"""Training and evaluation rows of the task ``rank_sessions``, from questions about histories.

The prompt shows all gold sessions, and of the others the most similar to the question, as many as the budget takes
(``sessions.packing``), in the order of time. What stands in the prompt is stored once beside the files::

    {"sessions": [[{"role": "user", "content": ...}], ...], "ids": [...], "dates": [...]}

and a row names it by ``history_id`` (``data.document_store``). A question whose gold sessions exceed the budget by
themselves has no row: MemSifter's own preparation includes them and then cuts off the prompt's beginning (reference
A15: 15).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from ...sessions.packing import by_score, pack
from ...sessions.records import HistoryQuestion
from ...sessions.wording import Wording, render_history, render_session

TASK = "rank_sessions"
PROMPT_TOKENS = 130 * 1024
"""Of a whole prompt, as published."""
_GOLD_TOO_LARGE = "gold sessions exceed the budget"
_WIDEST = 999
"""A session's number while its tokens are counted: no shown one is written longer, in histories of up to 1,000."""


_SEAMS = 50
"""A prompt of known sessions is too long by at most this part, for their numbers and what stands between them."""


class Unusable(ValueError):
    """A question that no row can be made of; the message is the reason, by which such questions are counted."""


@dataclass(frozen=True, slots=True)
class Prompting:
    """How prompts are made, for all rows alike."""

    wording: Wording
    tokens_of: Callable[[str], int]
    """Tokens of a text for the model that is trained."""
    most: int
    """Tokens of a whole prompt."""

    def room(self, asked: HistoryQuestion) -> int:
        """Tokens that are left for sessions."""
        prompt = self.wording.ranking_prompt(asked.question, "", len(asked.sessions), asked.language, asked.date)
        return self.most - self.tokens_of(prompt)



class Counted(Sequence[int]):
    """The tokens of each session of a question, counted when asked for: a prompt shows few of a long history."""

    def __init__(self, asked: HistoryQuestion, prompting: Prompting) -> None:
        self._asked, self._prompting = asked, prompting
        self._known: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._asked.sessions)

    def __getitem__(self, position: Any) -> Any:
        if position not in self._known:
            text = render_session(self._asked.sessions[position], _WIDEST) + "\n"
            self._known[position] = self._prompting.tokens_of(text)
        return self._known[position]


@dataclass(frozen=True, slots=True)
class RankRow:
    """A row before it has an id in a store."""

    prompt: str
    metadata: dict[str, Any]
    history: str
    """The document."""

    def training(self, history_id: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": self.prompt}]
        return {"prompt": messages, "label": "", "metadata": {**self.metadata, "history_id": history_id}}


def evaluation_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of ``eval_<dataset>.json`` (``evaluation.questions``) of a training row; its answer are the numbers of
    the gold sessions, and no stored history is needed.
    """
    metadata = row["metadata"]
    own = {name: value for name, value in metadata.items() if name not in ("task", "id", "history_id")}
    answer = ",".join(map(str, metadata["gold"]))
    return {"index": metadata["id"], "task": TASK, "input": row["prompt"][0]["content"], "answers": [answer],
            "metadata": own}


def check_usable(asked: HistoryQuestion, prompting: Prompting) -> None:
    """Raises Unusable."""
    if not asked.sessions:
        raise Unusable("no sessions")
    if not asked.gold:
        raise Unusable("no gold session")
    tokens = Counted(asked, prompting)
    if sum(tokens[position] for position in asked.gold_positions) > prompting.room(asked):
        raise Unusable(_GOLD_TOO_LARGE)


def rank_row(
    dataset: str, asked: HistoryQuestion, similarities: Sequence[float | None], tokens: Sequence[int],
    prompting: Prompting,
) -> RankRow:
    """The row of a usable question; ``similarities`` and ``tokens`` are by session. Raises Unusable."""
    gold = asked.gold_positions
    is_gold = frozenset(gold).__contains__
    order = [*gold, *(position for position in by_score(similarities) if not is_gold(position))]
    room = prompting.room(asked)
    shown, prompt, over = _filled(asked, order, tokens, room, prompting)
    if over > prompting.most // _SEAMS or not set(gold) <= set(shown):  # as the tokens are another model's
        tokens = Counted(asked, prompting)
        shown, prompt, over = _filled(asked, order, tokens, room, prompting)
    while over > 0:  # by the little that numbers and seams make
        room -= over
        shown, prompt, over = _filled(asked, order, tokens, room, prompting)
    if not set(gold) <= set(shown):
        raise Unusable(_GOLD_TOO_LARGE)
    sessions = [asked.sessions[position] for position in shown]
    talks = [[{"role": turn.role, "content": turn.content} for turn in session.turns] for session in sessions]
    history = orjson.dumps({"sessions": talks, "ids": [s.id for s in sessions], "dates": [s.date for s in sessions]})
    metadata = {
        "task": TASK, "id": f"{dataset}/{asked.id}", "dataset": dataset, "shown": len(shown),
        "gold": [number for number, position in enumerate(shown) if is_gold(position)],
        "question": asked.question, "question_date": asked.date, "language": asked.language.value,
        "answers": list(asked.answers), "options": list(asked.options),
        "session_tokens": [tokens[position] for position in shown],
    }
    return RankRow(prompt, metadata, history.decode())


def _filled(
    asked: HistoryQuestion, order: Sequence[int], tokens: Sequence[int], room: int, prompting: Prompting
) -> tuple[tuple[int, ...], str, int]:
    """The sessions of ``order`` that ``room`` takes, their prompt, and how many tokens that is too long.

    The whole prompt is counted, as stage 2 does (``ranking_prompt``): ``tokens`` may be another model's.
    """
    shown = pack(order, tokens, room).shown
    history = render_history([asked.sessions[position] for position in shown])
    prompt = prompting.wording.ranking_prompt(asked.question, history, len(shown), asked.language, asked.date)
    return shown, prompt, prompting.tokens_of(prompt) - prompting.most if shown else 0
