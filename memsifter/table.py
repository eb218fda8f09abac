"""``mem-agent sifter-table RESULTS``: how well every method finds sessions and answers questions, in one table.

Reads the stages' files below RESULTS (their ``--output-dir``), prints Markdown, and writes
``RESULTS/sifter.json``, which ``mem-agent report RESULTS`` shows::

    RESULTS/bge-m3/locomo_test_embed.parquet            the order of similarity; and of BM25, from its sessions
    RESULTS/my-ranker/locomo_test_ranking.parquet       what the model named, completed by similarity; with the share
                                                        of valid replies, and of gold that the pre-filter left
    RESULTS/gpt-x/my-ranker/locomo_test_chat.parquet    answers of the chat model gpt-x, under each method

Methods on the same data set:

    an embedding model     its order of similarity alone; the first one by name is what others are compared with
    bm25                   words in common, computed here (``--no-bm25`` leaves it out: 500 sessions take seconds)
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
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pyarrow.parquet as pq
from pydantic import TypeAdapter
from tqdm import tqdm

from ..data.rows import BATCH_ROWS
from ..evaluation.statistics import CONFIDENCE, RESAMPLES, Estimate, compare, interval, sign_flip_p
from ..rewards.ranking import ndcg_at, recall_at, reciprocal_rank
from ..rewards.text_f1 import answer_em, answer_f1, choice_score
from ..sessions.packing import by_score
from ..sessions.ranking import completed
from ..sessions.records import BadRow, question_of
from ..system.errors import MemAgentError, reason_of
from ..system.files import write_atomically
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from ..system.text import markdown_table
from .files import CHAT, EMBED, MEMORY, RANKING, read_rows
from .orders import bm25_order

FILE = "sifter.json"
"""What a folder of results has that a report can show."""
_FORM = 1
RETRIEVAL, ANSWERS = "retrieval", "answers"
MAIN = {RETRIEVAL: "ndcg@10", ANSWERS: "f1"}
"""The score that methods are compared by."""
CUTOFFS = (1, 5, 10)
RANKING_SCORES = (*(f"ndcg@{k}" for k in CUTOFFS), *(f"recall@{k}" for k in CUTOFFS), f"mrr@{CUTOFFS[-1]}")
VALID, KEPT, KEPT_ALL = "valid", "kept", "kept_all"
ORDER = {RETRIEVAL: (*RANKING_SCORES, VALID, KEPT, KEPT_ALL), ANSWERS: ("f1", "em", "option")}
HEADINGS = {
    **{name: name.replace("ndcg", "NDCG").replace("mrr", "MRR") for name in RANKING_SCORES}, VALID: "valid",
    KEPT: "kept", KEPT_ALL: "kept all", "f1": "F1", "em": "EM", "option": "right option",
}
TITLES = {RETRIEVAL: "Sessions found", ANSWERS: "Questions answered"}
WORDS = ("data", "chat model", "method", "type", "against", "score")
BM25, SHOWN = "bm25", "tokens shown"
FEWEST_HISTORIES = 10
"""That a bootstrap over histories is made of."""
_OK = "ok"
_ALL = ("question_id", "question_type", "answer_session_ids", "haystack_session_ids")
_EMBED = (*_ALL, "similarities")
_RANKING = (*_EMBED, "haystack_session_gen_rankings", "ranking_error", "rank_status", "prefiltered_session_idx")
_CHAT = ("question_id", "question_type", "answer", "answers", "gold_answer", "all_options", "predicted_answer",
         "api_status", "shown_tokens")
_BM25 = (*_ALL, "question", "answer", "haystack_sessions", "haystack_dates", "language")
_HISTORY_NAMES = ("sample_id", "shared_context_id")
"""Columns that name the history of a row, where a question sees a part of it."""


# --- what is in sifter.json ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    content = {"sifter": _FORM, **asdict(scores)}
    write_atomically(path, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_scores(path: Path) -> SifterScores:
    """Raises MemAgentError where the file is none of these, or of another form."""
    try:
        found = orjson.loads(path.read_bytes())
        if found["sifter"] != _FORM:
            raise ValueError(f"form {found['sifter']!r}, expected {_FORM}")
        return TypeAdapter(SifterScores).validate_python(found)
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = reason_of(error)
        raise MemAgentError(f"{path}: not the scores of mem-agent sifter-table ({reason}); run it again") from None


# --- one question ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scored:
    """What a row is worth: shares, 1 at best; none where nothing can be said."""

    scores: Mapping[str, float]
    """SHOWN, of an answer, among them."""
    failed: bool = False


_FAILED = Scored({}, True)


def by_similarity(row: Mapping[str, Any]) -> Scored:
    """Of a row of stage 1, or of stage 2, which has its columns."""
    similar = _similar(row)
    return Scored(ranking_scores(similar, gold_positions(row))) if similar is not None else _FAILED


def by_words(where: str, row: Mapping[str, Any]) -> Scored:
    """By BM25; ``where`` names the file."""
    gold = gold_positions(row)
    try:
        return Scored(ranking_scores(bm25_order(question_of(row, where)), gold) if gold else {})
    except BadRow:
        return _FAILED


def by_model(row: Mapping[str, Any]) -> Scored:
    """Of a row of stage 2: what the model named, then the others by similarity."""
    gold, similar = gold_positions(row), _similar(row)
    failed = row.get("rank_status") != _OK
    if similar is None:
        return _FAILED
    scores = ranking_scores(completed(row.get("haystack_session_gen_rankings") or (), similar), gold)
    scores[VALID] = float(not failed and not row.get("ranking_error"))
    kept = row.get("prefiltered_session_idx")
    if gold and (kept or (kept is not None and not failed)):  # a row may fail before anything is filtered
        share = len(set(gold) & set(kept)) / len(gold)
        scores |= {KEPT: share, KEPT_ALL: float(share == 1)}
    return Scored(scores, failed)


def by_answer(row: Mapping[str, Any]) -> Scored:
    """Of a row of stage 3. A failed answer is worth 0, as everywhere in this pack."""
    failed = row.get("api_status") != _OK
    answers = [answer for answer in row.get("answers") or () if answer and answer.strip()]
    single = next((str(row[name]) for name in ("answer", "gold_answer") if str(row.get(name) or "").strip()), "")
    answers = answers or [single] * bool(single)
    predicted = None if failed else row.get("predicted_answer") or ""
    scores = answer_scores(predicted, answers, row.get("all_options") or ())
    if isinstance(row.get("shown_tokens"), int) and not failed:
        scores[SHOWN] = float(row["shown_tokens"])
    return Scored(scores, failed)


def ranking_scores(order: Sequence[int], gold: Sequence[int]) -> dict[str, float]:
    """RANKING_SCORES of positions, best first."""
    if not gold:
        return {}
    return {
        **{f"ndcg@{k}": ndcg_at(order, gold, k) for k in CUTOFFS},
        **{f"recall@{k}": recall_at(order, gold, k) for k in CUTOFFS},
        f"mrr@{CUTOFFS[-1]}": reciprocal_rank(order, gold, CUTOFFS[-1]),
    }


def answer_scores(answer: str | None, answers: Sequence[str], options: Sequence[str]) -> dict[str, float]:
    """``f1`` and ``em``; of a multiple-choice question ``option``, whether the right one is chosen, as well.

    ``answer`` is None where there is no reply.
    """
    if not answers:
        return {}
    scores = {"f1": answer_f1(answer, answers), "em": answer_em(answer, answers)}
    chosen = choice_score(answer, answers, options)
    return scores if chosen is None else scores | {"option": chosen}


def gold_positions(row: Mapping[str, Any]) -> list[int]:
    """Where the gold sessions stand in the history, ascending; ids that the history has not are no positions."""
    gold = set(map(str, row.get("answer_session_ids") or ()))
    return [position for position, id in enumerate(row.get("haystack_session_ids") or ()) if str(id) in gold]


def _similar(row: Mapping[str, Any]) -> list[int] | None:
    """Positions by similarity; None where stage 1 has not as many as there are sessions."""
    similarities = row.get("similarities")
    if similarities is None or len(similarities) != len(row.get("haystack_session_ids") or ()):
        return None
    return by_score(similarities)


# --- the files -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StageFile:
    path: Path
    part: str
    """``locomo/test``."""
    names: tuple[str, ...]
    """The folders above it: the model; or chat model and method."""
    rows: int

    @property
    def name(self) -> str:
        """The model's, which may have slashes."""
        return "/".join(self.names)


