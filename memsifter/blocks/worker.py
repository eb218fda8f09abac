"""What a stage does to the rows of one block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from .row_journal import RowJournal

Row = dict[str, Any]
OK = "ok"
"""What a status says of a good row."""


class Worker(ABC):
    """Made once in each process that works, by ``make_worker``.

    One that meets a bad row says so in a column of its own; what it raises ends the run, and finished blocks stay.
    """

    @abstractmethod
    def __call__(self, rows: list[Row], journal: RowJournal) -> list[Row]:
        """The added columns of each row, in order.

        ``journal.done`` has what is known of these rows already, by position in ``rows``; ``journal.keep`` adds to it.
        Workers that finish a block at once need neither.
        """

    def close(self) -> None:  # noqa: B027
        """Called at the end, in this process; a Ray worker's process just ends."""
