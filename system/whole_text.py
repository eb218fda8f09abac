"""Text that any library takes: Python's may hold half a Unicode character, and tokenizers and JSON end at one.

Such halves stand for the bytes of a file's name or an argument that are no UTF-8, and come out of JSON's ``\\ud800``.
"""

from __future__ import annotations


def whole(text: str) -> str:
    """With a question mark for every half of a character, so that no place in it moves."""
    return text.encode("utf-8", "replace").decode()
