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
from typing import Any, Literal

from .qa_metrics import CLOSED_ANSWERS, normalise_squad

_BRACED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BARE = re.compile(r"\\(?:boxed|fbox)[ \t]+")
_BARE_END = re.compile(r"[$\n]")
_CHAT_MARKS = re.compile("<｜Assistant｜>|<｜end▁of▁sentence｜>")
"""Control tokens of DeepSeek's chats, which some servers leave in the text."""


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
    return _CHAT_MARKS.sub("", answer).strip().strip(".").strip() if mark else None


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


# --- the form of a reply ---------------------------------------------------------------------------------------------

_INTEGER = re.compile(r"-?[0-9]{1,100}")
_AFTER_BOX = re.compile(r"[\s$.)\]\\]*")
_CHARGE = 0.004
_WHOLE = re.compile(r"<reasoning>\n(.*)\n</reasoning>\n<answer>\n(.*)\n</answer>", re.DOTALL)
_LINES = ("<reasoning>\n", "\n</reasoning>\n", "\n<answer>\n", "\n</answer>")
Form = Literal["reasoning", "boxed"]
r"""The two forms of a reply that reasons and answers::

    reasoning   <reasoning>\n16 - 3 - 4 = 9, times 2\n</reasoning>\n<answer>\n18\n</answer>
    boxed       16 - 3 - 4 = 9, times 2, so \boxed{18}
"""


def answer_place(reply: str) -> str | None:
    """What stands where an answer belongs: the last ``<answer>`` block, else the last box, else behind the last ####.

    A block that is not closed runs to the end. None where the reply has no such place.
    """
    if "<answer>" in reply:
        return reply.rpartition("<answer>")[2].partition("</answer>")[0].strip()
    if (boxed := last_boxed(reply)) is not None:
        return boxed
    _, mark, behind = reply.rpartition("####")
    return behind.strip() if mark else None


def reasoning_of(reply: str) -> str:
    """The body of the last ``<reasoning>`` block; without one, what stands before the answer's place."""
    if "<reasoning>" in reply:
        return reply.rpartition("<reasoning>")[2].partition("</reasoning>")[0].strip()
    place = next((place for place in ("<answer>", "\\boxed", "####") if place in reply), None)
    return (reply.rpartition(place)[0] if place else reply).strip()


def in_form(form: Form, reasoning: str, answer: str) -> str:
    """A whole reply."""
    if form == "boxed":
        return f"{reasoning}\n\\boxed{{{answer}}}".strip()
    return f"<reasoning>\n{reasoning or answer}\n</reasoning>\n<answer>\n{answer}\n</answer>"


def form_shares(form: Form, reply: str) -> dict[str, float]:
    r"""Each part's share of its weight.

    Each is between 0 and 1 (Memory-R's ``utils_gsm8k.py`` at a193f4f, whose weights are .5 each):

    ================  ========================================================  =====================================
    part              reasoning                                                 boxed
    ================  ========================================================  =====================================
    ``integer``       the answer is digits alone, perhaps behind a minus        as beside
    ``strict_format`` the reply is the form above, each tag once and on a       one box, and nothing but ``$ . )``
                      line of its own, neither block blank                      behind it
    ``soft_format``   the reply begins with reasoning, and an answer follows    a closed box that is not blank
                      it
    ``tags``          a quarter for each of the four tags with its line breaks  (none)
                      that stands there once, less 0.004 for each character
                      behind the last; never below 0
    ================  ========================================================  =====================================

    Other than there: blocks may have several lines (its patterns end at a line break, so strict and soft excluded each
    other); strict includes soft; the ends of a reply are stripped before, so no closing line break is asked for;
    without the closing tag nothing is charged for the text behind it (there all of the reply).

    Invariant: everything here is linear in the reply's length, so nothing that a model writes can hang it.
    """
    reply = reply.strip()
    shares: dict[str, Any] = {"integer": _INTEGER.fullmatch(answer_place(reply) or "") is not None}
    if form == "boxed":
        behind = behind_one_box(reply)
        strict = behind is not None and _AFTER_BOX.fullmatch(behind) is not None
        shares |= {"strict_format": strict, "soft_format": bool(last_boxed(reply))}
    else:
        once = all(reply.count(line.strip()) == 1 for line in _LINES)
        blocks = _WHOLE.fullmatch(reply) if once else None
        shares["strict_format"] = blocks is not None and all(block.strip() for block in blocks.groups())
        before, _, answer = reply.rpartition("<answer>")
        reasoned = before.startswith("<reasoning>") and before.rstrip().endswith("</reasoning>")
        shares["soft_format"] = reasoned and "</answer>" in answer
        there = sum(reply.count(line) == 1 for line in _LINES) / len(_LINES)
        _, closed, behind = reply.rpartition("</answer>")
        shares["tags"] = max(0.0, there - _CHARGE * len(behind.strip()) * bool(closed))
    return {name: float(share) for name, share in shares.items()}
