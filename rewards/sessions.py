r"""Chat histories, the same in ranking, training's reward, chat and the toolkit: the rows of questions about them,
which sessions a model is shown and how, what it is asked, and what can be read of its reply.

Rows are those of ``{data_dir}/{dataset}/{split}.parquet`` and of every stage's output, one per question. Columns as
MemSifter names them: ``question``, ``answer``, ``haystack_sessions`` (JSON: a list of sessions, each a list of
``{role, content}``), ``haystack_session_ids``, ``haystack_dates``, ``answer_session_ids``, ``question_id``,
``question_type``, ``question_date``, ``all_options``, and ``language`` and ``answers`` of this pack. Others travel
along. ``answer`` is a text, a number, or what ``gold_answer`` says.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import yaml

from ..system.errors import ConfigError, MemAgentError, reason_of

OWN_WORDING = Path(__file__).with_name("wording.yaml")
ASKED = 10
"""Sessions that a ranking names, or all where there are fewer."""
_CJK = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_LETTER = re.compile(r"[^\W\d_]")


class BadRow(MemAgentError, ValueError):
    """A row that is no question about a history; the message names the row, the column and the remedy."""


class Language(StrEnum):
    EN = "en"
    ZH = "zh"


@dataclass(frozen=True, slots=True)
class Turn:
    role: str
    """Who speaks: ``user``, ``assistant``, or any other name."""
    content: str


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    turns: tuple[Turn, ...]
    date: str = ""
    """As the data writes it, ``2023/05/20 (Sat) 02:11``; empty where it says none."""


@dataclass(frozen=True, slots=True)
class HistoryQuestion:
    """One row of a data set. Session ids differ, every gold is one of them; sessions stand in the order of time."""

    id: str
    question: str
    answers: tuple[str, ...]
    """Accepted answers, first one first."""
    sessions: tuple[Session, ...]
    gold: tuple[str, ...] = ()
    """Ids of the sessions that hold the answer; empty where the data names none."""
    date: str = ""
    """When the question was asked."""
    kind: str = ""
    language: Language = Language.EN
    options: tuple[str, ...] = ()
    """Of a multiple-choice question, as the data writes them, ``(a) ...``."""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Columns that no stage reads; they travel along."""

    @property
    def gold_positions(self) -> tuple[int, ...]:
        """Where the gold sessions stand in ``sessions``, ascending."""
        return tuple(position for position, session in enumerate(self.sessions) if session.id in self.gold)


def language_of(text: str) -> Language:
    """Chinese where at least a third of the letters are; names of other scripts do not change that."""
    letters = len(_LETTER.findall(text))
    return Language.ZH if letters and 3 * len(_CJK.findall(text)) >= letters else Language.EN


# --- rows -----------------------------------------------------------------------------------------------------------


def row_of(asked: HistoryQuestion) -> dict[str, Any]:
    """The row of a question; ``question_of`` reads it again."""
    return {
        **asked.own, "question_id": asked.id, "question": asked.question, "answer": "".join(asked.answers[:1]),
        "answers": list(asked.answers), "haystack_sessions": orjson.dumps(talks_of(asked.sessions)).decode(),
        "haystack_session_ids": [s.id for s in asked.sessions], "haystack_dates": [s.date for s in asked.sessions],
        "answer_session_ids": list(asked.gold), "question_type": asked.kind, "question_date": asked.date,
        "all_options": list(asked.options), "language": asked.language.value,
    }


def talks_of(sessions: Iterable[Session]) -> list[list[dict[str, str]]]:
    """What was said, as files hold it."""
    return [[{"role": turn.role, "content": turn.content} for turn in session.turns] for session in sessions]


def question_of(row: Mapping[str, Any], where: str, number: int = 0) -> HistoryQuestion:
    """The question of a row, ``where`` naming its file. Raises BadRow."""
    name = _text(row.get("question_id")) or str(number)
    try:
        return question_in({**row, "question_id": name})
    except ValueError as error:
        raise BadRow(f"{where}: row {number} ({name}): {error}") from None


