"""``mem-agent sifter-table RESULTS``: how well every method finds sessions and answers questions, in one table.

Reads the stages' files below RESULTS (their ``--output-dir``), prints Markdown, and writes
``RESULTS/sifter.json``, which ``mem-agent report RESULTS`` shows. Methods on the same data set:

    an embedding model     its order of similarity alone; the first one by name is what others are compared with
    bm25                   words in common, computed here (``--no-bm25`` leaves it out: 500 sessions take seconds)
    a ranking model        the sessions it named, then the others by similarity; ``valid`` is the share of replies that
                           name them by the rules, ``kept`` and ``kept all`` what its pre-filter left of the gold
    full                   of answers only: everything that fits, in the order of time; as a ranking it is none

Exit codes: 0 all read, 1 nothing to read or a broken file, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ...evaluation.statistics import Estimate
from ...system.errors import MemAgentError
from ...system.one_line_errors import one_line_errors
from ...system.signals import stop_on_signals
from ...system.text import markdown_table
from ..files import CHAT, EMBED, MEMORY, RANKING
from .question_scores import ANSWER_SCORES, KEPT, KEPT_ALL, RANKING_SCORES, VALID
from .score_lines import (
    ANSWERS,
    FILE,
    RETRIEVAL,
    Line,
    Run,
    SifterScores,
    Versus,
    costs_of,
    lines_of,
    names_of,
    versus,
    write_scores,
)
from .scored_files import answer_run, bm25_run, embedding_run, ranking_run, stage_files

ORDER = {RETRIEVAL: (*RANKING_SCORES, VALID, KEPT, KEPT_ALL), ANSWERS: ANSWER_SCORES}
HEADINGS = {
    **{name: name.replace("ndcg", "NDCG").replace("mrr", "MRR") for name in RANKING_SCORES}, VALID: "valid",
    KEPT: "kept", KEPT_ALL: "kept all", "f1": "F1", "em": "EM", "option": "right option",
}
TITLES = {RETRIEVAL: "Sessions found", ANSWERS: "Questions answered"}
WORDS = ("data", "chat model", "method", "type", "against", "score")


@one_line_errors("the same command makes the table")
def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    scores = sifter_scores(
        options.results, options.datasets.split(), options.splits.split(), with_bm25=not options.no_bm25
    )
    write_scores(options.results / FILE, scores)
    print(markdown(scores))
    print(options.results / FILE)
    return 0


def sifter_scores(
    results: Path, datasets: Sequence[str] = (), splits: Sequence[str] = (), *, with_bm25: bool = True
) -> SifterScores:
    """Of all files below a folder. Raises MemAgentError where there are none."""
    embedded, ranked, others, chats = (
        stage_files(results, kind, datasets, splits) for kind in (EMBED, RANKING, MEMORY, CHAT)
    )
    methods = {file.name for file in (*embedded, *ranked, *others)}
    files = [*embedded, *ranked, *chats]
    if not files:
        raise MemAgentError(f"{results}: no *_embed, *_ranking or *_chat.parquet of a stage; mem-agent "
                            "session-embedding makes the first")
    expected = {part: max(file.rows for file in files if file.part == part) for part in {file.part for file in files}}
    runs: list[Run] = []
    for part in sorted(expected):
        own = [file for file in embedded if file.part == part]
        runs += map(embedding_run, own)
        texts = [*own, *(file for file in ranked if file.part == part)]
        runs += [bm25_run(texts[0])] if with_bm25 and texts else []
        runs += [ranking_run(file) for file in ranked if file.part == part]
        answers = [answer_run(file, methods) for file in chats if file.part == part]
        runs += _answers(answers, [file.name for file in own])
    lines = [line for run in runs for line in lines_of(run, expected[run.part])]
    return SifterScores(tuple(lines), tuple(versus(runs)), tuple(_notes(lines)))


def _answers(runs: Sequence[Run], embedding: Sequence[str]) -> list[Run]:
    """By chat model; the method of an embedding model first, as what others are compared with."""
    return sorted(runs, key=lambda run: (run.model, run.method not in embedding))


def _notes(lines: Sequence[Line]) -> list[str]:
    notes = []
    for line in lines:
        where = f"{line.part}, {f'{line.model}, ' if line.model else ''}{line.method}"
        if not line.kind and line.missing:
            notes.append(f"{where}: {line.missing} rows are missing; its means are over those that are there.")
        if not line.kind and not line.n:
            notes.append(f"{where}: no question could be scored; it has no gold sessions or no answers.")
    return notes


def markdown(scores: SifterScores) -> str:
    """One table for each measure, one of the types of questions, one of differences."""
    parts = []
    for measure in (RETRIEVAL, ANSWERS):
        for title, kinds in ((TITLES[measure], False), (f"{TITLES[measure]}, by type of question", True)):
            lines = [line for line in scores.lines if line.measure == measure and bool(line.kind) == kinds]
            if lines:
                parts.append(f"### {title}\n\n{markdown_table(*table_of(lines), WORDS)}\n")
    if scores.versus:
        parts.append(f"### Against the first method\n\n{markdown_table(*versus_table(scores.versus), WORDS)}\n")
    parts += [f"- {note}" for note in scores.notes] + [""] * bool(scores.notes)
    return "\n".join(parts)


def table_of(lines: Sequence[Line]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and cells of lines of one measure, all of a kind of question or none of them."""
    names = names_of(lines, ORDER[lines[0].measure])
    costs = costs_of(lines)
    kinds, models = any(line.kind for line in lines), any(line.model for line in lines)
    header = ("data", *["chat model"] * models, "method", *["type"] * kinds, "n", "failed",
              *["missing"] * (not kinds), *(HEADINGS.get(name, name) for name in names), *costs)
    rows = [
        (line.part, *[line.model] * models, line.method, *[line.kind] * kinds, str(line.n), str(line.failed),
         *[str(line.missing)] * (not kinds), *(cell(line.scores.get(name)) for name in names),
         *(cost(line.costs.get(name)) for name in costs))
        for line in lines
    ]
    return header, rows


def versus_table(found: Sequence[Versus]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    header = ("data", "chat model", "method", "against", "score", "difference", "p", "n")
    rows: list[tuple[str, ...]] = []
    for each in found:
        points = each.difference
        difference = f"{points.mean:+.1f} [{points.low:+.1f}, {points.high:+.1f}]"
        p = "≤0.001" if each.p < 0.001 else f"{each.p:.3f}"
        rows.append((each.part, each.model or "–", each.method, each.base, HEADINGS.get(each.metric, each.metric),
                     difference, p, str(points.n)))
    return header, rows


def cell(score: Estimate | None) -> str:
    """Percent and its interval; a dash where there is none."""
    return f"{score.mean:.1f} [{score.low:.1f}, {score.high:.1f}]" if score else "–"


def cost(estimate: Estimate | None) -> str:
    return f"{estimate.mean:,.0f}" if estimate else "–"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent sifter-table", description="Scores of the sifter's stages.")
    parser.add_argument("results", type=Path, nargs="?", default=Path("data/results"), metavar="RESULTS",
                        help="the stages' --output-dir (data/results)")
    parser.add_argument("--datasets", default="", metavar="NAMES", help="only these data sets, separated by blanks")
    parser.add_argument("--splits", default="", metavar="NAMES", help="only these splits, separated by blanks")
    parser.add_argument("--no-bm25", action="store_true", help="leave out BM25, which reads every history")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
