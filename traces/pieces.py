"""A reply token by token, as text whose pieces joined are the reply.

A token alone rarely decodes to what it is in its place: a character may need several tokens, and some tokenizers keep
the blank before a word only where another word stands before it. So where the pieces of single tokens do not join to
the text, each is what a head of the reply grows by with its token; a character stands with its last one::

    tokens   Z     \xc3  \xbc  rich        pieces   "Z"  ""  "ü"  "rich"

Invariant: ``"".join(pieces) == text``, whatever the decoder does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_BROKEN = "\ufffd"
_LONGEST = 32
"""Tokens after which a head is cut, also where it ends within a character."""


class _Alone(dict[int, str]):
    """What single tokens decode to."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        super().__init__()
        self._decode = decode

    def __missing__(self, one: int) -> str:
        self[one] = self._decode([one])
        return self[one]


class Pieces:
    """For one decoder; keeps what single tokens decode to."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._alone = _Alone(decode)

    def of(self, ids: Sequence[int], text: str) -> tuple[str, ...]:
        """One piece for each of ``ids``, which decode to ``text``."""
        alone = tuple(map(self._alone.__getitem__, ids))
        return alone if "".join(alone) == text else self._grown(ids, text)

    def _grown(self, ids: Sequence[int], text: str) -> tuple[str, ...]:
        pieces: list[str] = []
        before, clean = 0, 0
        """Tokens before ``clean`` are told; those from ``before`` on are decoded again, as what stands before a token
        decides how it reads."""
        told, at = 0, 0
        """Characters before ``clean``, and before the next piece."""
        for end in range(1, len(ids) + 1):
            known = self._decode(ids[before:clean]) if clean > before else ""
            new = self._decode(ids[before:end])[len(known) :]
            whole = new.rstrip(_BROKEN)
            until = max(at, told + _alike(text[told : told + len(whole)], whole))
            pieces.append(text[at:until])
            at = until
            if (new and whole == new and text.startswith(new, told)) or end - clean >= _LONGEST:
                before, clean, told = clean, end, at
        if pieces:
            pieces[-1] += text[at:]
        return tuple(pieces)


def _alike(one: str, other: str) -> int:
    """Characters that two texts begin with alike."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