def question_in(row: Mapping[str, Any]) -> HistoryQuestion:
    """The question of a row that has an id. Raises ValueError, which says what is wrong."""
    if not (question := _text(row.get("question")).strip()):
        raise ValueError("no question; expected a text in the column question")
    talks = _talks(row.get("haystack_sessions"))
    ids = _texts(row.get("haystack_session_ids")) or [f"session_{number}" for number in range(len(talks))]
    dates = _texts(row.get("haystack_dates")) or [""] * len(talks)
    for column, values in (("haystack_session_ids", ids), ("haystack_dates", dates)):
        if len(values) != len(talks):
            raise ValueError(f"{len(values)} {column} for {len(talks)} sessions")
    if len(set(ids)) != len(ids):
        raise ValueError("haystack_session_ids names a session twice; give each its own id")
    gold = tuple(dict.fromkeys(_texts(row.get("answer_session_ids"))))
    if strange := set(gold) - set(ids):
        raise ValueError(f"answer_session_ids names {min(strange)!r}, which is no session of the history")
    language, read = _text(row.get("language")), row_of(HistoryQuestion("", "", (), ()))
    return HistoryQuestion(
        _text(row.get("question_id")), question, answers_of(row), tuple(map(Session, ids, talks, dates)), gold,
        _text(row.get("question_date")), _text(row.get("question_type")),
        Language(language) if language in tuple(Language) else language_of(question),
        tuple(_texts(row.get("all_options"))),
        {column: value for column, value in row.items() if column not in read},
    )


def answers_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Of the column ``answers``, else of ``answer``, which may be a number, else of ``gold_answer``."""
    names = ("answers", "answer", "gold_answer")
    columns = ([text for text in _texts(row.get(name)) if text.strip()] for name in names)
    return tuple(dict.fromkeys(next(filter(None, columns), ())))


def _talks(value: Any) -> list[tuple[Turn, ...]]:
    try:
        talks = orjson.loads(value) if isinstance(value, str | bytes) else value
        return [tuple(Turn(str(turn["role"]), _text(turn["content"])) for turn in talk) for talk in talks]
    except (ValueError, TypeError, KeyError):
        raise ValueError("haystack_sessions is no JSON list of sessions, each a list of {role, content}") from None


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _texts(value: Any) -> list[str]:
    """Of a list, or of a value that stands alone."""
    values = value if isinstance(value, list) else [value]
    return [] if value in (None, "") else list(map(_text, values))


# --- which sessions are shown ---------------------------------------------------------------------------------------


class Packed(NamedTuple):
    shown: tuple[int, ...]
    """Positions in the history, ascending."""
    tokens: int


def pack(order: Iterable[int], tokens: Any, budget: int) -> Packed:
    """Sessions from best to worst until one does not fit the budget, shown in the order of time: the one rule of
    pre-filter, training's reward, chat and toolkit.

    That is the published rule (MemSifter, ``PreFilterActor``) except in one case: a session that is larger than the
    whole budget can never be shown, so it is passed over, where the published rule would show nothing behind it.

    Budget 10, sessions of 4, 12, 5 and 3 tokens, best first 3, 1, 0, 2::

        3 (3) fits | 1 (12) never fits, passed over | 0 (3 + 4) fits | 2 (7 + 5 > 10) ends it    -> shown (0, 3)

    What is shown of a longer ``order`` holds all that was shown of its beginning; what is shown with a larger budget
    holds all that was shown with a smaller one, unless a session that was too large for the smaller one fits now.

    Args:
        order: positions, best first, of some or all sessions.
        tokens: of each session, by position.
    """
    shown: list[int] = []
    used = 0
    for position in order:
        size = tokens[position]
        if size <= budget < used + size:
            break
        if size <= budget:
            shown.append(position)
            used += size
    return Packed(tuple(sorted(shown)), used)


def by_score(scores: Sequence[Any]) -> list[int]:
    """Positions from the highest score to the lowest, the earlier one first where they are equal; None and NaN come
    last."""
    found: list[int] = np.argsort(-np.array(scores, np.float64), kind="stable").tolist()
    return found


# --- how sessions are shown -----------------------------------------------------------------------------------------

_FRAME = frozenset({"session", "date", "history", "question", "ranking", "think", "answer"})
"""Tags of the renderer and of the prompts: no speaker's name."""
_NO_NAME = re.compile(r"[^\w-]+")
_TAG = re.compile(rf"<(?=\s*/?\s*(?:{'|'.join(sorted(_FRAME | {'user', 'assistant', 'system'}))})\d*[\s/>])", re.I)
"""The ``<`` of a tag, numbered or not, read as loosely as models do."""


def render_history(sessions: Sequence[Session]) -> str:
    """The sessions in the order given, numbered from 0, in the shape of MemSifter (``utils/session_process.py``)::

        <session0> <date>2023/05/20 (Sat) 02:11</date>
        <user0>I moved to Lyon.</user>
        <assistant0>How is it?</assistant>
        <user1>Quiet.</user>
        </session>
        <session1>
        <user0>Hello.</user>
        </session>

    A session's number is its place among those shown, not in the history. A role counts from 0 in each session. Roles
    are ``user``, ``assistant`` or any name, ``Caroline``; what a tag cannot hold becomes ``_``. For a budget a session
    counts as many tokens as ``render_session(session, number)`` and the newline behind it have.

    No text of a session opens or closes a tag of this form, or one of the prompts around it, so a session that quotes
    one is not two: the ``<`` of such a tag becomes ``&lt;``. Other markup, the HTML that somebody asks about, stays.
    """
    return "\n".join(render_session(session, number) for number, session in enumerate(sessions))


