"""Whose turn it is, so that every target comes to its hour: over many calls on one folder, least searched first.

``FOLDER/hours.json`` has the CPU seconds of each target; the wall's clock would count what other processes took. What
finds a fault begins anew, since an hour that finds nothing is meant::

    {"boxes": 3600.4, "results": 3601.2, "journal": 0.0}     journal is next
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

from mem_agent.system.atomic_file import write_atomically
from mem_agent.tests.fuzz.target import Target


class Hours:
    """Of one folder; its methods are called by the threads that search."""

    def __init__(self, folder: Path, targets: Sequence[Target], each_s: float) -> None:
        self._path, self._each_s, self._targets = folder / "hours.json", each_s, tuple(targets)
        self.searched: dict[str, float] = json.loads(self._path.read_text()) if self._path.exists() else {}
        self._taken: set[str] = set()
        self._lock = threading.Lock()

    def take(self) -> Target | None:
        """The target that was searched least and lacks something; None: there is nothing left to take."""
        with self._lock:
            lacking = [target for target in self._targets if self._lacks(target) and target.name not in self._taken]
            if not lacking:
                return None
            least = min(lacking, key=lambda target: self.searched.get(target.name, 0.0))
            self._taken.add(least.name)
            return least

    def _lacks(self, target: Target) -> bool:
        return self.searched.get(target.name, 0.0) < self._each_s

    def give_back(self, target: Target, seconds: float, found: bool) -> None:
        with self._lock:
            self._taken.remove(target.name)
            self.searched[target.name] = 0.0 if found else self.searched.get(target.name, 0.0) + seconds
            write_atomically(self._path, json.dumps(self.searched, indent=1, sort_keys=True).encode())

    def table(self) -> str:
        """A line for each target: its minutes."""
        return "\n".join(f"{self.searched.get(t.name, 0.0) / 60:8.1f} min  {t.name}" for t in self._targets)
