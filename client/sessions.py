"""Which routing keys are still needed, so that the router counts work and not history.

vLLM's router puts a new key where the fewest keys are bound, and a key stays bound for two hours unless somebody ends
it (``POST /finish_session``). A key that is ended once its group has read the chunk leaves as many bound keys at an
engine as groups are busy there; so an engine that falls behind is left with the next chunk, whoever's it is. Routers
that count requests in flight (SGLang's) or nothing (a consistent hash) need none of this.

    group of 3   chunk 0           chunk 1                    key of chunk 0 ends
                 a b c read it     a b go on, c still reads   when c goes on, or ends

Invariants: a key is never ended while a trajectory that is open has yet to ask for it, unless siblings begin after all
others have ended; with a group's last trajectory nothing of it is left, here or in the router.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Group:
    siblings: int
    open: int = 0
    ended: int = 0
    passed: dict[str, int] = field(default_factory=dict)
    """Key to the trajectories that will not ask for it any more."""


class Sessions:
    """The keys of one event loop's trajectories; ``finish`` is told of each that nobody will ask for."""

    def __init__(self, finish: Callable[[str], None]) -> None:
        self._finish = finish
        self._groups: dict[str, _Group] = {}

    @contextmanager
    def trajectory(self, name: str, siblings: int) -> Iterator[Session]:
        """One of ``siblings`` trajectories of a group, for as long as it reads."""
        group = self._groups.setdefault(name, _Group(siblings))
        group.open += 1
        session = Session(group, self._finish)
        try:
            yield session
        finally:
            session.end()
            if not group.open:
                del self._groups[name]

    def __len__(self) -> int:
        return len(self._groups)


class Session:
    """What one trajectory asks for."""

    def __init__(self, group: _Group, finish: Callable[[str], None]) -> None:
        self._group, self._finish = group, finish
        self._asking: Counter[str] = Counter()
        self._passed: set[str] = set()

    @contextmanager
    def asking(self, key: str) -> Iterator[None]:
        """A request of ``key``; what was asked for before, and is not being asked for now, has been passed."""
        self._group.passed.setdefault(key, self._group.ended)
        for other in [k for k, requests in self._asking.items() if not requests and k != key]:
            del self._asking[other]
            self._pass(other)
        self._asking[key] += 1
        try:
            yield
        finally:
            self._asking[key] -= 1

    def end(self) -> None:
        group = self._group
        group.open -= 1
        group.ended += 1
        for key in list(group.passed):
            if group.open:
                self._pass(key)
            else:
                self._close(key)

    def _pass(self, key: str) -> None:
        if key in self._passed or key not in self._group.passed:
            return
        self._passed.add(key)
        self._group.passed[key] += 1
        if self._group.passed[key] >= self._group.siblings:
            self._close(key)

    def _close(self, key: str) -> None:
        del self._group.passed[key]
        self._finish(key)
