"""Documents as the page has them: each whole once, and for each set of accepted answers with its other sections cut.

A document of eight sections, of which the third holds "silver" and none "tin"; three questions read it::

    silver        the third section whole, of the others 240 characters
    tin           of all 240 characters
    silver        the first form
    whole         the same bytes for all three

Invariants:
- sections that hold a fact are never cut;
- a document is searched for at most ``CUTS`` sets of answers, and its forms with cuts are together shorter than it is
  whole; whatever is asked for behind that is the whole. So what is made of a document is in proportion to its length,
  however many questions name it.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import Any

import orjson

from ...traces.trace import TraceDocument
from .facts import Fact, holds

CUT = 240
"""Characters of a section without a fact that a cut document keeps."""
CUTS = 64


@dataclass(frozen=True, slots=True)
class PackedDocument:
    key: str
    whole: bytes
    cut: bytes
    """The same with sections cut that hold no fact."""
    content: str
    """Of the whole: documents that are alike have the same. One that is not cut has it as its key, and ``whole`` as
    its ``cut``."""


@dataclass(slots=True)
class _Cuts:
    """What was made of one document so far."""

    whole: bytes
    searched: int = 0
    size: int = 0
    """Bytes of those forms that are shorter than the whole."""


class PackedDocuments:
    """Every document that was asked for, by its key."""

    def __init__(self) -> None:
        self.by_key: dict[str, PackedDocument] = {}
        self._cuts: dict[str, _Cuts] = {}
        self._keys: dict[str, str] = {}

    def key_of(self, document: TraceDocument, content: str, facts: tuple[Fact, ...]) -> str:
        """Of the document, whose hash is ``content``, in its form for these facts; what is new is packed."""
        asked = hashlib.sha256(orjson.dumps([content, [(fact.text, fact.words) for fact in facts]])).hexdigest()
        if asked not in self._keys:
            self._keys[asked] = self._pack(document, content, facts, asked)
        return self._keys[asked]

    def _pack(self, document: TraceDocument, content: str, facts: tuple[Fact, ...], asked: str) -> str:
        made = self._cuts.get(content) or _Cuts(deflated(document.sections))
        self._cuts[content] = made
        if made.searched < CUTS:
            made.searched += 1
            cut = deflated([_cut(section, facts) for section in document.sections])
            if made.size + len(cut) < len(made.whole):
                made.size += len(cut)
                self.by_key[asked] = PackedDocument(asked, made.whole, cut, content)
                return asked
        self.by_key.setdefault(content, PackedDocument(content, made.whole, made.whole, content))
        return content


def deflated(content: Any) -> bytes:
    return zlib.compress(orjson.dumps(content))


def _cut(section: str, facts: tuple[Fact, ...]) -> str | tuple[str, int]:
    if len(section) <= CUT or any(holds(section, fact) for fact in facts):
        return section
    return section[:CUT], len(section) - CUT
