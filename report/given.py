"""Sorts what a user points at: training runs, result folders of evaluations, and the sifter's stages.

A training run brings the evaluations that it keeps; one that is named as well counts once, where it was named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..sifter.table.score_lines import FILE, SifterScores, read_scores
from ..system.errors import MemAgentError
from .training_run import TrainingRun, evaluations_in, is_training_run, read_training_runs


@dataclass(frozen=True, slots=True)
class Given:
    trained: Sequence[TrainingRun]
    results: Sequence[Path]
    """Folders of evaluations, of which nothing was read yet."""
    sifted: Sequence[tuple[str, SifterScores]]


def sorted_out(folders: Sequence[Path]) -> Given:
    """Raises MemAgentError where stages have no scores, or a run cannot be read."""
    for folder in folders:
        if not (folder / FILE).is_file() and next(folder.glob("*/*_embed.parquet"), None):
            raise MemAgentError(f"{folder}: stages without scores; mem-agent sifter-table {folder} makes them")
    sifted = [folder for folder in folders if (folder / FILE).is_file()]
    trained = list(dict.fromkeys(folder.resolve() for folder in folders if is_training_run(folder)))
    named = [folder for folder in folders if folder not in sifted and folder.resolve() not in trained]
    kept = [path for run in trained for path in evaluations_in(run) if path not in {f.resolve() for f in named}]
    return Given(
        read_training_runs(trained), [*kept, *named],
        [(folder.resolve().name, read_scores(folder / FILE)) for folder in sifted],
    )
