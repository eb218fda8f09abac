"""The vectors of texts: embedded in batches, the newest kept.

Answers of a rollout end one by one. ``warm`` lets each wait, off the event loop, for a batch of all that have come
since the last one began; when the rollout is scored as a whole its vectors are there.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from .encoder import Encoder, Vectors

MOST_TEXTS = 8_192
"""Vectors that are kept: two rollouts of 256 answers of 16 sentences. Those of 384 coordinates take 12 MB."""


class Embedder:
    """Safe to use from several threads and event loops; one batch is computed at a time."""

    def __init__(self, encoder: Encoder, most: int = MOST_TEXTS) -> None:
        self.encoder = encoder
        self._most = most
        self._known: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = threading.Lock()
        self._wanted: list[str] = []
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """[texts, dims]; at least one text."""
        with self._lock:
            missing = [text for text in dict.fromkeys(texts) if text not in self._known]
            fresh = dict(zip(missing, self.encoder.encode(missing), strict=True)) if missing else {}
            found = [fresh[text] if text in fresh else self._known[text] for text in texts]
            for text in dict.fromkeys(texts):
                self._known[text] = fresh[text] if text in fresh else self._known[text]
                self._known.move_to_end(text)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return np.stack(found)

    async def warm(self, texts: Sequence[str]) -> None:
        """Return once these are known."""
        missing = [text for text in texts if text not in self._known]
        if not missing:
            return
        self._wanted += missing
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            batch, self._wanted = self._wanted, []
            if batch:  # else the one before took ours along
                await asyncio.to_thread(self.vectors, batch)
