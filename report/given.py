"""Sorts what a user points at: training runs, result folders of evaluations, and the sifter's stages.

A training run brings the evaluations that it keeps; one that is named as well counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..memsifter.table import FILE, SifterScores, read_scores
from ..system.errors import MemAgentError
from .training_run import TrainingRun, between_rollouts, evaluations_in, is_training_run, read_training_runs


@dataclass(frozen=True, slots=True)
class Given:
    trained: Sequence[TrainingRun]
    results: Sequence[Path]
    """Folders of evaluations, of which nothing was read yet."""
    between: Sequence[Path]
    """Those of evaluations between rollouts, which are compared with nothing."""
    sifted: Sequence[tuple[str, SifterScores]]


def sorted_out(folders: Sequence[Path]) -> Given:
    """Raises MemAgentError where stages have no scores, or a run cannot be read."""
    for folder in folders:
        if not (folder / FILE).is_file() and next(folder.glob("*/*_embed.parquet"), None):
            raise MemAgentError(f"{folder}: stages without scores; mem-agent sifter-table {folder} makes them")
    sifted = [folder for folder in folders if (folder / FILE).is_file()]
    trained = list(dict.fromkeys(folder.resolve() for folder in folders if is_training_run(folder)))
    kept = [path for run in trained for path in evaluations_in(run)]
    known = {*trained, *kept}
    named = [folder for folder in folders if folder not in sifted and folder.resolve() not in known]
    compared = {folder.resolve() for folder in named}
    return Given(
        read_training_runs(trained), [*kept, *named],
        [path for run in trained for path in between_rollouts(run) if path not in compared],
        [(folder.resolve().name, read_scores(folder / FILE)) for folder in sifted],
    )
