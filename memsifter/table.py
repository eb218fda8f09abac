"""``mem-agent sifter-table RESULTS``: how well every method finds sessions and answers questions, in one table.

Reads the stages' files below RESULTS (their ``--output-dir``), prints Markdown, and writes
``RESULTS/sifter.json``, which ``mem-agent report RESULTS`` shows::

    RESULTS/bge-m3/locomo_test_embed.parquet            the order of similarity; and of BM25, from its sessions
    RESULTS/my-ranker/locomo_test_ranking.parquet       what the model named, completed by similarity; with the share
                                                        of valid replies, and of gold that the pre-filter left
    RESULTS/gpt-x/my-ranker/locomo_test_chat.parquet    answers of the chat model gpt-x, under each method

Methods on the same data set:

    an embedding model     its order of similarity alone; the first one by name is what others are compared with
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

and p flips the signs of a history's differences together. Of fewer histories no such interval can be told: it is over
questions, and a note says so.

Exit codes: 0 all read, 1 nothing to read or a broken file, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
import pandas as pd
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError

from ..evaluation.statistics import CONFIDENCE, RESAMPLES, Estimate, interval, sign_flip_p
from ..rewards.ranking import ndcg_at, recall_at, reciprocal_rank
from ..rewards.text_f1 import answer_em, answer_f1, choice_score
from ..sessions.packing import by_score
from ..sessions.ranking import completed
from ..sessions.records import answers_of, question_of
from ..system.errors import MemAgentError
from ..system.files import write_atomically
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from ..system.text import markdown_table
from .files import CHAT, EMBED, MEMORY, OK, RANKING, Row, read_rows
from .orders import BM25, bm25_order

FILE = "sifter.json"
"""What a folder of results has that a report can show."""
RETRIEVAL, ANSWERS = "retrieval", "answers"
MAIN = {RETRIEVAL: "ndcg@10", ANSWERS: "f1"}
"""The score that methods are compared by."""
SHOWN = "tokens shown"
_AT = [f"{name}@{k}" for name in ("ndcg", "recall") for k in (1, 5, 10)]
SCORES = {RETRIEVAL: (*_AT, "mrr@10", "valid", "kept", "kept_all"), ANSWERS: ("f1", "em", "option")}
HEADINGS = {**{name: name.replace("ndcg", "NDCG") for name in SCORES[RETRIEVAL]}, "mrr@10": "MRR@10",
            "kept_all": "kept all", "f1": "F1", "em": "EM", "option": "right option"}
TITLES = {RETRIEVAL: "Sessions found", ANSWERS: "Questions answered"}
WORDS = ("data", "chat model", "method", "type", "against", "score")
FEWEST_HISTORIES = 10
"""That a bootstrap over histories is made of."""
_HISTORY_NAMES = ("sample_id", "shared_context_id")
"""Columns that name the history of a row, where a question sees a part of it."""
COLUMNS = ("question_id", "question_type", "answer_session_ids", "haystack_session_ids", "similarities",
           "haystack_session_gen_rankings", "ranking_error", "rank_status", "prefiltered_session_idx", "answer",
           "answers", "gold_answer", "all_options", "predicted_answer", "api_status", "shown_tokens")
_OF_WORDS = (*COLUMNS, "question", "haystack_sessions", "haystack_dates", "language")


# --- what is in sifter.json ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """One method on one data set, over all questions or one type of them."""

    measure: str
    """RETRIEVAL or ANSWERS."""
    part: str
    """``locomo/test``."""
    method: str
    model: str
    """The chat model, of answers."""
    kind: str
    """Of the questions; empty for all."""
    n: int
    failed: int
    missing: int
    scores: Mapping[str, Estimate]
    costs: Mapping[str, Estimate] = field(default_factory=dict)
    """Over the rows that did not fail."""


@dataclass(frozen=True, slots=True)
class Versus:
    """A method minus the first one in MAIN, over the questions of both, in points."""

    measure: str
    part: str
    model: str
    method: str
    base: str
    metric: str
    difference: Estimate
    p: float


@dataclass(frozen=True, slots=True)
class SifterScores:
    lines: tuple[Line, ...] = ()
    versus: tuple[Versus, ...] = ()
    notes: tuple[str, ...] = ()
    """What makes the numbers less than they seem, one line each."""


def write_scores(path: Path, scores: SifterScores) -> None:
    write_atomically(path, orjson.dumps(asdict(scores), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_scores(path: Path) -> SifterScores:
    """Raises MemAgentError where the file is none of these."""
    try:
        return TypeAdapter(SifterScores).validate_json(path.read_bytes())
    except ValidationError:
        raise MemAgentError(f"{path}: not the scores of mem-agent sifter-table; run it again") from None


# --- one question ----------------------------------------------------------------------------------------------------
# Shares, 1 at best, by name, of what can be said; ``failed`` and SHOWN among them.


Score = Callable[[Row], dict[str, float]]


def by_order(row: Row, order: Sequence[int]) -> dict[str, float]:
    """Of positions, best first; a question without gold sessions has no scores."""
    gold = gold_positions(row)
    if not gold:
        return {"failed": 0.0}
    pairs = ((ndcg_at, "ndcg"), (recall_at, "recall"))
    found = {f"{name}@{k}": of(order, gold, k) for of, name in pairs for k in (1, 5, 10)}
    return {"failed": 0.0, **found, "mrr@10": reciprocal_rank(order, gold, 10)}


def by_similarity(row: Row) -> dict[str, float]:
    """Of a row of stage 1, or of stage 2, which has its columns."""
    return by_order(row, by_score(row["similarities"]))


def by_words(row: Row) -> dict[str, float]:
    """By BM25."""
    return by_order(row, bm25_order(question_of(row, "BM25")))


def by_model(row: Row) -> dict[str, float]:
    """Of a row of stage 2: what the model named, then the others by similarity."""
    answered, gold = row["rank_status"] == OK, gold_positions(row)
    scores = by_order(row, completed(row["haystack_session_gen_rankings"], by_score(row["similarities"])))
    scores |= {"failed": float(not answered), "valid": float(answered and not row.get("ranking_error"))}
    kept = row.get("prefiltered_session_idx") or ()
    if gold and (kept or answered):  # a row may fail before anything is filtered
        share = len(set(gold) & set(kept)) / len(gold)
        scores |= {"kept": share, "kept_all": float(share == 1)}
    return scores


def by_answer(row: Row) -> dict[str, float]:
    """Of a row of stage 3. A failed answer is worth 0, as everywhere in this pack."""
    answered, answers = row["api_status"] == OK, answers_of(row)
    said = row["predicted_answer"] if answered else None
    scores = {SHOWN: float(row["shown_tokens"])} if answered and row.get("shown_tokens") is not None else {}
    if answers:
        chosen = choice_score(said, answers, row.get("all_options") or ())
        scores |= {"f1": answer_f1(said, answers), "em": answer_em(said, answers)}
        scores |= {} if chosen is None else {"option": chosen}
    return {"failed": float(not answered), **scores}


def gold_positions(row: Row) -> list[int]:
    """Where the gold sessions stand in the history, ascending; ids that the history has not are no positions."""
    gold = set(map(str, row["answer_session_ids"] or ()))
    return [position for position, id in enumerate(row["haystack_session_ids"]) if str(id) in gold]


def summary(file: Path) -> str:
    """Of stage 2, in percent: valid replies, gold that was shown, and how far up gold is before and after."""
    rows = list(read_rows(file, COLUMNS))
    before, after = (100 * pd.DataFrame(list(map(score, rows))).mean() for score in (by_similarity, by_model))
    told = [f"{name} {after[name]:.1f}" for name in ("valid", "kept") if name in after]
    told += [f"{name} by similarity {before[name]:.1f} ranked {after[name]:.1f}"
             for name in ("recall@1", "recall@5", "recall@10", "ndcg@5") if name in after]
    return f"; in percent: {', '.join(told) or 'nothing'}"


# --- the files -------------------------------------------------------------------------------------------------------


class StageFile(NamedTuple):
    data: str
    """``locomo/test``."""
    name: str
    """The folders above it: the model, which may have slashes; or chat model and method."""
    path: Path


def stage_files(results: Path, kind: str, datasets: Collection[str] = (), splits: Collection[str] = ()
                ) -> list[StageFile]:
    """The files of a stage below a folder, by path; of these data sets and splits where some are named."""
    found = []
    for path in sorted(results.rglob(f"*_{kind}.parquet")):
        dataset, _, split = path.name.removesuffix(f"_{kind}.parquet").rpartition("_")
        name = "/".join(path.relative_to(results).parts[:-1])
        if name and dataset and dataset in (datasets or [dataset]) and split in (splits or [split]):
            found.append(StageFile(f"{dataset}/{split}", name, path))
    return found


class Run(NamedTuple):
    """All questions of one file, under one method."""

    measure: str
    data: str
    method: str
    model: str
    questions: pd.DataFrame
    """By id: ``kind``, ``history``, ``failed``, and a column of each score (a share) and cost; NaN where none is."""


def read_run(
    histories: Mapping[str, str], file: StageFile, measure: str, method: str, score: Score, model: str = ""
) -> Run:
    """Raises MemAgentError where an id repeats."""
    rows = {}
    for number, row in enumerate(read_rows(file.path, _OF_WORDS if score is by_words else COLUMNS)):
        id = str(row.get("question_id") or number)
        if id in rows:
            raise MemAgentError(f"{file.path}: row {number} ({id}): a question_id repeats; give each question its own")
        has_order = len(row.get("similarities") or ()) == len(row["haystack_session_ids"])
        scores = score(row) if measure == ANSWERS or has_order else {"failed": 1.0}
        rows[id] = {"kind": row.get("question_type") or "", "history": histories.get(id, id), **scores}
    return Run(measure, file.data, method, model, pd.DataFrame(list(rows.values()), list(rows)))


def read_histories(path: Path) -> dict[str, str]:
    """The history of each question, by its id: its name, else a digest of its sessions."""
    found = {}
    for number, row in enumerate(read_rows(path, ("question_id", "haystack_sessions", *_HISTORY_NAMES))):
        names = filter(None, map(row.get, _HISTORY_NAMES))
        digest = blake2b(str(row.get("haystack_sessions") or number).encode(), digest_size=16).hexdigest()
        found[str(row.get("question_id") or number)] = str(next(names, digest))
    return found


# --- scores ----------------------------------------------------------------------------------------------------------


def sifter_scores(results: Path, datasets: Collection[str] = (), splits: Collection[str] = ()) -> SifterScores:
    """Of all files below a folder. Raises MemAgentError where there are none."""
    files = {kind: stage_files(results, kind, datasets, splits) for kind in (EMBED, RANKING, MEMORY, CHAT)}
    methods = {file.name for kind in (EMBED, RANKING, MEMORY) for file in files[kind]}
    lines: list[Line] = []
    compared: list[Versus] = []
    notes: list[str] = []
    for data in sorted({file.data for kind in (EMBED, RANKING, CHAT) for file in files[kind]}):
        own, ranked, answers = ([file for file in files[kind] if file.data == data] for kind in (EMBED, RANKING, CHAT))
        rows, longest = max((pq.read_metadata(file.path).num_rows, file.path) for file in (*own, *ranked, *answers))
        read = partial(read_run, read_histories(longest))
        runs = [read(file, RETRIEVAL, file.name, by_similarity) for file in own]
        runs += [read(file, RETRIEVAL, BM25, by_words) for file in [*own, *ranked][:1]]
        runs += [read(file, RETRIEVAL, file.name, by_model) for file in ranked]
        answered = [read(file, ANSWERS, *_method_and_model(file.name, methods)) for file in answers]
        # By chat model; the method of an embedding model first, as what others are compared with.
        first = {file.name for file in own}
        runs += sorted(answered, key=lambda run: (run.model, run.method not in first))
        found = [line for run in runs for line in lines_of(run, rows)]
        lines += found
        compared += versus(runs)
        notes += [*_missing(found), *_about_histories(data, runs[0].questions)]
    if not lines:
        raise MemAgentError(f"{results}: no *_embed, *_ranking or *_chat.parquet; session-embedding makes one")
    return SifterScores(tuple(lines), tuple(compared), tuple(notes))


def _method_and_model(name: str, methods: Collection[str]) -> tuple[str, Score, str]:
    """Of a chat model's folder, and in it the longest name of ``methods``, as in gpt-x/BAAI/bge-m3, or one folder."""
    folders = name.split("/")
    ends = ["/".join(folders[start:]) for start in range(1, len(folders))]
    method = next((end for end in ends if end in methods), folders[-1])
    return method, by_answer, name.removesuffix(f"/{method}")


