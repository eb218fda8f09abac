"""How metrics, tasks, lengths and numbers are called wherever a person reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from statistics import fmean

from ..evaluation.results import Results
from ..evaluation.ruler_average import FIRST_GOLD
from ..evaluation.statistics import Estimate
from ..evaluation.summary import Summary
from .published import METRIC

_METRICS = {
    "sub_em": "sub_em", "em": "exact match", "f1": "F1", "ruler": "RULER score",
    FIRST_GOLD: "first gold (MemAgent's qa_1)",
    METRIC: f"{METRIC} (published metric)",
}
_LONGEST = 60


def metric_name(metric: str) -> str:
    return _METRICS.get(metric, metric)


def task_name(task: str) -> str:
    return task or "multi-document QA"


def unit_of(cells: Sequence[Summary]) -> str:
    """What a length counts: tokens where documents have about as many, else documents; where names are none, files."""
    if not any(cell.length.isdecimal() for cell in cells):
        return "file"
    ratios = [
        cell.costs["document_tokens"].mean / int(cell.length)
        for cell in cells
        if cell.length.isdecimal() and int(cell.length) and "document_tokens" in cell.costs
    ]
    return "tokens" if ratios and fmean(ratios) < 4 else "documents"


def shorten(name: str) -> str:
    """The name, or its two ends where it is too long for a legend."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-_LONGEST // 2 + 1 :]}"


def model_title(result: Results) -> tuple[str, str]:
    """The model and the checkpoint of it that was evaluated; the hash of the weights where nobody says a name."""
    run, path = result.run, PurePath(result.run.model_name)
    made_in_run = re.fullmatch(r"(?:during|after)-(iter_[0-9]{7,18})", result.folder.name)
    if made_in_run and result.folder.parent.name == "eval":
        return result.folder.parent.parent.name, made_in_run[1]
    hub = next((part for part in path.parts if part.startswith("models--")), "")  # a downloaded model's folder
    if hub:
        return hub.removeprefix("models--").replace("--", "/", 1), "–"
    if run.checkpoint is None:
        return path.name or run.model[:10], "–"
    above = path.parent.parent if path.parent.name == "hf" else path.parent
    return above.name or run.model[:10], path.name


def named(runs: Iterable[str]) -> str:
    """The first three of some runs, and how many more."""
    labels = list(runs)
    return ", ".join(map(shorten, labels[:3])) + (f" and {len(labels) - 3} more" if labels[3:] else "")


def with_interval(estimate: Estimate | None, digits: int = 1) -> str:
    """The mean, and the interval on a line of its own where there is room for lines."""
    if estimate is None:
        return "–"
    return f"{estimate.mean:.{digits}f}\n[{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def number(estimate: Estimate | None, digits: int = 1) -> str:
    """A cost, with decimals only where it is small."""
    if estimate is None:
        return "–"
    return f"{estimate.mean:,.{digits}f}" if estimate.mean < 100 else f"{estimate.mean:,.0f}"
