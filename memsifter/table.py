"""``mem-agent sifter-table RESULTS``: how well every method finds sessions and answers questions, in one table.

Reads the stages' files below RESULTS (their ``--output-dir``) and prints Markdown; ``mem-agent report RESULTS`` has
the same tables::

    RESULTS/bge-m3/locomo_test_embed.parquet            the order of similarity; and of BM25, from its sessions
    RESULTS/my-ranker/locomo_test_ranking.parquet       what the model named, completed by similarity; with the share
                                                        of valid replies, and of gold that the pre-filter left
    RESULTS/gpt-x/my-ranker/locomo_test_chat.parquet    answers of the chat model gpt-x, under each method

Methods on the same data set:

    an embedding model     its order of similarity alone
    bm25                   words in common, computed here
    a ranking model        the sessions it named, then the others by similarity; ``valid`` is the share of replies that
                           name them by the rules, ``kept`` and ``kept all`` what its pre-filter left of the gold
    full                   of answers only: everything that fits, in the order of time; as a ranking it is none

Scores are percent with 95% bootstrap intervals, costs plain numbers. A failed row counts as it stands: a ranking that
failed is the order of similarity, an answer that failed is wrong. A question without gold sessions has no ranking
scores, and one without answers no answer scores; ``n`` says how many questions a line's scores are over.

Questions about one history are not independent. Where several share histories and there are at least ten histories,
histories are resampled, with all their questions::

    questions 1 0 of history A, 1 of B, 0 of C      mean 0.5
    one draw: three histories with replacement, say A A B -> (1 + 0 + 1 + 0 + 1) / 5 = 0.6

Of fewer histories no such interval can be told: it is over questions, and a note says so.

Exit codes: 0 all read, 1 nothing to read or a broken file, 130 interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from ..agents.recall import WordCounter, bm25
from ..evaluation.statistics import CONFIDENCE, RESAMPLES, Estimate, interval
from ..rewards.ranking import ndcg_at, recall_at, reciprocal_rank
from ..rewards.sessions import HistoryQuestion, answers_of, by_score, completed, embedded_text, question_of
from ..rewards.text_f1 import answer_em, answer_f1, choice_score
from ..system.cli import one_line_errors
from ..system.errors import MemAgentError
from ..system.text import markdown_table
from .stages import CHAT, EMBED, OK, RANKING, Row, read_rows

BM25 = "bm25"
RETRIEVAL, ANSWERS = "retrieval", "answers"
MAIN = {RETRIEVAL: "NDCG@10", ANSWERS: "F1"}
"""The score that a method is judged by."""
SHOWN = "tokens shown"
SCORES = {
    RETRIEVAL: ("NDCG@1", "NDCG@5", "NDCG@10", "recall@1", "recall@5", "recall@10", "MRR@10", "valid", "kept"),
    ANSWERS: ("F1", "EM", "right option", SHOWN),
}
"""As columns are called; all but SHOWN in percent."""
TITLES = {RETRIEVAL: "Sessions found", ANSWERS: "Questions answered"}
WORDS = ("data", "chat model", "method")
FEWEST_HISTORIES = 10
"""That a bootstrap over histories is made of."""
_HISTORY_NAMES = ("sample_id", "shared_context_id")
"""Columns that name the history of a row, where a question sees a part of it."""


@dataclass(frozen=True, slots=True)
class Line:
    """One method on one data set."""

    measure: str
    """RETRIEVAL or ANSWERS."""
    part: str
    """``locomo/test``."""
    method: str
    model: str
    """The chat model, of answers."""
    n: int
    failed: int
    missing: int
    scores: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class SifterScores:
    """Of a folder of results."""

    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = ()
    """What makes the numbers less than they seem, one line each."""


# --- one question ----------------------------------------------------------------------------------------------------
# Shares, 1 at best, by name, of what can be said, else None; ``failed`` and SHOWN among them.


def by_order(row: Row, order: Sequence[int]) -> dict[str, float]:
    """Of positions, best first; a question without gold sessions has no scores."""
    if not (gold := gold_positions(row)):
        return {"failed": 0.0}
    pairs = ((ndcg_at, "NDCG"), (recall_at, "recall"))
    found = {f"{name}@{k}": of(order, gold, k) for of, name in pairs for k in (1, 5, 10)}
    return {"failed": 0.0, **found, "MRR@10": reciprocal_rank(order, gold, 10)}


def by_words(row: Row) -> dict[str, float]:
    return by_order(row, bm25_order(question_of(row, BM25)))


def by_model(row: Row) -> dict[str, float]:
    """Of a row of stage 2: what the model named, then the others by similarity."""
    answered, gold = row["rank_status"] == OK, {*gold_positions(row)}
    scores = by_order(row, completed(row["haystack_session_gen_rankings"], by_score(row["similarities"])))
    scores |= {"failed": float(not answered), "valid": float(answered and not row.get("ranking_error"))}
    kept = row.get("prefiltered_session_idx") or ()
    if gold and (kept or answered):  # a row may fail before anything is filtered
        scores["kept"] = len(gold & {*kept}) / len(gold)
    return scores


def by_answer(row: Row) -> dict[str, Any]:
    """Of a row of stage 3. A failed answer is worth 0, as everywhere in this pack."""
    answered, answers, scores = row["api_status"] == OK, answers_of(row), dict[str, Any]()
    said = row["predicted_answer"] if answered else None
    if answers:
        scores = {"F1": answer_f1(said, answers), "EM": answer_em(said, answers),
                  "right option": choice_score(said, answers, row.get("all_options") or ())}
    return {"failed": float(not answered), SHOWN: row["shown_tokens"] if answered else None, **scores}


def gold_positions(row: Row) -> list[int]:
    """Where the gold sessions stand in the history, ascending; ids that the history has not are no positions."""
    gold = set(map(str, row["answer_session_ids"] or ()))
    return [position for position, id in enumerate(row["haystack_session_ids"]) if str(id) in gold]


def bm25_order(asked: HistoryQuestion) -> list[int]:
    """Every session, best first; equal ones, such as all that share no word with the question, by time."""
    count = WordCounter()
    bags = [count(embedded_text(session)) for session in asked.sessions]
    return by_score(bm25(bags, count(asked.question))) if bags else []


# --- files -----------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """A stage's file under one method."""

    measure: str
    data: str
    method: str
    path: Path
    score: Callable[[Row], dict[str, Any]]
    model: str = ""