def lines_of(run: Run, expected: int) -> list[Line]:
    """Of all questions, then of each kind, where there are several; ``expected`` rows should be there."""
    kinds = [(str(kind) or "(none)", rows) for kind, rows in run.questions.groupby("kind")]
    lines = []
    for kind, rows in [("", run.questions), *(kinds if len(kinds) > 1 else [])]:
        found = {name: estimate(rows[name] if name == SHOWN else 100 * rows[name], rows["history"], name != SHOWN)
                 for name in (*SCORES[run.measure], SHOWN) if name in rows and rows[name].notna().any()}
        costs = {SHOWN: found.pop(SHOWN)} if SHOWN in found else {}
        n = found[MAIN[run.measure]].n if MAIN[run.measure] in found else 0
        missing = 0 if kind else max(0, expected - len(rows))
        lines.append(Line(run.measure, run.data, run.method, run.model, kind, n, int(rows["failed"].sum()), missing,
                          found, costs))
    return lines


def versus(runs: Sequence[Run]) -> list[Versus]:
    """Every run minus the first one of its measure and chat model; all are of one data set and split."""
    bases: dict[tuple[str, str], Run] = {}
    found = []
    for run in runs:
        base = bases.setdefault((run.measure, run.model), run)
        metric = MAIN[run.measure]
        if base is run or metric not in base.questions or metric not in run.questions:
            continue
        differences = (100 * (run.questions[metric] - base.questions[metric])).dropna()
        if differences.empty:
            continue
        histories = base.questions["history"][differences.index]
        alike = differences.groupby(histories).sum() if _is_clustered(histories) else differences
        p = sign_flip_p(alike.round(9).to_numpy(), np.random.default_rng(0))
        difference = estimate(differences, histories, False)
        found.append(Versus(run.measure, run.data, run.model, run.method, base.method, metric, difference, p))
    return found