def stage_files(results: Path, kind: str, datasets: Sequence[str] = (), splits: Sequence[str] = ()) -> list[StageFile]:
    """The finished files of a stage below a folder, by name; of these data sets and splits where some are named.

    Raises MemAgentError where one is no table.
    """
    found = []
    for path in sorted(results.rglob(f"*_{kind}.parquet")):
        folders = path.relative_to(results).parts[:-1]
        if not folders or any(name.endswith(".parts") for name in folders):
            continue
        try:
            footer = pq.read_metadata(path)
        except (OSError, ValueError) as error:
            raise MemAgentError(f"{path}: no parquet file, or a damaged one ({reason_of(error)})") from None
        said = (footer.metadata or {}).get(b"mem_agent.data", b"").decode()
        name = path.name.removesuffix(f"_{kind}.parquet")
        dataset, split = said.rsplit("/", 1) if said else _divided(name, datasets, splits)
        if dataset and (not datasets or dataset in datasets) and (not splits or split in splits):
            found.append(StageFile(path, f"{dataset}/{split}", folders, footer.num_rows))
    return found


def _divided(name: str, datasets: Sequence[str], splits: Sequence[str]) -> tuple[str, str]:
    """Data set and split of ``locomo_test``: one that is asked for; else the last word is the split."""
    for split in sorted(splits, key=len, reverse=True):
        if name.endswith(f"_{split}"):
            return name.removesuffix(f"_{split}"), split
    for dataset in sorted(datasets, key=len, reverse=True):
        if name.startswith(f"{dataset}_"):
            return dataset, name.removeprefix(f"{dataset}_")
    dataset, _, split = name.rpartition("_")
    return dataset, split