def find_runs(results: Path) -> list[Run]:
    """Of all files below a folder, by data set: embedding models, BM25, rankers, then answers by chat model."""
    embedded = [Run(RETRIEVAL, *file, lambda row: by_order(row, by_score(row["similarities"])))
                for file in stage_files(results, EMBED)]
    ranked = [Run(RETRIEVAL, *file, by_model) for file in stage_files(results, RANKING)]
    first = {run.data: run for run in reversed(embedded + ranked)}.values()
    words = [run._replace(method=BM25, score=by_words) for run in first]
    methods, answers = sorted({run.method for run in embedded + ranked}, key=len, reverse=True), []
    for data, name, path in stage_files(results, CHAT):  # gpt-x/BAAI/bge-m3: the longest method, or one folder
        method = next((each for each in methods if name.endswith(f"/{each}")), name.rpartition("/")[2])
        answers.append(Run(ANSWERS, data, method, path, by_answer, name.removesuffix(f"/{method}")))
    return sorted([*embedded, *words, *ranked, *answers], key=lambda run: run.data)


def stage_files(results: Path, kind: str) -> Iterator[tuple[str, str, Path]]:
    """``locomo/test``, the folders above, which name the model, and the path of each file, by path."""
    for path in sorted(results.rglob(f"*_{kind}.parquet")):
        dataset, _, split = path.name.removesuffix(f"_{kind}.parquet").rpartition("_")
        if path.parent != results:
            yield f"{dataset}/{split}", path.parent.relative_to(results).as_posix(), path


def sifter_scores(results: Path) -> SifterScores:
    """Of all files below a folder. Raises MemAgentError where there are none."""
    if not (runs := find_runs(results)):
        raise MemAgentError(f"{results}: no *_embed, *_ranking or *_chat.parquet; session-embedding makes one")
    longest = {run.data: run.path for run in sorted(runs, key=lambda run: pq.read_metadata(run.path).num_rows)}
    histories = {data: read_histories(path) for data, path in longest.items()}
    lines = tuple(line_of(run, histories[run.data]) for run in runs)
    return SifterScores(lines, tuple(notes_of(lines, histories)))


def read_histories(path: Path) -> dict[str, str]:
    """The history of each question, by its id: its name, else a digest of its sessions."""
    found = {}
    for number, row in enumerate(read_rows(path, ("question_id", "haystack_sessions", *_HISTORY_NAMES))):
        names = filter(None, map(row.get, _HISTORY_NAMES))
        digest = blake2b(str(row.get("haystack_sessions") or number).encode(), digest_size=16).hexdigest()
        found[str(row.get("question_id") or number)] = str(next(names, digest))
    return found


