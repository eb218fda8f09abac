r"""The answer in a reply, and what kind of answer it is.

``last_boxed`` is what the pack trains and evaluates with::

    The capital is \boxed{Rome}.                  -> Rome
    \boxed{Paris}, no: \boxed{\text{Rome}}        -> \text{Rome}     the last box counts
    \boxed{f(\{1, 2\}) = {3}}                     -> f(\{1, 2\}) = {3}
    \boxed{\fbox{Rome}}                           -> Rome            the innermost of nested boxes
    so it is \boxed Rome$                         -> Rome            a box without braces
    \boxed{Rome} (compare \boxed x)               -> Rome            ... loses to any braced box
    \boxed{Rome}, or rather \boxed{Pa             -> None            the reply was cut inside its last box
    Rome                                          -> None

``the_answer_is`` is how MemAgent's evaluation reads a reply (``extract_answer`` of its
``taskutils/memory_eval/utils/__init__.py``, 76b7a65), in all its published rows of memory agents and of whole
documents in one prompt; nothing found scores 0 there, and so here::

    Therefore, the answer is **Rome**.            -> Rome
    the answer is Paris. No, the answer is Rome   -> Rome            the last one counts
    The Answer Is Rome                            -> None            as written, in lower case
    the answer is .                               -> ""              found, and empty

``published_boxed`` keeps the quirks of MemAgent's released training reward.

Invariant: results of the boxes are substrings of the text; everything here reads the text once and never raises.
"""

from __future__ import annotations

import re
from enum import StrEnum

from .qa_metrics import CLOSED_ANSWERS, normalise_squad

_BRACED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BARE = re.compile(r"\\(?:boxed|fbox)[ \t]+")
_BARE_END = re.compile(r"[$\n]")
_CHAT_MARKS = ("<｜Assistant｜>", "<｜end▁of▁sentence｜>")
"""Control tokens of DeepSeek's chats, which some servers leave in the text; removed in this order."""


def after_thinking(text: str) -> str:
    """The part of a reply after its last ``</think>``; all of it when there is none."""
    return text.rpartition("</think>")[2]


def last_boxed(text: str) -> str | None:
    """The stripped content of the last box; None when there is none or the last braced one is never closed."""
    starts = [opening.end() for opening in _BRACED.finditer(text)]
    if starts:
        content = _up_to_closing_brace(text, starts[-1], escapes=True)
        return None if content is None else content.strip()
    starts = [opening.end() for opening in _BARE.finditer(text)]
    return _BARE_END.split(text[starts[-1] :], maxsplit=1)[0].strip() if starts else None


def one_box(text: str) -> bool:
    """Whether the text has exactly one braced box, closed and not blank."""
    return behind_one_box(text) is not None


def behind_one_box(text: str) -> str | None:
    """What follows the one braced box of the text; None where it has none or several, or one unclosed or blank."""
    starts = [opening.end() for opening in _BRACED.finditer(text)]
    content = _up_to_closing_brace(text, starts[0], escapes=True) if len(starts) == 1 else None
    return text[starts[0] + len(content) + 1 :] if content and content.strip() else None


def published_boxed(text: str) -> str | None:
    r"""The content of the last box as MemAgent's released reward finds it (verl/utils/reward_score/hotpotqa.py).

    Where it differs from ``last_boxed``: one ``\boxed `` with a space anywhere overrides every braced box, so
    ``\boxed {x}`` yields ``{x}``; escaped braces count; ``\fbox`` is located but its content never accepted.
    """
    _, space_form, rest = text.rpartition("\\boxed ")
    if space_form:
        return rest.split("$", 1)[0]
    start = text.rfind("\\boxed")
    inside = start + len("\\boxed{")
    if start < 0 or text[inside - 1 : inside] != "{":
        return None
    return _up_to_closing_brace(text, inside, escapes=False)


def the_answer_is(reply: str) -> str | None:
    """What stands behind the last mark, without asterisks anywhere and dots around it; None without a mark."""
    _, mark, answer = reply.replace("*", "").rpartition("the answer is")
    if not mark:
        return None
    answer = answer.strip()
    for control in _CHAT_MARKS:
        answer = answer.replace(control, "")
    return answer.strip().strip(".").strip()


def _up_to_closing_brace(text: str, start: int, *, escapes: bool) -> str | None:
    """The text from ``start`` to the brace that closes the one just before it; None when nothing closes it."""
    depth, at = 1, start
    while at < len(text):
        char = text[at]
        if char == "\\" and escapes:
            at += 2  # \{ and \} print a brace, they do not group
            continue
        depth += (char == "{") - (char == "}")
        if depth == 0:
            return text[start:at]
        at += 1
    return None


# --- kinds of answers ----------------------------------------------------------------------------------------------

_NUMERALS = frozenset(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion".split()
)


class AnswerKind(StrEnum):
    """Which answers can be looked for in a text, and which can be guessed; in SQuAD form, so "No." is a choice."""

    CHOICE = "choice"
    """yes, no, noanswer: its words prove nothing in a text; guessed half the time."""
    NUMBER = "number"
    """Digits, a numeral, or at most 3 characters: found by chance in long replies."""
    OPEN = "open"
    """Everything else: standing in a text, it was known there."""


def kind_of(answer: str) -> AnswerKind:
    form = normalise_squad(answer)
    if form in CLOSED_ANSWERS:
        return AnswerKind.CHOICE
    if len(form) <= 3 or all(word.isdigit() or word in _NUMERALS for word in form.split()):
        return AnswerKind.NUMBER
    return AnswerKind.OPEN