@dataclass(frozen=True, slots=True)
class Run:
    """All questions of one file, under one method."""

    measure: str
    part: str
    method: str
    model: str
    questions: pd.DataFrame
    """By id: ``kind``, ``failed``, ``history``, and a column of each score (a share) and cost; NaN where none is."""


def read_run(
    file: StageFile, measure: str, method: str, columns: Sequence[str],
    score: Callable[[Mapping[str, Any]], Scored], histories: Mapping[str, str], model: str = "",
) -> Run:
    """The questions of a file, read for these columns. Raises MemAgentError where an id repeats."""
    rows: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(_rows(file, columns, f"{file.part} {method}")):
        id = str(row.get("question_id") or number)
        if id in rows:
            raise MemAgentError(f"{file.path}: row {number} ({id}): a question_id repeats; give each question its own")
        found = score(row)
        kind = str(row.get("question_type") or "")
        rows[id] = {"kind": kind, "failed": found.failed, "history": histories.get(id, id), **found.scores}
    names = dict.fromkeys(chain(("kind", "failed", "history"), *rows.values()))
    return Run(measure, file.part, method, model, pd.DataFrame(list(rows.values()), list(rows), list(names)))


def answer_run(file: StageFile, methods: Collection[str], histories: Mapping[str, str]) -> Run:
    """Of a chat model's folder, and in it the longest name of ``methods``, as in gpt-x/BAAI/bge-m3, or one folder."""
    starts = range(1, len(file.names))
    start = next((n for n in starts if "/".join(file.names[n:]) in methods), len(file.names) - 1)
    model, method = "/".join(file.names[:start]), "/".join(file.names[start:])
    return read_run(file, ANSWERS, method, _CHAT, by_answer, histories, model)