def line_of(run: Run, histories: Mapping[str, str]) -> Line:
    """``histories`` has every question of the data set. Raises MemAgentError where an id repeats."""
    light = [name for name in pq.read_schema(run.path).names if name != "haystack_sessions"]
    rows = {}
    for number, row in enumerate(read_rows(run.path, None if run.score is by_words else light)):
        id = str(row.get("question_id") or number)
        if id in rows:
            raise MemAgentError(f"{run.path}: row {number} ({id}): a question_id repeats; give each question its own")
        has_order = len(row.get("similarities") or ()) == len(row["haystack_session_ids"])
        rows[id] = run.score(row) if run.measure == ANSWERS or has_order else {"failed": 1.0}
    shares, history = pd.DataFrame(list(rows.values())), pd.Series([histories.get(id, id) for id in rows])
    scores = {name: estimate(shares[name] if name == SHOWN else 100 * shares[name], history, name != SHOWN)
              for name in SCORES[run.measure] if name in shares and shares[name].notna().any()}
    n = scores[MAIN[run.measure]].n if MAIN[run.measure] in scores else 0
    failed, missing = int(shares["failed"].sum()), max(0, len(histories) - len(rows))
    return Line(run.measure, run.data, run.method, run.model, n, failed, missing, scores)


def estimate(values: pd.Series, histories: pd.Series, percent: bool) -> Estimate:
    """Mean and 95% interval of values by question, some of which may be NaN."""
    values, full = values.dropna(), 100.0 if percent else None
    groups, mean = values.groupby(histories[values.index]), float(values.mean())
    sums, counts = groups.sum().to_numpy(), groups.size().to_numpy()
    if not FEWEST_HISTORIES <= len(sums) < len(values):
        return interval(values, full=full)
    if percent and mean in (0.0, 100.0):  # no draw differs from another
        bound = interval([mean] * len(sums), full=full)
        return Estimate(mean, bound.low, bound.high, len(values))
    drawn = np.random.default_rng(0).multinomial(len(sums), [1 / len(sums)] * len(sums), size=RESAMPLES)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn @ sums / (drawn @ counts), [tail, 1 - tail])
    return Estimate(mean, min(mean, float(low)), max(mean, float(high)), len(values))


def notes_of(lines: Sequence[Line], histories: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """What is not there, and how intervals are made where questions share histories."""
    for line in lines:
        where = ", ".join(filter(None, (line.part, line.model, line.method)))
        if line.missing:
            yield f"{where}: {line.missing} rows are missing; its means are over those that are there."
        if not line.n:
            yield f"{where}: no question could be scored; it has no gold sessions or no answers."
    for data, of_questions in histories.items():
        questions, count = len(of_questions), len({*of_questions.values()})
        over = "histories"
        if count < FEWEST_HISTORIES:
            over = f"questions, as histories are fewer than {FEWEST_HISTORIES}; others may differ by more"
        if count < questions:
            yield f"{data}: {questions} questions about {count} histories: intervals are over {over}."


# --- Markdown --------------------------------------------------------------------------------------------------------


def markdown(scores: SifterScores) -> str:
    """One table for each measure, and the notes."""
    measures = {measure: [line for line in scores.lines if line.measure == measure] for measure in TITLES}
    parts = [f"### {TITLES[measure]}\n\n{markdown_table(*table_of(lines), WORDS)}\n"
             for measure, lines in measures.items() if lines]
    return "\n".join([*parts, *(f"- {note}" for note in scores.notes), ""])


def table_of(lines: Sequence[Line]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and cells of lines of one measure."""
    rows = []
    for line in lines:
        row = {"data": line.part, "chat model": line.model, "method": line.method, "n": str(line.n),
               "failed": str(line.failed), "missing": str(line.missing)}
        for name in SCORES[line.measure]:
            score = line.scores.get(name)
            row[name] = f"{score.mean:.1f} [{score.low:.1f}, {score.high:.1f}]" if score else ""
        if shown := line.scores.get(SHOWN):
            row[SHOWN] = f"{shown.mean:,.0f}"
        rows.append(row)
    header = tuple(name for name in rows[0] if any(row[name] for row in rows))
    return header, [tuple(row[name] or "–" for name in header) for row in rows]


@one_line_errors("the same command makes the table")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent sifter-table", description="Scores of the sifter's stages.")
    parser.add_argument("results", type=Path, nargs="?", default=Path("data/results"), help="the stages' --output-dir")
    given = parser.parse_args(argv)
    print(markdown(sifter_scores(given.results)))
    return 0
