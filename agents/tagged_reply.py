"""Reads a reply of the form ``<thinking>..</thinking> <update>..</update> <recall>..</recall>``.

A reply is good when it has exactly one update, at most one recall, neither of them blank, and no tag out of place.
What is usable of a reply that is not good is defined too: an update or a recall counts iff it is the only one of its
name, closed, not blank and without a tag inside::

    reply                                          update   recall   good
    <update>a</update>                             a        -        yes
    <thinking>t</thinking><update>a</update>
        <recall>q</recall>                         a        q        yes
    <update>a</update><recall>q                    a        -        no     unclosed
    <update>a</update><recall>q</recall>
        <recall>r</recall>                         a        -        no     which of them?
    <update>a</update><update>b</update>           -        -        no
    <update>a<recall>q</recall></update>           -        -        no     nested
    <thinking>t <update>a</update>                 -        -        no     all of it is thinking
    <thinking><update>a</update></thinking>        -        -        no     only talked of
    <update>...</update>                           -        -        no     blank: not one letter or digit
    a                                              -        -        no

Blank is also what the prompt itself puts between these tags (``examples_in``): who echoes the prompt's example has
said nothing. Invariants: never raises; one pass over the text; what is found is a span of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TAG = re.compile(r"<(/?)(thinking|update|recall)>")
_WORD = re.compile(r"\w")


@dataclass(frozen=True, slots=True)
class Span:
    """Characters ``start`` to ``end`` of the reply, without blanks at the ends."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TaggedReply:
    update: Span | None
    recall: Span | None
    good: bool


@dataclass(slots=True)
class _Found:
    """The blocks of a reply by name; a block with a tag inside, or never closed, is None."""

    blocks: dict[str, list[Span | None]] = field(default_factory=lambda: {"thinking": [], "update": [], "recall": []})
    strays: int = 0
    """Closing tags that close nothing."""


def read_reply(text: str, examples: frozenset[str] = frozenset()) -> TaggedReply:
    """``examples`` are contents that count as blank."""
    found = _blocks(text)
    update, recall = (_only(found.blocks[name], text, examples) for name in ("update", "recall"))
    asks_well = recall is not None or not found.blocks["recall"]
    closed = None not in found.blocks["thinking"] and not found.strays
    return TaggedReply(update, recall, update is not None and asks_well and closed)


def examples_in(template: str) -> frozenset[str]:
    """What a prompt's template itself puts between the tags."""
    blocks = _blocks(template).blocks
    return frozenset(template[span.start : span.end] for name in blocks for span in blocks[name] if span is not None)


def _only(blocks: list[Span | None], text: str, examples: frozenset[str]) -> Span | None:
    if len(blocks) != 1 or blocks[0] is None:
        return None
    content = text[blocks[0].start : blocks[0].end]
    return None if content in examples or not _WORD.search(content) else blocks[0]


def _blocks(text: str) -> _Found:
    found = _Found()
    name, start, clean = "", 0, True  # of the open block
    for tag in _TAG.finditer(text):
        closes = tag[1] == "/"
        if not name and closes:
            found.strays += 1
        elif not name:
            name, start, clean = tag[2], tag.end(), True
        elif closes and tag[2] == name:
            found.blocks[name].append(_stripped(text, start, tag.start()) if clean else None)
            name = ""
        else:
            clean = name == "thinking"  # thinking may talk of tags
    if name:
        found.blocks[name].append(None)
    return found


def _stripped(text: str, start: int, end: int) -> Span:
    content = text[start:end]
    start += len(content) - len(content.lstrip())
    return Span(start, start + len(content.strip()))