def render_session(session: Session, number: int) -> str:
    shown = _plain(" ".join(session.date.split()))
    date = f" <date>{shown}</date>" if shown else ""
    turns = embedded_text(session)
    return "\n".join([f"<session{number}>{date}", *([turns] if turns else []), "</session>"])


def embedded_text(session: Session) -> str:
    """What stage 1 embeds of a session: its turns alone, so that equal talks on two days are one text."""
    said: Counter[str] = Counter()
    lines = []
    for turn in session.turns:
        role = _NO_NAME.sub("_", turn.role.strip()) or "user"
        if role.lower() in _FRAME or role[-1].isdigit():
            role += "_"
        lines.append(f"<{role}{said[role]}>{_plain(turn.content)}</{role}>")
        said[role] += 1
    return "\n".join(lines)


def _plain(text: str) -> str:
    return _TAG.sub("&lt;", text.strip())


# --- what is asked --------------------------------------------------------------------------------------------------

_SLOT = re.compile(r"\{(history|question|date|count|example)\}")
_WIDEST = 999
"""A session's number while its tokens are counted: no shown one is written longer, in histories of up to 1,000."""


@dataclass(frozen=True, slots=True)
class Wording:
    """Texts by language and key. Placing texts into slots never reads a slot out of a text: a session that says
    ``{question}`` stays as it is."""

    texts: Mapping[str, Mapping[str, str]]

    @property
    def digest(self) -> str:
        """Tells wordings apart."""
        return hashlib.sha256(repr(self.texts).encode()).hexdigest()[:12]

    def ranking_prompt(self, question: str, history: str, shown: int, language: Language, date: str = "") -> str:
        """The user message that asks for a ranking of the ``shown`` sessions of ``history``."""
        count = min(ASKED, shown)
        example = ",".join(map(str, reversed(range(count))))
        return self._filled("rank", language, question, history, date, count=str(count), example=example)

    def chat_prompt(
        self, question: str, history: str, language: Language, date: str = "", options: Sequence[str] = ()
    ) -> str:
        """The user message that asks for the answer; ``history`` may be empty.

        ``options`` of a multiple-choice question stand below it, one a line; a ranking is asked for without them.
        """
        return self._filled("chat", language, "\n".join([question.strip(), *options]), history, date)

    def _filled(self, key: str, language: Language, question: str, history: str, date: str, **own: str) -> str:
        texts = self.texts[language]
        when = texts["date"].replace("{date}", date) if date else ""
        slots = {"history": history or texts["empty_history"], "question": question.strip(), "date": when, **own}
        return _SLOT.sub(lambda slot: slots.get(slot[1], slot[0]), texts[key])


@lru_cache(maxsize=8)
def load_wording(path: str = "") -> Wording:
    """The pack's own (``wording.yaml``), with what the file at ``path``, of the same shape, says otherwise.

    Raises ConfigError.
    """
    texts = yaml.safe_load(OWN_WORDING.read_text(encoding="utf-8"))
    try:
        other = yaml.safe_load(Path(path).read_text(encoding="utf-8")) if path else {}
        for language, own in other.items():
            for key, text in own.items():
                needed = {"history", "question"} & {*_SLOT.findall(texts[language][key])}
                if missing := needed - {*_SLOT.findall(text)}:
                    raise ValueError(f"{language}.{key} has no {{{min(missing)}}}")
                texts[language][key] = text
    except (OSError, ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError) as error:
        raise ConfigError(f"prompts={path!r}: {reason_of(error)}; expected the shape of {OWN_WORDING}") from None
    return Wording(texts)


class NoRoom(MemAgentError):
    """Not one session fits; the message has the figures."""


class Counted(dict[int, int]):
    """The tokens of each session of a question, counted when asked for: a prompt shows few of a long history."""

    def __init__(self, asked: HistoryQuestion, count: Callable[[str], int]) -> None:
        self._asked, self._count = asked, count

    def __missing__(self, position: int) -> int:
        return self.setdefault(position, self._count(render_session(self._asked.sessions[position], _WIDEST) + "\n"))


