"""The prefix cache of an engine: whole blocks, the least recently used is forgotten first.

A prompt is a path of extents, each a number of blocks that the same prompts share, so no block is handled alone::

    section first, 32 tokens a block     instructions 2 | question and chunk of this document 33 | own memory 3

An engine frees the blocks of a request from its end to its beginning, so an extent is forgotten from its end as well,
and never while its successor is remembered. As in vLLM 0.32 (``v1/core/block_pool.py``, ``kv_cache_manager.py``): a
block is found as soon as it is allocated; the last token of a prompt is always computed, so a prompt that is cached
whole computes its last block; blocks that nobody can find are reused first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

Path = Sequence[tuple[Hashable, int]]
"""Extents of a prompt from its beginning, with their blocks; together its whole blocks."""


@dataclass(slots=True)
class _Extent:
    blocks: int = 0
    users: int = 0


@dataclass(slots=True)
class Lease:
    """What one request holds."""

    path: Path
    held: list[Hashable] = field(default_factory=list)
    """Extents in use, those that others share as well."""
    nameless: int = 0
    """Blocks that nobody finds yet: the last one that is not full, and those of the reply."""
    copies: int = 0
    """Blocks that were computed although they were cached, or are by now."""
    depth: int = 0
    """Blocks of the path that have room and a name."""

    @property
    def blocks(self) -> int:
        return self.depth + self.nameless


class BlockCache:
    """``capacity`` blocks; None is without bounds."""

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self._extents: dict[Hashable, _Extent] = {}
        self._idle: OrderedDict[Hashable, None] = OrderedDict()
        self._empty = capacity if capacity is not None else 0
        self._idle_blocks = 0
        self.forgotten = 0

    @property
    def free(self) -> float:
        return float("inf") if self.capacity is None else self._empty + self._idle_blocks

    def found(self, path: Path, most: int) -> int:
        """Blocks of ``path`` that are cached, at most ``most``."""
        depth = 0
        for name, blocks in path:
            extent = self._extents.get(name)
            there = min(extent.blocks, blocks) if extent else 0
            depth += there
            if there < blocks:
                break
        return min(depth, most)

    def needed(self, path: Path, found: int, tokens_blocks: int) -> int:
        """Blocks that admission takes from the free ones: new ones, and those found that nobody uses now."""
        idle, depth = 0, 0
        for name, blocks in path:
            extent = self._extents.get(name)
            if depth >= found or extent is None:
                break
            if not extent.users:
                idle += extent.blocks
            depth += blocks
        return tokens_blocks - found + idle

    def open(self, path: Path, found: int) -> Lease:
        """Use what was found."""
        lease = Lease(path, depth=found)
        depth = 0
        for name, blocks in path:
            if depth >= found:
                break
            self._use(name)
            lease.held.append(name)
            depth += blocks
        return lease

    def extend(self, lease: Lease, depth: int) -> None:
        """Room for the path's blocks up to ``depth``, which others find from now on."""
        start = 0
        for name, blocks in lease.path:
            end = min(depth, start + blocks)
            if end > lease.depth:
                self._fill(lease, name, end - start, end - lease.depth)
                lease.depth = end
            start += blocks

    def publish(self, lease: Lease, depth: int) -> None:
        """Blocks up to ``depth`` that had room by ``grow`` can be found from now on."""
        count = depth - lease.depth
        if count > 0:
            lease.nameless -= count
            self._free_nameless(count)
            self.extend(lease, depth)

    def grow(self, lease: Lease, blocks: int) -> None:
        """Room for a reply."""
        self._allocate(blocks)
        lease.nameless += blocks

    def trim(self, lease: Lease, blocks: int) -> None:
        """Give back what is beyond ``blocks``."""
        count = max(0, lease.blocks - blocks)
        assert count <= lease.nameless
        lease.nameless -= count
        self._free_nameless(count)

    def close(self, lease: Lease, named: Hashable | None = None, whole: int = 0) -> None:
        """Free everything; ``whole`` blocks of the reply are remembered as ``named``."""
        assert whole <= lease.nameless, (whole, lease.nameless)
        if whole and named is not None:
            self._extents[named] = _Extent(whole)
            self._idle[named] = None
            self._idle_blocks += whole
            lease.nameless -= whole
        self._free_nameless(lease.nameless + lease.copies)
        for name in reversed(lease.held):
            extent = self._extents[name]
            extent.users -= 1
            if not extent.users:
                self._idle[name] = None
                self._idle_blocks += extent.blocks
        lease.held, lease.nameless, lease.copies, lease.depth = [], 0, 0, 0

    def _fill(self, lease: Lease, name: Hashable, blocks: int, new: int) -> None:
        """``blocks`` of an extent are there, ``new`` of which this request computes."""
        if name not in lease.held:
            self._use(name)
            lease.held.append(name)
        extent = self._extents[name]
        grown = max(0, blocks - extent.blocks)
        assert grown <= new, (name, grown, new)
        self._allocate(new)
        lease.copies += new - grown
        extent.blocks += grown

    def _use(self, name: Hashable) -> None:
        extent = self._extents.setdefault(name, _Extent())
        if not extent.users and name in self._idle:
            del self._idle[name]
            self._idle_blocks -= extent.blocks
        extent.users += 1

    def _allocate(self, blocks: int) -> None:
        if self.capacity is None:
            return
        assert blocks <= self.free, (blocks, self.free)
        while blocks > self._empty:
            name = next(iter(self._idle))
            extent = self._extents[name]
            lost = min(extent.blocks, blocks - self._empty)
            extent.blocks -= lost
            self._idle_blocks -= lost
            self._empty += lost
            self.forgotten += lost
            if not extent.blocks:
                del self._idle[name], self._extents[name]
        self._empty -= blocks

    def _free_nameless(self, blocks: int) -> None:
        self._empty += blocks
