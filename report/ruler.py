"""RULER's tasks by length, with MemAgent's average and what is published of it.

Published averages are of MemAgent's files, prompts and answers ("the answer is"), 128 questions a task and one run; a
number that our source does not give is absent.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..evaluation.results import length_order
from ..evaluation.ruler_average import RulerLine, tasks_of
from .published import Published
from .tables import Table
from .wording import with_interval

_SOURCE = "MemAgent, arXiv 2507.02259v1, average of ten RULER tasks"
_LENGTHS = ("8192", "16384", "32768", "65536", "131072", "262144", "524288")


def _row(system: str, *averages: float, note: str = "") -> Published:
    return Published(system, "RULER", _SOURCE, dict(zip(_LENGTHS, averages, strict=True)), note)


PUBLISHED = (
    _row("MemAgent-14B, RL (v1)", 97.45, 96.97, 97.46, 97.85, 96.08, 96.24, 95.40),
    _row("MemAgent-7B, RL (v1)", 93.03, 92.03, 91.33, 88.83, 86.92, 83.70, 81.91),
    _row("MemAgent-7B, without RL (v1)", 92.56, 92.47, 90.52, 88.36, 84.46, 80.05, 73.48),
)


def ruler_tables(lines: Sequence[RulerLine], with_published: bool) -> list[Table]:
    """Every task at every length, and the average by length beside what is published; none without lines."""
    return [_tasks_table(lines), *_average_table(lines, with_published)] if lines else []


def _tasks_table(lines: Sequence[RulerLine]) -> Table:
    tasks = tasks_of(lines)
    header = ("run", "length", *tasks, "MemAgent's ten", "RULER's thirteen", "qa_1, first gold")
    rows = tuple(
        (line.run, line.length, *(with_interval(line.tasks.get(name)) for name in tasks), with_interval(line.ten),
         with_interval(line.thirteen), with_interval(line.first_gold))
        for line in lines
    )
    note = ("Percent. The averages are of the eight needle tasks, vt and fwe, and of all thirteen; qa_1 is by RULER's "
            "rule, and against its first gold as MemAgent scores it.")
    return Table("RULER, task by task", header, rows, note)


def _average_table(lines: Sequence[RulerLine], with_published: bool) -> list[Table]:
    """MemAgent's table: a row per run and published system, a column per length; only where a run has all ten."""
    averages = {(line.run, line.length): line.ten for line in lines if line.ten}
    lengths = sorted({length for _, length in averages}, key=length_order)
    rows = [
        (run, *(with_interval(averages.get((run, length))) for length in lengths))
        for run in dict.fromkeys(run for run, _ in averages)
    ]
    shown = [row for row in PUBLISHED if with_published and not row.accuracy.keys().isdisjoint(lengths)]
    marked = frozenset(range(len(rows), len(rows) + len(shown)))
    rows += [
        (f"{row.system} (published)",
         *(f"{row.accuracy[length]:.1f}" if length in row.accuracy else "–" for length in lengths))
        for row in shown
    ]
    note = "Percent." + f" Published rows: {_SOURCE}; TASK_ARGS=answer=the_answer_is reads as they do." * bool(shown)
    table = Table("RULER, average of MemAgent's ten tasks", ("system", *lengths), tuple(rows), note, marked=marked)
    return [table] if averages else []