def read_histories(file: StageFile) -> dict[str, str]:
    """The history of each question, by its id: its name, else a digest of its sessions."""
    found = {}
    for number, row in enumerate(_rows(file, ("question_id", "haystack_sessions", *_HISTORY_NAMES), file.part)):
        id = str(row.get("question_id") or number)
        digest = blake2b(str(row.get("haystack_sessions") or id).encode(), digest_size=16).hexdigest()
        found[id] = next((str(row[name]) for name in _HISTORY_NAMES if row.get(name)), digest)
    return found


def _rows(file: StageFile, columns: Sequence[str], describe: str) -> Iterator[dict[str, Any]]:
    rows = chain.from_iterable(read_rows(file.path, columns, BATCH_ROWS))
    for row in tqdm(rows, describe, file.rows, unit=" rows", disable=None, leave=False):
        stop_if_asked()
        yield row


# --- scores ----------------------------------------------------------------------------------------------------------


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
    lines: list[Line] = []
    compared: list[Versus] = []
    notes: list[str] = []
    for part in sorted({file.part for file in files}):
        longest = max((file for file in files if file.part == part), key=lambda file: file.rows)
        histories = read_histories(longest)
        own = [file for file in embedded if file.part == part]
        rankings = [file for file in ranked if file.part == part]
        runs = [read_run(file, RETRIEVAL, file.name, _EMBED, by_similarity, histories) for file in own]
        for file in [*own, *rankings][: int(with_bm25)]:
            runs.append(read_run(file, RETRIEVAL, BM25, _BM25, partial(by_words, str(file.path)), histories))
        runs += [read_run(file, RETRIEVAL, file.name, _RANKING, by_model, histories) for file in rankings]
        answered = [answer_run(file, methods, histories) for file in chats if file.part == part]
        # By chat model; the method of an embedding model first, as what others are compared with.
        runs += sorted(answered, key=lambda run: (run.model, run.method not in [file.name for file in own]))
        found = [line for run in runs for line in lines_of(run, longest.rows)]
        lines += found
        compared += versus(runs)
        notes += [*_missing(found), *_about_histories(part, runs[0].questions)]
    return SifterScores(tuple(lines), tuple(compared), tuple(notes))


def lines_of(run: Run, expected: int) -> list[Line]:
    """Of all questions, then of each kind, where there are several; ``expected`` rows should be there."""
    lines = [_line(run, "", run.questions, max(0, expected - len(run.questions)))]
    kinds = list(run.questions.groupby("kind"))
    if len(kinds) > 1:
        lines += [_line(run, str(kind) or "(none)", rows, 0) for kind, rows in kinds]
    return lines


def _line(run: Run, kind: str, rows: pd.DataFrame, missing: int) -> Line:
    names = [name for name in (*ORDER[run.measure], SHOWN) if name in rows and rows[name].notna().any()]
    scores = {name: estimate(100 * rows[name], rows["history"], full=100.0) for name in names if name != SHOWN}
    costs = {SHOWN: estimate(rows[SHOWN], rows["history"])} if SHOWN in names else {}
    main_score = scores.get(MAIN[run.measure])
    return Line(
        measure=run.measure, part=run.part, method=run.method, model=run.model, kind=kind, missing=missing,
        n=main_score.n if main_score else 0, failed=int(rows["failed"].sum()), scores=scores, costs=costs,
    )


def versus(runs: Sequence[Run]) -> list[Versus]:
    """Every run minus the first one of its measure and chat model; all are of one part."""
    bases: dict[tuple[str, str], Run] = {}
    found = []
    for run in runs:
        base = bases.setdefault((run.measure, run.model), run)
        metric = MAIN[run.measure]
        if base is run or metric not in base.questions or metric not in run.questions:
            continue
        first, second = (100 * each.questions[metric].dropna() for each in (base, run))
        differences = second.reindex(first.index).sub(first).dropna()
        if not len(differences):
            continue
        compared = compare(first.to_dict(), second.to_dict())
        difference, p = compared.difference, compared.p
        histories = base.questions["history"][differences.index]
        if _is_clustered(histories):
            difference = estimate(differences, histories)
            by_history = differences.groupby(histories).sum()
            p = sign_flip_p(by_history.to_numpy(), np.random.default_rng(0))
        found.append(Versus(
            measure=run.measure, part=run.part, model=run.model, method=run.method, base=base.method, metric=metric,
            difference=difference, p=p,
        ))
    return found


