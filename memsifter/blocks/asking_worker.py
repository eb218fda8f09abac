"""Rows of a block asked side by side, each kept the moment it is answered."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence

from ...system.gather import gather_or_cancel
from ...system.signals import run_stoppable
from .row_journal import RowJournal
from .worker import OK, Row, Worker


class AskingWorker(Worker):
    """One event loop for all its blocks; a row whose column ``status`` is not OK is asked again by the next run."""

    status: str

    def __init__(self, *, stoppable: bool) -> None:
        """``stoppable``: signals end it in order, which they can in a command's main thread."""
        self._runner = asyncio.Runner()
        self._stoppable = stoppable
        self.answered_before = False
        """Whether an earlier run had good rows of a block that this worker has seen."""

    @abstractmethod
    async def ask(self, row: Row) -> Row:
        """The added columns of a row. Raises MemAgentError where no other row could do better."""

    async def finish(self) -> None:
        """Called at the end, in the loop."""

    def __call__(self, rows: list[Row], journal: RowJournal) -> list[Row]:
        self.answered_before |= bool(journal.done)
        asked = self._ask_all(rows, journal)
        return run_stoppable(asked, self._runner) if self._stoppable else self._runner.run(asked)

    def close(self) -> None:
        with self._runner:
            self._runner.run(self.finish())

    async def _ask_all(self, rows: Sequence[Row], journal: RowJournal) -> list[Row]:
        return await gather_or_cancel(*(self._one(position, row, journal) for position, row in enumerate(rows)))

    async def _one(self, position: int, row: Row, journal: RowJournal) -> Row:
        if position not in journal.done:
            result = await self.ask(row)
            if result[self.status] != OK:
                return result
            journal.keep(position, result)
        return journal.done[position]
