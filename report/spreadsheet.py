"""CSV that a spreadsheet opens as it is: no text that somebody else wrote is run as a formula or begins a row.

Invariants: a text that a spreadsheet would take for a formula has a ``'`` before it; numbers are as they are; whatever
has a line end in it is quoted.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence

_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""What formulas begin with, in a Japanese spreadsheet in full width as well."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def csv_text(header: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """A line for each row, whose keys are of the header; what a row has not is empty."""
    lines = _Lines()
    writer = csv.writer(lines, lineterminator="\r\n")  # by which it knows what to quote
    writer.writerow(map(_cell, header))
    writer.writerows([_cell(row.get(name, "")) for name in header] for row in rows)
    return "".join(lines)


class _Lines(list[str]):
    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value
