"""One run over the blocks of a file, as every process that works on it knows it, and how its rows and parts are named.

A row is known by a digest of all its columns, a part by its block's number and a digest of its rows, the folder of the
parts by a digest of the identity: everything else that shapes a result. So equal rows under an equal identity are
computed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow as pa

from ...system.errors import MemAgentError
from .worker import Row

BLOCK = 64
"""Rows of a block."""


class BlockError(MemAgentError):
    """The run cannot begin or end; the message says what lies in the way."""


@dataclass(frozen=True, slots=True)
class Counts:
    rows: int
    computed: int
    """Rows of blocks that were worked on in this run; rows that were known already count, too."""

    @property
    def kept(self) -> int:
        """Rows that an earlier run had finished."""
        return self.rows - self.computed


@dataclass(frozen=True, slots=True)
class OnRay:
    """Where blocks are worked on instead of this process; all its machines see the files under the same paths."""

    address: str = "local"
    """``local`` starts a Ray of this machine for the run; else ``auto``, ``HEAD:6379`` or ``ray://HEAD:10001``."""
    workers: int = 1
    cpus: float = 1.0
    """Of each worker."""
    gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    number: int
    name: str
    rows: int
    computed: bool


@dataclass(frozen=True)
class BlockRun:
    """Pickles."""

    source: Path
    output: Path
    identity: str
    adds: pa.Schema
    block: int
    rows: int
    """Of the input that are asked for."""
    status: str = ""
    """An added column that says OK of a good row; empty: all rows are good."""
    data: str = ""
    """The data set and split, ``locomo/test``; the output says it."""

    @property
    def name(self) -> str:
        return _digest([self.identity.encode(), self.adds.serialize().to_pybytes(), str(self.block).encode()])[:12]

    @property
    def folder(self) -> Path:
        return self.output.with_name(f"{self.output.name}.parts") / self.name

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.block)

    def part(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def journal(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"


def row_digests(rows: Iterable[Row]) -> list[bytes]:
    options = orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS
    return [hashlib.sha256(orjson.dumps(row, default=repr, option=options)).digest() for row in rows]


def row_key(digest: bytes) -> str:
    """What a row is known by in journals, parts and the output."""
    return digest.hex()[:KEY_LENGTH]


def part_name(number: int, digests: Sequence[bytes]) -> str:
    return f"{number:06d}-{hashlib.sha256(b''.join(digests)).hexdigest()[:16]}"


KEY_LENGTH = 16


def _digest(parts: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()
