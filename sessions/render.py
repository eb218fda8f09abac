r"""Sessions as the text that models are shown: in ranking, in training's reward, in chat and in the toolkit alike.

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
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from .records import Session, Turn

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
