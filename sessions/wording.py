r"""What models are shown of a history and are asked about it, in its language: in ranking, in training's reward, in
chat and in the toolkit alike.

Two sessions, the second without a date (shape: MemSifter, arXiv 2603.03379, ``utils/session_process.py``)::

    <session0> <date>2023/05/20 (Sat) 02:11</date>
    <user0>I moved to Lyon.</user>
    <assistant0>How is it?</assistant>
    <user1>Quiet.</user>
    </session>
    <session1>
    <user0>Hello.</user>
    </session>

A session's number is its place among those shown, not in the history. A role counts from 0 in each session. Roles are
``user``, ``assistant`` or any name, ``Caroline``; what a tag cannot hold becomes ``_``.

For a budget a session counts as many tokens as ``render_session(session, number)`` and the newline behind it have.

No text of a session opens or closes a tag of this form, or one of the prompts around it, so a session that quotes one
is not two: the ``<`` of such a tag becomes ``&lt;``. Other markup, the HTML that somebody asks about, stays as it is.

A file may have another wording. It has the shape of ``wording.yaml``; what it leaves out stays the pack's own. Placing
texts into slots never reads a slot out of a text: a session that says ``{question}`` stays as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import yaml

from ..system.errors import ConfigError, reason_of
from .ranking import ASKED
from .records import Language, Session, Turn

OWN = Path(__file__).with_name("wording.yaml")
_NEEDED = {"rank": {"history", "question"}, "chat": {"history", "question"}, "date": {"date"}, "empty_history": set()}
_SLOT = re.compile(r"\{(history|question|date|count|example)\}")
_FRAME = frozenset({"session", "date", "history", "question", "ranking", "think", "answer"})
"""Tags of the renderer and of the prompts: no speaker's name."""
_NO_NAME = re.compile(r"[^\w-]+")
_TAG = re.compile(rf"<(?=\s*/?\s*(?:{'|'.join(sorted(_FRAME | {'user', 'assistant', 'system'}))})\d*[\s/>])", re.I)
"""The ``<`` of a tag, numbered or not, read as loosely as models do."""


def render_history(sessions: Sequence[Session]) -> str:
    """The sessions in the order given, numbered from 0."""
    return "\n".join(render_session(session, number) for number, session in enumerate(sessions))


def render_session(session: Session, number: int) -> str:
    shown = _plain(" ".join(session.date.split()))
    date = f" <date>{shown}</date>" if shown else ""
    return "\n".join([f"<session{number}>{date}", *_lines(session.turns), "</session>"])


def embedded_text(session: Session) -> str:
    """What stage 1 embeds of a session: its turns alone, so that equal talks on two days are one text."""
    return "\n".join(_lines(session.turns))


def _lines(turns: Sequence[Turn]) -> Iterable[str]:
    said: Counter[str] = Counter()
    for turn in turns:
        role = _role(turn.role)
        yield f"<{role}{said[role]}>{_plain(turn.content)}</{role}>"
        said[role] += 1


def _role(name: str) -> str:
    """The name of a speaker's tag; the number of a turn is put behind it."""
    role = _NO_NAME.sub("_", name.strip()) or "user"
    return f"{role}_" if role.lower() in _FRAME or role[-1].isdigit() else role


def _plain(text: str) -> str:
    return _TAG.sub("&lt;", text.strip())


# --- wording --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wording:
    """Texts by language and key."""

    texts: Mapping[str, Mapping[str, str]]

    @property
    def digest(self) -> str:
        """Tells wordings apart."""
        return hashlib.sha256(repr(self.texts).encode()).hexdigest()[:12]

    def ranking_prompt(
        self, question: str, history: str, shown: int, language: Language, date: str = "", asked: int = ASKED
    ) -> str:
        """The user message that asks for a ranking of the ``shown`` sessions of ``history``."""
        count = min(asked, shown)
        example = ",".join(str(number) for number in reversed(range(count)))
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
    """The pack's own, with what the file at ``path`` says otherwise. Raises ConfigError."""
    texts = yaml.safe_load(OWN.read_text(encoding="utf-8"))
    try:
        other = yaml.safe_load(Path(path).read_text(encoding="utf-8")) if path else {}
        for language, own in other.items():
            for key, text in own.items():
                if missing := _NEEDED[key] - set(_SLOT.findall(text)):
                    raise ValueError(f"{language}.{key} has no {{{min(missing)}}}")
                texts[language][key] = text
    except (OSError, ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError) as error:
        raise ConfigError(f"prompts={path!r}: {reason_of(error)}; expected the shape of {OWN}") from None
    return Wording(texts)
