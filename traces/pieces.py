"""A reply token by token, as text.

A token alone rarely decodes to what it is in its place: a character may need several tokens, and some tokenizers keep
the blank before a word only where another word stands before it. A character stands with its last token::

    tokens   Z     \xc3  \xbc  rich        pieces   "Z"  ""  "ü"  "rich"
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int], text: str) -> tuple[str, ...]:
    """One piece for each of ``ids``, which decode to ``text`` without special tokens.

    Joined they are ``text``, except where it holds bytes that are no character and a decoder spoils their neighbours.
    """
    stream = DecodeStream(skip_special_tokens=True)
    pieces = [stream.step(tokenizer, token) or "" for token in ids]
    if pieces:  # a reply may end within a character
        pieces[-1] += text[sum(map(len, pieces)) :]
    return tuple(pieces)
