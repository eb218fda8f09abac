"""What makes two texts the same, how a text falls into sentences, and the order in which a batch is written."""

from __future__ import annotations

import hashlib
import re
import unicodedata

_END = re.compile(r"(?<=[.!?])\s+|\n")


def normalised(question: str) -> str:
    """The same for questions that differ in nothing but blanks and Unicode's forms of a letter."""
    return " ".join(unicodedata.normalize("NFKC", question).split())


def question_id(question: str) -> bytes:
    """16 bytes that equal questions (``normalised``) share, and no others."""
    return _digest(normalised(question).encode("utf-8", "surrogatepass"))


def place(question: bytes, text: str) -> bytes:
    """Where an answer stands in the order of writing: as if drawn by lot, but the same in every order of the batch."""
    return _digest(question + text.encode("utf-8", "surrogatepass"))


def sentences(text: str) -> list[str]:
    """Parts of ``text`` that end at a line's end, or at ``.``, ``!`` or ``?`` before a blank; so 3.5 stays whole.

    ``She has 3.5 km. He walks!`` is two. Abbreviations before a blank count as ends, too.
    """
    return [part for part in (part.strip() for part in _END.split(text)) if part]


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
