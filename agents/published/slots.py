"""A published template's slots, as this pack writes them.

=============  ===================================  =========================================================
style          a slot                               all else
=============  ===================================  =========================================================
``FORMAT``     ``{name}``, filled by str.format     ``{{`` is shown as ``{``
``TOKENS``     ``{name}``, split off by a pattern   shown as it stands, ``{{`` too
``REPLACE``    ``$NAME$``, filled by str.replace    shown as it stands, ``{{`` too
``PLAIN``      none                                 shown as it stands
=============  ===================================  =========================================================

Example: ``\\boxed{{}} {prompt}`` becomes ``\\boxed{} {problem}`` by FORMAT and ``\\boxed{{}} {problem}`` by TOKENS.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum

from ...system.errors import MemAgentError

Pieces = Sequence[tuple[str, str]]
"""What is shown as it stands, and the name of the slot behind it, empty for none."""


class Style(Enum):
    FORMAT = "str.format"
    TOKENS = "the pattern {name}"
    REPLACE = "str.replace of $NAME$"
    PLAIN = "nothing"


_PATTERNS = {Style.TOKENS: r"\{([A-Za-z_]+)\}", Style.REPLACE: r"\$([A-Z]+)\$", Style.PLAIN: r"(?!)()"}


_TOLD = 8
"""Names of slots."""


class SlotError(MemAgentError):
    """A template has other slots than what fills it."""


def split(text: str, style: Style) -> Pieces:
    """Raises SlotError where braces do not match."""
    if style is not Style.FORMAT:
        parts = [*re.split(_PATTERNS[style], text), ""]
        return list(zip(parts[::2], parts[1::2], strict=True))
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise SlotError(f"is no template ({error})") from None
    odd = [name for _, name, spec, conversion in parsed if name is not None and (spec or conversion or not name)]
    if odd:
        raise SlotError(f"has a slot {{{odd[0]}}} of a form of its own")
    return [(literal, name or "") for literal, name, _, _ in parsed]


def renamed(pieces: Pieces, slots: Mapping[str, str], *, once: bool) -> Pieces:
    """The pieces with this pack's names of the slots.

    Args:
        slots: published name -> name here.
        once: whether a slot may stand there only once.

    Raises:
        SlotError: a slot is missing or repeated, or there is one that nothing fills.
    """
    found = Counter(name for _, name in pieces if name)
    wrong = {
        "lacks the slot": [name for name in slots if name not in found],
        "has a slot that nothing fills:": [name for name in found if name not in slots],
        "repeats the slot": [name for name, count in found.items() if once and count > 1],
    }
    words = [f"{what} {', '.join(names[:_TOLD])}" for what, names in wrong.items() if names]
    if words:
        raise SlotError(" and ".join(words))
    return [(literal, slots.get(name, "")) for literal, name in pieces]


def as_prompt(pieces: Pieces) -> str:
    """As ``MEM_PROMPTS`` takes it: braces that are no slot are text."""
    return "".join(literal + _slot(name) for literal, name in pieces)


def as_wording(pieces: Pieces) -> str:
    """As a wording file of RULER takes it, for str.format."""
    return "".join(literal.replace("{", "{{").replace("}", "}}") + _slot(name) for literal, name in pieces)


def _slot(name: str) -> str:
    return f"{{{name}}}" if name else ""


def halves(pieces: Pieces, slot: str) -> tuple[Pieces, Pieces]:
    """What is around the document, which is ``slot``, and the question behind it, for a prompt that joins both by one
    newline; other newlines between them stay with the document.

    Raises:
        SlotError: no newline is between them.
    """
    place = [name for _, name in pieces].index(slot) + 1
    behind = [*pieces[place:]]
    text, name = behind[0] if behind else ("", "")
    question = text.lstrip("\n")
    newlines = len(text) - len(question)
    if not newlines:
        raise SlotError(f"has no line's end behind the slot {slot}")
    return [*pieces[:place], ("\n" * (newlines - 1), "")], [(question, name), *behind[1:]]
