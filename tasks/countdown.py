r"""``TASK=countdown``: the target from the given numbers, each used once, by ``+ - * /`` and parentheses.

    numbers 3 5 8 2, target 20, reply "<reasoning>\n...\n</reasoning>\n<answer>\n(5 - 3) * (8 + 2)\n</answer>"
    reward    correct 1, strict_format .05, soft_format .05, tags .05        metrics   right 1, format 1

The row has ``numbers`` and ``target`` in its metadata; without ``target`` its gold is that. The value is exact
(``rewards/arithmetic.py``), and nothing of a reply is ever run. TASK_ARGS as of ``TASK=gsm8k``, without ``mode`` and
``integer``.

Published (Memory-R's ``run_countdown.py`` at 8e0dd1f): 1 for the sum and 1 for the form, thinking in ``<think>``,
which here would be cut off a reply before anybody reads it. It runs the text by ``eval``, where ``9**9**9**9`` hangs,
takes ``-3+5`` and ``7//2``, and a value that is off by 0.00001.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from ..rewards.arithmetic import exact_value
from ..system.errors import MemAgentError
from .in_form import FormTask
from .interface import TaskRow


class BadRow(MemAgentError):
    """A row that asks nothing."""


class Countdown(FormTask):
    headline = "right"

    def reward(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        reply = self.whole(reply, row)
        return self.parts(reply, right=self._right(reply, row))

    def metrics(self, reply: str, row: TaskRow) -> Mapping[str, float]:
        reply = self.whole(reply, row)
        return {"right": float(self._right(reply, row)), "format": self.in_form(reply)}

    def _right(self, reply: str, row: TaskRow) -> bool:
        numbers, target = _asked(row)
        found = exact_value(self.read_answer(reply))
        return found is not None and found[0] == target and sorted(found[1]) == sorted(numbers)


def _asked(row: TaskRow) -> tuple[list[int], Fraction]:
    target, numbers = row.metadata.get("target", row.golds[0] if row.golds else None), row.metadata.get("numbers")
    whole = isinstance(numbers, list | tuple) and all(re.fullmatch(r"[0-9]{1,20}", str(n)) for n in numbers)
    if not whole or not _plain(str(target)):
        raise BadRow(
            f"a countdown row needs metadata.numbers, a list of whole numbers, and metadata.target; it has "
            f"{numbers!r:.60} and {target!r:.60}"
        )
    return [int(number) for number in numbers or ()], Fraction(str(target))


def _plain(target: str) -> bool:
    """Whether it is a number of few digits: an exponent may take a minute to write out."""
    return re.fullmatch(r"-?[0-9]{1,20}(\.[0-9]{1,20}|/[1-9][0-9]{0,19})?", target) is not None
