r"""JSON that somebody else wrote, nested no deeper than anything that the pack reads.

orjson itself ends at 1,024 levels, with an error like any other. What lies between was read without harm and did harm
later: Python shows, copies and compares a value by recursion, and orjson writes no more than 254 levels.

The depth is counted on the text, without strings and by whole passes, so it takes a time in proportion to the length::

    {"a": [1, "]"], "b\"": []}   without strings  {: [1, ], : []}   its brackets  [ [ ] [ ] ]
    a pass takes the innermost pairs out: [ [ ] [ ] ] -> [ ] -> nothing, so it was two deep
"""

from __future__ import annotations

from typing import Any

import orjson

DEEPEST = 64
"""Lists and objects inside each other: far more than data needs, far less than does harm."""
_ROUND = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(set(range(256)) - set(b'{}[]"'))


class TooDeep(ValueError):
    """Valid JSON, nested deeper than DEEPEST."""


def loads(content: bytes) -> Any:
    """The value. Raises ValueError: ``orjson.JSONDecodeError`` for what is no JSON, TooDeep."""
    value = orjson.loads(content)
    if content.count(b"[") + content.count(b"{") > DEEPEST and _is_deep(content):
        raise TooDeep(f"nested deeper than {DEEPEST}")
    return value


def _is_deep(valid: bytes) -> bool:
    strings_end_at_quotes = valid.replace(rb"\\", b"").replace(rb"\"", b"")  # a backslash stands in strings alone
    marked = strings_end_at_quotes.translate(_ROUND, _OTHERS).replace(b'""', b"")  # most strings are nothing by now
    marks = b"".join(marked.split(b'"')[::2])
    for _ in range(DEEPEST):
        if not marks:
            return False
        marks = marks.replace(b"[]", b"")
    return bool(marks)
