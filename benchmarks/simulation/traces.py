"""A real rollout as the simulation needs it: who asked what when, and what the prompts have in common.

No text and no token is kept. Sorted, each prompt has a rank and a number of first tokens in common with the one before
it; what any two prompts share is the least of these numbers between them::

    prompts   1 2 3 4 | 1 2 3 5 6 | 7 8        ranks 0 1 2, shared 0 3 0

The file is JSON, packed by gzip: ``{"format", "version", "settings", "engines", "turns"}``, the turns as columns.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ...system.errors import MemAgentError

FORMAT, VERSION = "mem_agent-rollout-trace", 1
RECORDED = Path(__file__).parent / "recorded"


class TraceError(MemAgentError):
    """A file that is no trace, or one of another version."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request and its answer."""

    trajectory: int
    group: int
    prompt: int
    reply: int
    """Tokens of prompt and reply."""
    cached: int
    """Prompt tokens that the engine found in its prefix cache."""
    start_ms: int
    end_ms: int
    engine: int
    rank: int
    """Of the prompt, among all sorted prompts."""
    shared: int
    """First tokens in common with the prompt of the rank before."""


COLUMNS = tuple(f.name for f in fields(Turn))


@dataclass(frozen=True)
class Trace:
    """``settings`` of the run, counters of its ``engines``, and its turns in the order in which they were sent."""

    settings: Mapping[str, Any]
    engines: Sequence[Mapping[str, float]]
    turns: Sequence[Turn]


def shared_lengths(prompts: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """(ranks, shared): see the module."""
    order = sorted(range(len(prompts)), key=lambda i: list(prompts[i]))
    ranks, shared = [0] * len(prompts), [0] * len(prompts)
    for rank, index in enumerate(order):
        ranks[index] = rank
        shared[index] = common(prompts[order[rank - 1]], prompts[index]) if rank else 0
    return ranks, shared


def common(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def write_trace(path: Path, trace: Trace) -> None:
    columns = {name: [getattr(turn, name) for turn in trace.turns] for name in COLUMNS}
    content = {"format": FORMAT, "version": VERSION, "settings": trace.settings, "engines": trace.engines}
    text = json.dumps(content | {"turns": columns}, separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_trace(path: Path) -> Trace:
    """Raises TraceError."""
    if not path.is_file():
        raise TraceError(f"{path}: no such file; benchmarks/simulation/record.py records traces")
    try:
        content = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise TraceError(f"{path}: not a trace (gzip of JSON is expected): {error}") from None
    found = (content.get("format"), content.get("version")) if isinstance(content, dict) else None
    if found != (FORMAT, VERSION):
        raise TraceError(f"{path}: a trace of {FORMAT} version {VERSION} is expected, found {found}; record it anew")
    columns = content["turns"]
    if set(columns) != set(COLUMNS) or len({len(c) for c in columns.values()}) != 1:
        raise TraceError(f"{path}: columns {sorted(columns)} of one length are expected to be {sorted(COLUMNS)}")
    rows = zip(*(columns[name] for name in COLUMNS), strict=True)
    return Trace(content["settings"], content["engines"], [Turn(*row) for row in rows])


def committed() -> list[Path]:
    """The traces of two engines that come with the pack."""
    return sorted(path for path in RECORDED.glob("*.json.gz") if not path.name.startswith("calibrate-"))
