"""Published accuracy on the multi-document questions, as printed, with its source; and how runs stand beside it.

Invariants:
- every number is an accuracy in percent in the metric ``METRIC``: containment either way round, after normalisation.
  It stands beside our column of that name and beside no other;
- lengths are numbers of documents, whatever the source calls them: 50 documents are about 7K tokens, 6400 about 900K,
  25600 about 3.5M (Qwen2.5 tokenizer);
- a number that the source does not print is absent;
- runs are compared in that metric alone, over the lengths that both have; "above" and "below" are said only of a
  difference larger than both 95% intervals together explain. A published accuracy's interval is that of its number of
  questions, however many lengths are averaged.

One cell is a single run of 128 questions, so its standard error is 3.5 points at 80% and 4.4 at 50%.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from statistics import fmean

from ..evaluation.summary import Summary

METRIC = "sub_em_legacy"
QUESTIONS = 128
HOTPOTQA = "HotpotQA"
TWO_WIKI = "2WikiMultiHopQA"

_DOCUMENTS = ("50", "100", "200", "400", "800", "1600", "3200", "6400", "12800", "25600")
_MEMAGENT_V1 = "MemAgent, arXiv 2507.02259v1, main results on RULER-HotpotQA"
_MEMAGENT_V2 = "MemAgent, arXiv 2507.02259v2 (ICLR 2026), main results on RULER-HotpotQA"
_REMEMR1_HQA = "ReMemR1, arXiv 2509.23040, table 1(a)"
_REMEMR1_2WIKI = "ReMemR1, arXiv 2509.23040, table 1(b)"

CAVEATS = (
    f"Published numbers are {METRIC}: the gold answer inside the prediction, or the prediction inside the gold "
    "answer. That is more lenient than sub_em, which asks for the gold answer's words in the prediction.",
    f"Each published number is one run of {QUESTIONS} questions at temperature 0.7, without an interval: about "
    "±7 points at 95%. Published code scores against the first accepted answer only; here all accepted answers count.",
    "Published evaluation code drops requests that failed, or numbers fit fewer than "
    f"{QUESTIONS} questions; here a failed question counts as wrong.",
    "MemAgent's rows are on its published question files. ReMemR1's rows, those of other systems in its tables "
    "included, are on files of its own making, with other questions at every length.",
    "Whether your questions are the published ones cannot be told from here: compare the hash of your data file with "
    "that of the file you downloaded.",
)


@dataclass(frozen=True, slots=True)
class Published:
    system: str
    dataset: str
    source: str
    accuracy: Mapping[str, float]
    """Percent by length: here numbers of documents, in ``ruler`` tokens."""
    note: str = ""
    drawn: bool = False
    """Whether the plot shows it; the tables show every row."""


def _row(
    system: str, dataset: str, source: str, numbers: Sequence[float], note: str = "", drawn: bool = False
) -> Published:
    return Published(system, dataset, source, dict(zip(_DOCUMENTS[: len(numbers)], numbers, strict=True)), note, drawn)


_DROPPED = "several cells are no multiple of 1/128: failed questions seem to be left out"
_RERUN = "as run by the authors of ReMemR1"

PUBLISHED = (
    _row("MemAgent-14B, RL (v2)", HOTPOTQA, _MEMAGENT_V2,
         (80.47, 82.03, 82.03, 83.59, 81.25, 77.34, 79.69, 75.78, 78.91, 71.09), "trained in two stages", True),
    _row("MemAgent-7B, RL (v2)", HOTPOTQA, _MEMAGENT_V2,
         (81.25, 81.25, 82.03, 80.47, 79.69, 75.78, 76.56, 74.22, 77.34, 71.88), "trained in two stages", True),
    _row("MemAgent-14B, RL (v1)", HOTPOTQA, _MEMAGENT_V1,
         (83.59, 82.03, 84.38, 80.47, 76.56, 81.25, 75.00, 77.34, 76.56, 78.12)),
    _row("MemAgent-7B, RL (v1)", HOTPOTQA, _MEMAGENT_V1,
         (82.03, 79.69, 78.91, 77.34, 79.69, 72.66, 74.22, 76.56, 75.78, 71.09)),
    _row("Qwen2.5-14B-Instruct-1M", HOTPOTQA, _MEMAGENT_V1,
         (60.16, 60.94, 50.00, 57.03, 50.00, 37.50, 8.59, 0.00), "whole document in one prompt", True),
    _row("Qwen2.5-7B-Instruct-1M", HOTPOTQA, _MEMAGENT_V1,
         (61.72, 56.25, 53.91, 55.47, 51.56, 33.59, 12.50, 0.00), "whole document in one prompt"),
    _row("QwenLong-L1-32B", HOTPOTQA, _MEMAGENT_V1,
         (72.66, 75.00, 72.66, 60.94, 31.25, 17.19, 13.28, 11.72), "middle cut out beyond 120K tokens", True),
    _row("ReMemR1-7B", HOTPOTQA, _REMEMR1_HQA, (82.3, 82.8, 81.1, 78.9, 82.0, 79.7, 80.0, 80.8), _DROPPED, True),
    _row("ReMemR1-3B", HOTPOTQA, _REMEMR1_HQA, (70.9, 71.7, 63.8, 74.0, 65.4, 65.0, 65.4, 66.1), _DROPPED),
    _row("MemAgent-7B (in ReMemR1)", HOTPOTQA, _REMEMR1_HQA,
         (81.8, 78.9, 78.9, 77.0, 79.7, 72.1, 74.0, 75.8), _RERUN),
    _row("MemAgent-3B (in ReMemR1)", HOTPOTQA, _REMEMR1_HQA,
         (70.3, 69.4, 60.9, 68.8, 60.9, 60.2, 59.4, 58.8), _RERUN),
    _row("Qwen2.5-7B-1M (in ReMemR1)", HOTPOTQA, _REMEMR1_HQA,
         (75.8, 71.9, 68.0, 67.2, 69.5, 54.7, 22.7, 0.0), _RERUN),
    _row("QwenLong-L1-32B (in ReMemR1)", HOTPOTQA, _REMEMR1_HQA,
         (83.6, 85.2, 74.2, 73.4, 57.8, 45.3, 38.9, 38.3), _RERUN),
    _row("ReMemR1-7B", TWO_WIKI, _REMEMR1_2WIKI, (63.9, 63.1, 55.6, 54.5, 54.7, 45.4, 48.9, 50.3), _DROPPED, True),
    _row("ReMemR1-3B", TWO_WIKI, _REMEMR1_2WIKI, (53.5, 50.4, 42.5, 41.7, 37.0, 36.2, 35.4, 37.8), _DROPPED),
    _row("MemAgent-7B (in ReMemR1)", TWO_WIKI, _REMEMR1_2WIKI,
         (61.7, 57.8, 50.8, 47.6, 50.7, 44.5, 46.9, 44.7), _RERUN, True),
    _row("MemAgent-3B (in ReMemR1)", TWO_WIKI, _REMEMR1_2WIKI,
         (41.4, 45.3, 40.2, 39.4, 36.3, 28.9, 26.7, 25.9),
         _RERUN + "; 200, 400 and 800 documents are 42.2, 41.4 and 38.3 in tables 4 and 6 of the same paper"),
    _row("QwenLong-L1-32B (in ReMemR1)", TWO_WIKI, _REMEMR1_2WIKI,
         (74.2, 69.5, 65.6, 58.6, 38.3, 28.1, 24.6, 29.9), _RERUN, True),
)


def published_rows(task: str) -> tuple[Published, ...]:
    """The rows that a task may stand beside; none for a task that no source reports."""
    name = task.lower()
    if name in ("", "hqa", "hotpotqa", "ruler_hqa"):
        return tuple(row for row in PUBLISHED if row.dataset == HOTPOTQA)
    return tuple(row for row in PUBLISHED if row.dataset == TWO_WIKI) if name.startswith("2wiki") else ()


def half_width(accuracy: float, questions: int = QUESTIONS) -> float:
    """Half of the 95% interval that so many independent questions give an accuracy in percent, in points."""
    share = min(max(accuracy / 100, 0.5 / questions), 1 - 0.5 / questions)
    return 100 * 1.96 * sqrt(share * (1 - share) / questions)


@dataclass(frozen=True, slots=True)
class PublishedComparison:
    """One run beside one published system: both averaged over ``lengths``."""

    run: str
    task: str
    published: Published
    lengths: tuple[str, ...]
    mine: float
    half: float
    """Half of the 95% interval of ``mine``."""
    theirs: float

    @property
    def verdict(self) -> str:
        """above, below, or level: no difference that so many questions can show."""
        difference = self.mine - self.theirs
        if abs(difference) <= hypot(self.half, half_width(self.theirs)):
            return "level"
        return "above" if difference > 0 else "below"


def published_comparisons(summaries: Sequence[Summary]) -> tuple[PublishedComparison, ...]:
    """Every run beside every published system that shares a length with it."""
    by_run: dict[tuple[str, str], list[Summary]] = defaultdict(list)
    for summary in summaries:
        if METRIC in summary.scores:
            by_run[summary.run, summary.task].append(summary)
    return tuple(
        _comparison(run, task, row, shared)
        for (run, task), cells in by_run.items()
        for row in published_rows(task)
        if (shared := [cell for cell in cells if cell.length in row.accuracy])
    )


def _comparison(run: str, task: str, row: Published, cells: Sequence[Summary]) -> PublishedComparison:
    scores = [cell.scores[METRIC] for cell in cells]
    lengths = tuple(cell.length for cell in cells)
    # Lengths may ask the same questions, so their average is taken to be no surer than its least sure length.
    half = max((score.high - score.low) / 2 for score in scores)
    theirs = fmean(row.accuracy[length] for length in lengths)
    return PublishedComparison(run, task, row, lengths, fmean(score.mean for score in scores), half, theirs)