def estimate(values: pd.Series, histories: pd.Series, percent: bool) -> Estimate:
    """Mean and 95% interval of values by question, some of which may be NaN."""
    values, full = values.dropna(), 100.0 if percent else None
    histories = histories[values.index]
    if not _is_clustered(histories):
        return interval(values, full=full)
    groups = values.groupby(histories)
    sums, counts = groups.sum().to_numpy(), groups.size().to_numpy()
    mean = float(values.mean())
    if percent and mean in (0.0, 100.0):  # no draw differs from another
        bound = interval([mean] * len(sums), full=full)
        return Estimate(mean, bound.low, bound.high, len(values))
    drawn = np.random.default_rng(0).multinomial(len(sums), [1 / len(sums)] * len(sums), size=RESAMPLES)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn @ sums / (drawn @ counts), [tail, 1 - tail])
    return Estimate(mean, min(mean, float(low)), max(mean, float(high)), len(values))


def _is_clustered(histories: pd.Series) -> bool:
    return FEWEST_HISTORIES <= histories.nunique() < len(histories)


def _missing(lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        where = ", ".join(filter(None, (line.part, line.model, line.method)))
        if not line.kind and line.missing:
            yield f"{where}: {line.missing} rows are missing; its means are over those that are there."
        if not line.kind and not line.n:
            yield f"{where}: no question could be scored; it has no gold sessions or no answers."


def _about_histories(data: str, questions: pd.DataFrame) -> Iterator[str]:
    """Where questions share histories: how intervals are made, and of which types of questions they are not so."""
    count = questions["history"].nunique()
    told = f"{data}: {len(questions)} questions about {count} histories"
    few = [str(kind) or "(none)" for kind, rows in questions.groupby("kind") if not _is_clustered(rows["history"])]
    if count < min(FEWEST_HISTORIES, len(questions)):
        yield (f"{told}, fewer than {FEWEST_HISTORIES}: intervals and p are over questions; they hold for these "
               "histories alone, and others may differ by more.")
    elif count < len(questions):
        other = f"; of the types {', '.join(few)} over questions" * bool(few)
        yield f"{told}: intervals and p are over histories{other}."


# --- Markdown --------------------------------------------------------------------------------------------------------


def markdown(scores: SifterScores) -> str:
    """One table for each measure, one of the types of questions, one of differences."""
    parts = []
    for measure, title in TITLES.items():
        for by_type, ending in ((False, ""), (True, ", by type of question")):
            lines = [line for line in scores.lines if line.measure == measure and bool(line.kind) == by_type]
            if lines:
                parts.append(f"### {title}{ending}\n\n{markdown_table(*table_of(lines), WORDS)}\n")
    if scores.versus:
        parts.append(f"### Against the first method\n\n{markdown_table(*versus_table(scores.versus), WORDS)}\n")
    return "\n".join([*parts, *(f"- {note}" for note in scores.notes), ""])


def table_of(lines: Sequence[Line]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and cells of lines of one measure, all of a kind of question or none of them."""
    rows = []
    for line in lines:
        row = {"data": line.part, "chat model": line.model, "method": line.method, "type": line.kind,
               "n": str(line.n), "failed": str(line.failed), "missing": "" if line.kind else str(line.missing)}
        for name in SCORES[line.measure]:
            score = line.scores.get(name)
            row[HEADINGS[name]] = f"{score.mean:.1f} [{score.low:.1f}, {score.high:.1f}]" if score else ""
        row[SHOWN] = f"{line.costs[SHOWN].mean:,.0f}" if SHOWN in line.costs else ""
        rows.append(row)
    header = tuple(name for name in rows[0] if any(row[name] for row in rows))
    return header, [tuple(row[name] or "–" for name in header) for row in rows]


def versus_table(found: Sequence[Versus]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows: list[tuple[str, ...]] = []
    for each in found:
        points = each.difference
        difference = f"{points.mean:+.1f} [{points.low:+.1f}, {points.high:+.1f}]"
        p = "≤0.001" if each.p < 0.001 else f"{each.p:.3f}"
        rows.append((each.part, each.model or "–", each.method, each.base, HEADINGS[each.metric], difference, p,
                     str(points.n)))
    return ("data", "chat model", "method", "against", "score", "difference", "p", "n"), rows


# --- the command -----------------------------------------------------------------------------------------------------


@one_line_errors("the same command makes the table")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent sifter-table", description="Scores of the sifter's stages.")
    parser.add_argument("results", type=Path, nargs="?", default=Path("data/results"), help="the stages' --output-dir")
    parser.add_argument("--datasets", default="", metavar="NAMES", help="only these, separated by blanks")
    parser.add_argument("--splits", default="", metavar="NAMES", help="only these, separated by blanks")
    given = parser.parse_args(argv)
    scores = sifter_scores(given.results, given.datasets.split(), given.splits.split())
    write_scores(given.results / FILE, scores)
    print(markdown(scores))
    print(given.results / FILE)
    return 0


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