def estimate(values: pd.Series, histories: pd.Series, *, full: float | None = None) -> Estimate:
    """Mean and 95% interval of values by question, some of which may be NaN; ``full`` is a score's highest value."""
    values = values.dropna()
    histories = histories[values.index]
    if not _is_clustered(histories):
        return interval(values, full=full)
    groups = values.groupby(histories)
    sums, counts = groups.sum().to_numpy(), groups.size().to_numpy()
    mean = float(values.mean())
    if full is not None and mean in (0.0, full):  # no draw differs from another
        bound = interval([mean] * len(sums), full=full)
        return Estimate(mean, bound.low, bound.high, len(values))
    drawn = np.random.default_rng(0).multinomial(len(sums), [1 / len(sums)] * len(sums), size=RESAMPLES)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn @ sums / (drawn @ counts), [tail, 1 - tail])
    return Estimate(mean, min(mean, float(low)), max(mean, float(high)), len(values))


def _is_clustered(histories: pd.Series) -> bool:
    return FEWEST_HISTORIES <= histories.nunique() < len(histories)


def _missing(lines: Sequence[Line]) -> list[str]:
    notes = []
    for line in lines:
        where = f"{line.part}, {f'{line.model}, ' if line.model else ''}{line.method}"
        if not line.kind and line.missing:
            notes.append(f"{where}: {line.missing} rows are missing; its means are over those that are there.")
        if not line.kind and not line.n:
            notes.append(f"{where}: no question could be scored; it has no gold sessions or no answers.")
    return notes


def _about_histories(part: str, questions: pd.DataFrame) -> Iterator[str]:
    """Where questions share histories: how intervals are made, and of which types of questions they are not so."""
    count = questions["history"].nunique()
    told = f"{part}: {len(questions)} questions about {count} histories"
    if count < min(FEWEST_HISTORIES, len(questions)):
        yield (f"{told}, fewer than {FEWEST_HISTORIES}: intervals and p are over questions; they hold for these "
               "histories alone, and others may differ by more.")
    elif count < len(questions):
        few = [str(kind) or "(none)" for kind, rows in questions.groupby("kind")
               if rows["history"].nunique() < min(FEWEST_HISTORIES, len(rows))]
        other = f"; of the types with fewer than {FEWEST_HISTORIES} over questions ({', '.join(few)})" if few else ""
        yield f"{told}: intervals and p are over histories{other}."


# --- Markdown --------------------------------------------------------------------------------------------------------


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
    names = [name for name in ORDER[lines[0].measure] if any(name in line.scores for line in lines)]
    costs = list(dict.fromkeys(name for line in lines for name in line.costs))
    kinds, models = any(line.kind for line in lines), any(line.model for line in lines)
    header = ("data", *["chat model"] * models, "method", *["type"] * kinds, "n", "failed",
              *["missing"] * (not kinds), *(HEADINGS[name] for name in names), *costs)
    rows = [
        (line.part, *[line.model] * models, line.method, *[line.kind] * kinds, str(line.n), str(line.failed),
         *[str(line.missing)] * (not kinds), *(_percent(line.scores.get(name)) for name in names),
         *(f"{line.costs[name].mean:,.0f}" if name in line.costs else "–" for name in costs))
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
        rows.append((each.part, each.model or "–", each.method, each.base, HEADINGS[each.metric], difference, p,
                     str(points.n)))
    return header, rows


def _percent(score: Estimate | None) -> str:
    return f"{score.mean:.1f} [{score.low:.1f}, {score.high:.1f}]" if score else "–"


# --- the command -----------------------------------------------------------------------------------------------------


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