@dataclass(frozen=True, slots=True)
class RankingPrompts:
    """The ranker's prompts in stage 2, training and toolkit: of at most ``limit`` tokens by ``count``."""

    wording: Wording
    count: Callable[[str], int]
    limit: int

    def room(self, asked: HistoryQuestion) -> int:
        """Tokens of a prompt that are left for sessions."""
        empty = self.wording.ranking_prompt(asked.question, "", len(asked.sessions), asked.language, asked.date)
        return self.limit - self.count(empty)

    def fill(
        self, asked: HistoryQuestion, order: Sequence[int], needed: Collection[int] = ()
    ) -> tuple[str, tuple[int, ...], Mapping[int, int]]:
        """A prompt; the positions that it shows: session n is ``shown[n]``; and the tokens of each by position.

        The first sessions of ``order`` that fit, in the order of time. The whole prompt is counted too: numbers and
        seams may make it longer than its parts, and then less is shown.

        Raises NoRoom: not one fits, or not all that are ``needed``.
        """
        tokens, room = Counted(asked, self.count), self.room(asked)
        while True:
            shown = pack(order, tokens, room).shown
            history = render_history([asked.sessions[position] for position in shown])
            text = self.wording.ranking_prompt(asked.question, history, len(shown), asked.language, asked.date)
            if not shown or not {*needed} <= {*shown}:
                raise NoRoom(f"no session fits: a prompt of {self.limit} tokens has room for {max(0, room)}")
            if (over := self.count(text) - self.limit) <= 0:
                return text, shown, tokens
            room -= over


# --- what a reply says ----------------------------------------------------------------------------------------------

_THINK, _THOUGHT = re.compile(r"<think>", re.I), re.compile(r"</think>", re.I)
_ANSWER, _ANSWERED = re.compile(r"<answer>", re.I), re.compile(r"</answer>", re.I)
_OPEN, _CLOSE = re.compile(r"<ranking>", re.I), re.compile(r"</ranking>", re.I)
# ASCII: a Chinese word may touch a number. Signs, points and letters make it something else than a session's number.
_NUMBER = re.compile(r"(?<![0-9A-Za-z_.+-])[0-9]{1,9}(?![0-9A-Za-z_]|\.[0-9])")


class BadRanking(ValueError):
    """A reply that is no valid ranking; the message says why."""


def after_thinking(reply: str) -> str | None:
    """What a reply says behind its last ``</think>``; None where the thinking never ends.

    A chat template may have opened the thinking in the prompt already, so a reply without ``<think>`` is as good.
    """
    *thought, said = _THOUGHT.split(reply)
    return None if not thought and _THINK.search(said) else said


def answer_of(reply: str) -> str:
    """What the reply answers, stripped; may be empty. The same in training's reward, stage 3 and the toolkit::

        reply                                              answer
        <think>Lyon?</think><answer>Lyon</answer>          Lyon
        I write <answer>Paris</answer>, no: <answer>Lyon   Lyon         the last one; an unclosed one is the rest
        In Lyon.                                           In Lyon.     without tags it is all of the reply
        <think>Lyon or                                                  thinking that never ends answers nothing
    """
    after = _ANSWER.split(after_thinking(reply) or "")[-1]
    return _ANSWERED.split(after)[0].strip()


def strict_ranking(reply: str, shown: int) -> tuple[int, ...]:
    """The numbers of a valid ranking of ``shown`` sessions, best first; what earns a reward. Raises BadRanking.

    A reply names session numbers as the prompt showed them, best first, after any thinking::

        <think>The move to Lyon is in session 7 ...</think>
        <ranking>7,0,3</ranking>

    The last such block holds exactly ``min(ASKED, shown)`` different numbers below ``shown``, with commas between
    them, and nothing else. Published parsers differ between training and inference, let ``-1`` mean the last session,
    and fall back to the order of time (reference A15: 14, 11); here a reply that trains well is one that is used well.
    """
    block, *after = _CLOSE.split(_last_block(after_thinking(reply) or ""))
    if not after:
        raise BadRanking("no <ranking>...</ranking> behind the thinking")
    words, asked = [word.strip() for word in block.split(",")], min(ASKED, shown)
    numbers = tuple(int(word) for word in words if re.fullmatch("[0-9]{1,9}", word) and int(word) < shown)
    if not len(words) == len(numbers) == len(set(numbers)) == asked:
        raise BadRanking(f"expected {asked} different numbers of the {shown} sessions, found {block!r:.80}")
    return numbers


def lenient_ranking(reply: str, shown: int) -> tuple[int, ...]:
    """What can be used of the last block, best first: numbers out of range and repetitions are dropped, words
    ignored; an unclosed block counts."""
    block = _CLOSE.split(_last_block(after_thinking(reply) or ""))[0]
    return tuple(dict.fromkeys(number for number in map(int, _NUMBER.findall(block)) if number < shown))


def completed(ranking: Iterable[int], order: Sequence[int]) -> tuple[int, ...]:
    """The ranking, then all of ``order`` (by similarity, say) that it does not name."""
    return tuple(dict.fromkeys([*ranking, *order]))


def _last_block(said: str) -> str:
    """What stands behind the last ``<ranking>``; nothing where there is none."""
    _, *blocks = _OPEN.split(said)
    return blocks[-1] if blocks else ""
