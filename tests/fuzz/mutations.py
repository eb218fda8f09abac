"""Inputs that are almost right: a seed with one thing changed, so that they come past the first check.

JSON, and lines of JSON, are changed as trees: a value becomes another kind of value, a key goes or comes twice, a list
becomes long or deep. Bytes alone would hardly ever give JSON again. All else is cut, doubled, and filled with the
target's own words.

Invariant: the same seed and random state give the same input, so a failing test fails again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

MOST = 2**16
"""Bytes of an input."""
_DEEP: Any = 0
for _ in range(90):
    _DEEP = [_DEEP]
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308, float("nan"), "", " ",
    "0", "²", "-", "a", "\0", "\ud800", "\n", "../x", "x" * 3000, "9" * 5000, [], [[]], [None], [0], ["a"], {},
    {"a": 1}, {"": None}, [{}], _DEEP,
)
"""Values that readers have to refuse or to bear."""


def mutated(data: bytes, random: Random, words: Sequence[bytes] = ()) -> bytes:
    """``data`` with one to three changes."""
    for _ in range(random.choice((1, 1, 2, 3))):
        change = _tree_changed if random.random() < 0.6 else _bytes_changed
        data = change(data, random, words)
    return data[:MOST]


def _tree_changed(data: bytes, random: Random, words: Sequence[bytes]) -> bytes:
    """Of one JSON value, or of one line of several."""
    if (whole := _changed_json(data, random, words)) is not None:
        return whole
    lines = data.split(b"\n")
    number = random.randrange(len(lines))
    line = _changed_json(lines[number], random, words) if len(lines) > 1 else None
    if line is None:
        return _bytes_changed(data, random, words)
    return b"\n".join([*lines[:number], line, *lines[number + 1 :]])


def _changed_json(data: bytes, random: Random, words: Sequence[bytes]) -> bytes | None:
    head = b"data: " if data.startswith(b"data: {") else b""
    try:
        tree = [json.loads(data.removeprefix(head))]
    except (ValueError, RecursionError):
        return None
    holder, key = random.choice(list(places(tree)))
    random.choice(_ON_TREES)(holder, key, random, words)
    text = json.dumps(tree[0] if tree else None, ensure_ascii=random.random() < 0.5)
    return head + text.encode("utf-8", "replace")


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every value of a tree as the list or object that holds it, and where."""
    found: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo:
        node = todo.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        found += [(node, key) for key in keys]
        todo += [node[key] for key in keys if isinstance(node[key], dict | list)]
    return found


def _replaced(holder: Any, key: Any, random: Random, words: Sequence[bytes]) -> None:
    holder[key] = random.choice(STRANGE)


def _worded(holder: Any, key: Any, random: Random, words: Sequence[bytes]) -> None:
    told = b"".join(random.choice(words) for _ in range(random.randrange(1, 6))) if words else b"0"
    text = told.decode("utf-8", "replace")
    holder[key] = f"{holder[key]}{text}" if isinstance(holder[key], str) and random.random() < 0.5 else text


def _dropped(holder: Any, key: Any, random: Random, words: Sequence[bytes]) -> None:
    del holder[key]


def _doubled(holder: Any, key: Any, random: Random, words: Sequence[bytes]) -> None:
    if isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[f"{key}{random.choice(('', '_', '2'))}"] = holder[key]


def _wrapped(holder: Any, key: Any, random: Random, words: Sequence[bytes]) -> None:
    holder[key] = random.choice(([holder[key]], {"a": holder[key]}, str(holder[key])))


def _moved(holder: Any, key: Any, random: Random, words: Sequence[bytes]) -> None:
    other = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key], holder[other] = holder[other], holder[key]


_ON_TREES: Sequence[Callable[[Any, Any, Random, Sequence[bytes]], None]] = (
    _replaced, _replaced, _replaced, _worded, _dropped, _doubled, _wrapped, _moved,
)


def _bytes_changed(data: bytes, random: Random, words: Sequence[bytes]) -> bytes:
    start, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    piece = data[start:end]
    word = random.choice(words) if words else random.randbytes(2)
    match random.randrange(7):
        case 0:
            return data[:start] + data[end:]
        case 1:
            return data[:end] + piece + data[end:]
        case 2:
            return data[:start] + word * random.choice((1, 1, 2, 40)) + data[start:]
        case 3:
            return data[:start] + word + data[end:]
        case 4:
            return data[:start] + random.randbytes(random.randrange(1, 9)) + data[end if random.random() < 0.3 else
                                                                                start :]
        case 5:
            return data[:start] + bytes(byte ^ (1 << random.randrange(8)) for byte in piece[:3]) + data[start + 3 :]
        case _:
            return data[:start]
