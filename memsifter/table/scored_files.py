"""Reads the stages' files below a results folder, and scores their questions, a few rows in memory at a time.

::

    RESULTS/bge-m3/locomo_test_embed.parquet            the order of similarity; and of BM25, from its sessions
    RESULTS/my-ranker/locomo_test_ranking.parquet       what the model named, completed by similarity; with the share
                                                        of valid replies, and of gold that the pre-filter left
    RESULTS/gpt-x/my-ranker/locomo_test_chat.parquet    answers of the chat model gpt-x, under each method

A file is read for the columns that it needs, so that histories are loaded for BM25 alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...sessions.packing import by_score
from ...sessions.ranking import completed
from ...sessions.records import BadRow, question_of
from ...system.errors import MemAgentError
from ...system.signals import stop_if_asked
from ..files import data_of, open_table, read_rows
from ..orders import bm25_order
from .question_scores import VALID, answer_scores, gold_positions, prefilter_scores, ranking_scores
from .score_lines import ANSWERS, RETRIEVAL, Run, Scored

BM25, SHOWN = "bm25", "tokens shown"
_OK = "ok"
_ROWS = 32
"""Read at a time."""
_ALL = ("question_id", "question_type", "answer_session_ids", "haystack_session_ids")
_EMBED = (*_ALL, "similarities")
_RANKING = (*_EMBED, "haystack_session_gen_rankings", "ranking_error", "rank_status", "prefiltered_session_idx")
_CHAT = ("question_id", "question_type", "answer", "answers", "gold_answer", "all_options", "predicted_answer",
         "api_status", "shown_tokens")
_BM25 = (*_ALL, "question", "answer", "haystack_sessions", "haystack_dates", "language")


@dataclass(frozen=True, slots=True)
class _Score:
    """What a row is worth."""

    scores: Mapping[str, float]
    failed: bool = False
    costs: Mapping[str, float] = field(default_factory=dict)


_FAILED = _Score({}, True)


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
        dataset, split = _data(path, kind, datasets, splits)
        if dataset and (not datasets or dataset in datasets) and (not splits or split in splits):
            found.append(StageFile(path, f"{dataset}/{split}", folders, open_table(path).metadata.num_rows))
    return found


def _data(path: Path, kind: str, datasets: Sequence[str], splits: Sequence[str]) -> tuple[str, str]:
    """Data set and split: what the file says; else as its name divides into those that are asked for; else the last
    word is the split.
    """
    if said := data_of(path):
        dataset, _, split = said.rpartition("/")
        return dataset, split
    name = path.name.removesuffix(f"_{kind}.parquet")
    for split in sorted(splits, key=len, reverse=True):
        if name.endswith(f"_{split}"):
            return name.removesuffix(f"_{split}"), split
    for dataset in sorted(datasets, key=len, reverse=True):
        if name.startswith(f"{dataset}_"):
            return dataset, name.removeprefix(f"{dataset}_")
    dataset, _, split = name.rpartition("_")
    return dataset, split


def embedding_run(file: StageFile) -> Run:
    return _run(file, RETRIEVAL, file.name, _EMBED, by_similarity)


def bm25_run(file: StageFile) -> Run:
    return _run(file, RETRIEVAL, BM25, _BM25, partial(_by_words, str(file.path)))


def ranking_run(file: StageFile) -> Run:
    return _run(file, RETRIEVAL, file.name, _RANKING, by_model)


def answer_run(file: StageFile, methods: Collection[str]) -> Run:
    """Of a chat model's folder, and in it the longest name of ``methods``, as in gpt-x/BAAI/bge-m3, or one folder."""
    starts = range(1, len(file.names))
    start = next((n for n in starts if "/".join(file.names[n:]) in methods), len(file.names) - 1)
    run = _run(file, ANSWERS, "/".join(file.names[start:]), _CHAT, _answered)
    return replace(run, model="/".join(file.names[:start]))


def _run(
    file: StageFile, measure: str, method: str, columns: Sequence[str],
    score: Callable[[Mapping[str, Any]], _Score],
) -> Run:
    rows, seen = [], set[str]()
    for number, row in enumerate(_rows(file.path, columns, f"{file.part} {method}")):
        id = str(row.get("question_id") or number)
        if id in seen:
            raise MemAgentError(f"{file.path}: row {number} ({id}): a question_id repeats; give each question its own")
        seen.add(id)
        found = score(row)
        rows.append(Scored(id, str(row.get("question_type") or ""), found.scores, found.failed, found.costs))
    return Run(measure=measure, part=file.part, method=method, rows=rows)


def _rows(path: Path, columns: Sequence[str], describe: str) -> Iterator[dict[str, Any]]:
    total = open_table(path).metadata.num_rows
    with tqdm(total=total, unit=" rows", desc=describe, disable=None, leave=False) as progress:
        for rows in read_rows(path, columns, _ROWS):
            stop_if_asked()
            yield from rows
            progress.update(len(rows))


def by_similarity(row: Mapping[str, Any]) -> _Score:
    """Of a row of stage 1, or of stage 2, which has its columns."""
    similar = _similar(row)
    return _Score(ranking_scores(similar, gold_positions(row))) if similar is not None else _FAILED


def _by_words(where: str, row: Mapping[str, Any]) -> _Score:
    gold = gold_positions(row)
    try:
        return _Score(ranking_scores(bm25_order(question_of(row, where)), gold) if gold else {})
    except BadRow:
        return _FAILED


def by_model(row: Mapping[str, Any]) -> _Score:
    """Of a row of stage 2."""
    gold, similar = gold_positions(row), _similar(row)
    failed = row.get("rank_status") != _OK
    if similar is None:
        return _FAILED
    named = row.get("haystack_session_gen_rankings") or ()
    scores = ranking_scores(completed(named, similar), gold)
    scores[VALID] = float(not failed and not row.get("ranking_error"))
    kept = row.get("prefiltered_session_idx")
    if kept or (kept is not None and not failed):  # a row may fail before anything is filtered
        scores |= prefilter_scores(kept, gold)
    return _Score(scores, failed)


def _answered(row: Mapping[str, Any]) -> _Score:
    failed = row.get("api_status") != _OK
    answers = [answer for answer in row.get("answers") or () if answer and answer.strip()]
    single = next((str(row[name]) for name in ("answer", "gold_answer") if str(row.get(name) or "").strip()), "")
    answers = answers or [single] * bool(single)
    predicted = None if failed else row.get("predicted_answer") or ""
    scores = answer_scores(predicted, answers, row.get("all_options") or ())
    shown = row.get("shown_tokens")
    return _Score(scores, failed, {SHOWN: float(shown)} if isinstance(shown, int) else {})


def _similar(row: Mapping[str, Any]) -> list[int] | None:
    """Positions by similarity; None where stage 1 has not as many as there are sessions."""
    similarities = row.get("similarities")
    if similarities is None or len(similarities) != len(row.get("haystack_session_ids") or ()):
        return None
    return by_score(similarities)
