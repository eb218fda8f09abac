"""The questions of one round: which rows of which files are trained and tested, and what each becomes.

Every file is read twice, a few rows at a time: once to look at each question and choose, once to make the rows of the
chosen ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ...data.sources import open_file
from ...rewards.ranking import anchor_score
from ...sessions.packing import by_score
from ...sessions.records import BadRow, HistoryQuestion, question_of
from ...system.errors import MemAgentError
from ...system.signals import stop_if_asked
from .data_recipe import SPLITS, DataRecipe
from .rank_rows import Counted, Prompting, RankRow, Unusable, check_usable, rank_row
from .row_choice import Candidate, in_order


class NoInput(MemAgentError):
    """A data set of the recipe has no file; names what was looked for."""


@dataclass(frozen=True, slots=True)
class Input:
    """One file of a data set and split."""

    dataset: str
    split: str
    wanted: int
    path: Path
    anchored: bool
    """Chosen by the last ranking, not at random."""

    @property
    def ranked(self) -> bool:
        return self.path.name.endswith("_ranking.parquet")


@dataclass(slots=True)
class Told:
    """What became of the rows of one input."""

    dataset: str
    split: str
    wanted: int
    sampling: str
    rows: int = 0
    chosen: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, why: Unusable) -> None:
        self.left_out[str(why)] = self.left_out.get(str(why), 0) + 1

    def line(self) -> str:
        few = f", fewer than the {self.wanted} wanted: all that can be used" if self.chosen < self.wanted else ""
        out = "".join(f", {count} left out ({why})" for why, count in sorted(self.left_out.items()))
        return f"{self.dataset} {self.split}: {self.chosen} of {self.rows} rows, {self.sampling}{few}{out}"


class Tested:
    """Questions of test files, by id within a data set and by text in all."""

    def __init__(self) -> None:
        self._ids: set[tuple[str, str]] = set()
        self._texts: set[str] = set()

    def add(self, dataset: str, asked: HistoryQuestion) -> None:
        self._ids.add((dataset, asked.id))
        self._texts.add(_plain(asked.question))

    def has(self, dataset: str, asked: HistoryQuestion) -> bool:
        return (dataset, asked.id) in self._ids or _plain(asked.question) in self._texts


def _plain(question: str) -> str:
    return " ".join(question.casefold().split())


@dataclass(frozen=True, slots=True)
class _Asked:
    """A row of a file as it is read."""

    number: int
    question: HistoryQuestion | None
    """None: the row is bad."""
    row: Mapping[str, Any]


def find_inputs(
    recipe: DataRecipe, primary: Path | None, fallback: Path | None, *, anchored_test: bool
) -> Iterator[Input]:
    """The file of every data set and split, those of the test first. Raises NoInput."""
    for split in reversed(SPLITS):
        for dataset, wanted in recipe.of(split).items():
            places = [folder / f"{dataset}_{split}_{kind}.parquet"
                      for folder, kind in ((primary, "ranking"), (fallback, "embed")) if folder]
            found = next((path for path in places if path.is_file()), None)
            if found is None:
                looked = " nor ".join(map(str, places)) or "file: --primary-data-dir or --fallback-data-dir is needed"
                raise NoInput(f"{dataset}: no {looked}; embed its sessions first, or leave it out of the recipe")
            ranked = found.name.endswith("_ranking.parquet")
            yield Input(dataset, split, wanted, found, ranked and (split == "train" or anchored_test))


def usable_rows(each: Input, prompting: Prompting, tested: Tested, *, seed: int) -> tuple[Told, list[int]]:
    """The numbers of the rows that can be taken, first those to take first; test questions are noted in ``tested``,
    taken or not.
    """
    told = Told(each.dataset, each.split, each.wanted, "by the last ranking" if each.anchored else "at random")
    candidates: list[Candidate] = []
    seen: set[str] = set()
    for asked in _read(each):
        told.rows += 1
        try:
            question = _usable(each, asked, seen, tested, prompting)
            score = _score(question, asked.row) if each.anchored else None
            candidates.append(Candidate(asked.number, question.id, score))
        except Unusable as why:
            told.leave_out(why)
    ordered = in_order(candidates, seed=seed, dataset=each.dataset, anchored=each.anchored)
    return told, [candidate.number for candidate in ordered]


def made_rows(
    each: Input, order: Sequence[int], prompting: Prompting, told: Told, *, recount: bool
) -> Iterator[RankRow]:
    """The rows that are wanted, the first of ``order``, in the file's order.

    One whose whole prompt, counted at last, leaves no room for its gold is left out, and ``told`` so; the next of
    ``order`` takes its place, for which the file is read once more.
    """
    waiting = iter(order)
    while numbers := frozenset(islice(waiting, each.wanted - told.chosen)):
        for asked in _read(each, numbers):
            question = asked.question
            assert question is not None, "only usable rows are in order"
            known = None if recount else _tokens(question, asked.row)
            tokens = known if known is not None else Counted(question, prompting)
            try:
                row = rank_row(each.dataset, question, _similarities(question, asked.row), tokens, prompting)
            except Unusable as why:
                told.leave_out(why)
                continue
            told.chosen += 1
            yield row


def _usable(
    each: Input, asked: _Asked, seen: set[str], tested: Tested, prompting: Prompting
) -> HistoryQuestion:
    """The question of a row, noted. Raises Unusable."""
    question = asked.question
    if question is None:
        raise Unusable("bad row")
    if question.id in seen:
        raise Unusable("id repeated")
    if each.split == "train" and tested.has(each.dataset, question):
        raise Unusable("in a test file")
    seen.add(question.id)
    if each.split == "test":
        tested.add(each.dataset, question)
    check_usable(question, prompting)
    _similarities(question, asked.row)
    return question


def _read(each: Input, only: frozenset[int] | None = None) -> Iterator[_Asked]:
    """The rows of a file, all or some. Raises SourceError."""
    source = open_file(each.path)
    what = f"{each.dataset} {each.split}"
    for number, row in enumerate(tqdm(source.rows, what, source.total, unit=" rows", disable=None)):
        stop_if_asked()
        if only is not None and number not in only:
            continue
        fields = row.fields or {}  # none of a row that cannot be read: it is as bad as one without a question
        try:
            question = question_of(fields, str(each.path), number)
        except BadRow:
            question = None
        yield _Asked(number, question, fields)


def _tokens(question: HistoryQuestion, row: Mapping[str, Any]) -> list[int] | None:
    """As stage 1 counted them, None where it did not."""
    tokens = row.get("session_tokens")
    return None if tokens is None or None in tokens or len(tokens) != len(question.sessions) else tokens


def _similarities(question: HistoryQuestion, row: Mapping[str, Any]) -> list[float | None]:
    """Raises Unusable where there is not one for each session; a session whose own is empty comes last."""
    found = row.get("similarities")
    if found is None or len(found) != len(question.sessions):
        raise Unusable("no similarities")
    return found


def _score(question: HistoryQuestion, row: Mapping[str, Any]) -> float:
    """Of the last ranking; of the order by similarity, which is used in its place, where it names nothing."""
    named = row.get("haystack_session_gen_rankings") or ()
    ranking = list(dict.fromkeys(named)) or by_score(_similarities(question, row))
    return anchor_score(ranking, question.gold_positions)
