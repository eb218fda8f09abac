r"""JSON that somebody else wrote, nested no deeper than anything that the pack reads.

orjson itself ends at 1,024 levels, with an error like any other. What lies between was read without harm and did harm
later: Python shows, copies and compares a value by recursion, and orjson writes no more than 254 levels.

The depth is counted on the text, without strings and by whole passes, so it takes a time in proportion to the length::

    {"a": [1, "]"], "b\"": []}   without strings  {: [1, ], : []}   its brackets  [ [ ] [ ] ]
    a pass takes the innermost pairs out: [ [ ] [ ] ] -> [ ] -> nothing, so it was two deep
"""

from __future__ import annotations

import json
from typing import Any

import orjson

DEEPEST = 64
"""Lists and objects inside each other: far more than data needs, far less than does harm."""
_ROUND = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b'{}[]"'))
_NO_STARTS = bytes(set(range(256)) - set(b',[{"'))


class TooDeep(ValueError):
    """Valid JSON, nested deeper than DEEPEST."""


def loads(content: bytes) -> Any:
    """The value. Raises ValueError: ``orjson.JSONDecodeError`` for what is no JSON, TooDeep."""
    value = orjson.loads(content)
    if content.count(b"[") + content.count(b"{") > DEEPEST and _is_deep(content):
        raise TooDeep(f"nested deeper than {DEEPEST}")
    return value


def loads_as_python(content: bytes) -> Any:
    """The value as Python's own json reads a file, which takes ``NaN``, ``Infinity`` and halves of characters as well.

    For what a library will read with it. Raises ValueError, TooDeep.
    """
    try:
        return loads(content)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(content.decode())
        except RecursionError:
            raise TooDeep(f"nested deeper than {DEEPEST}") from None
    if _is_deep(content):
        raise TooDeep(f"nested deeper than {DEEPEST}")
    return value


def has_more_values(content: bytes, most: int) -> bool:
    """Whether it holds more than about ``most`` values; asked before it is read, as an object of eight bytes takes two
    hundred of memory.

    Counted is what stands before a value outside strings: a comma, or the bracket that it is the first in. ``content``
    need not be valid: at a backslash outside strings, which would hide what follows, reading ends as well.
    """
    return _starts(content) > most and _starts(_outside_strings(content, None, _NO_STARTS)) > most


def _starts(content: bytes) -> int:
    return content.count(b",") + content.count(b"[") + content.count(b"{")


def _outside_strings(content: bytes, changed: bytes | None, left_out: bytes) -> bytes:
    strings_end_at_quotes = content.replace(rb"\\", b"").replace(rb"\"", b"")  # a backslash stands in strings alone
    marked = strings_end_at_quotes.translate(changed, left_out).replace(b'""', b"")  # most strings are nothing by now
    return b"".join(marked.split(b'"')[::2])


def _is_deep(valid: bytes) -> bool:
    marks = _outside_strings(valid, _ROUND, _OTHERS)
    for _ in range(DEEPEST):
        if not marks:
            return False
        marks = marks.replace(b"[]", b"")
    return bool(marks)
