r"""The two forms of a reply that reasons and answers, and what keeping to one is worth.

    reasoning   <reasoning>\n16 - 3 - 4 = 9, times 2\n</reasoning>\n<answer>\n18\n</answer>
    boxed       16 - 3 - 4 = 9, times 2, so \boxed{18}

Parts of a reply's form, each between 0 and 1 (Memory-R's ``utils_gsm8k.py`` at a193f4f, whose weights are .5 each):

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
other); strict includes soft; the ends of a reply are stripped before, so no closing line break is asked for; without
the closing tag nothing is charged for the text behind it (there all of the reply).

Invariant: everything here is linear in the reply's length, so nothing that a model writes can hang it.
"""

from __future__ import annotations

import re
from typing import Literal

from .answers import behind_one_box, last_boxed

_INTEGER = re.compile(r"-?[0-9]{1,100}")
_AFTER_BOX = re.compile(r"[\s$.)\]\\]*")
_CHARGE = 0.004
_TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
_LINES = ("<reasoning>\n", "\n</reasoning>\n", "\n<answer>\n", "\n</answer>")


Form = Literal["reasoning", "boxed"]


def answer_place(reply: str) -> str | None:
    """What stands where an answer belongs: the last ``<answer>`` block, else the last box, else behind the last ####.

    A block that is not closed runs to the end. None where the reply has no such place.
    """
    _, mark, behind = reply.rpartition("<answer>")
    if mark:
        return behind.partition("</answer>")[0].strip()
    boxed = last_boxed(reply)
    if boxed is not None:
        return boxed
    _, mark, behind = reply.rpartition("####")
    return behind.strip() if mark else None


def reasoning_of(reply: str) -> str:
    """The body of the last ``<reasoning>`` block; without one, what stands before the answer's place."""
    _, mark, behind = reply.rpartition("<reasoning>")
    if mark:
        return behind.partition("</reasoning>")[0].strip()
    for place in ("<answer>", "\\boxed", "####"):
        before, mark, _ = reply.rpartition(place)
        if mark:
            return before.strip()
    return reply.strip()


def in_form(form: Form, reasoning: str, answer: str) -> str:
    """A whole reply."""
    if form == "boxed":
        return f"{reasoning}\n\\boxed{{{answer}}}".strip()
    return f"<reasoning>\n{reasoning or answer}\n</reasoning>\n<answer>\n{answer}\n</answer>"


def form_shares(form: Form, reply: str) -> dict[str, float]:
    """Each part's share of its weight."""
    reply = reply.strip()
    answer = answer_place(reply) or ""
    kept = {"integer": bool(_INTEGER.fullmatch(answer))}
    if form == "boxed":
        kept |= {"strict_format": _ends_in_its_box(reply), "soft_format": bool(last_boxed(reply))}
        return {name: float(there) for name, there in kept.items()}
    kept |= {"strict_format": _strict(reply), "soft_format": _soft(reply)}
    return {name: float(there) for name, there in kept.items()} | {"tags": _tags(reply)}


def _strict(reply: str) -> bool:
    if any(reply.count(tag) != 1 for tag in _TAGS):
        return False
    reasoning, _, rest = reply.removeprefix("<reasoning>\n").partition("\n</reasoning>\n<answer>\n")
    answer = rest.removesuffix("\n</answer>")
    whole = f"<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n{answer}\n</answer>"
    return reply == whole and bool(reasoning.strip()) and bool(answer.strip())


def _soft(reply: str) -> bool:
    before, mark, behind = reply.rpartition("<answer>")
    return bool(mark) and before.startswith("<reasoning>") and before.rstrip().endswith("</reasoning>") and (
        "</answer>" in behind)


def _tags(reply: str) -> float:
    there = sum(reply.count(line) == 1 for line in _LINES) / len(_LINES)
    _, closed, behind = reply.rpartition("</answer>")
    return max(0.0, there - _CHARGE * len(behind.strip()) * bool(closed))


def _ends_in_its_box(reply: str) -> bool:
    behind = behind_one_box(reply)
    return behind is not None and bool(_AFTER_BOX.fullmatch(behind))
