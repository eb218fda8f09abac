"""What rows say: means over all rows, intervals over questions, costs of what did not fail, memory by turn."""


import pytest

from mem_agent.evaluation.results import read_results
from mem_agent.evaluation.summary import (
    differences,
    summarise,
)
from mem_agent.tests.helpers.fake_results import plain_row, write_folder


def summaries_of(*folders):
    return [summarise(run.label, cell) for run in read_results(folders) for cell in run.cells]


def test_samples_of_a_question_are_averaged_before_questions(tmp_path):
    rows = [plain_row("a", 1.0, 0), plain_row("a", 0.0, 1), plain_row("b", 1.0, 0), plain_row("b", 1.0, 1)]
    (summary,) = summaries_of(write_folder(tmp_path / "run", rows, samples=2))
    assert (summary.questions, summary.rows, summary.scores["sub_em"].mean) == (2, 4, 75.0)
    assert summary.scores["sub_em"].low == 50.0


def test_pass_at_k_is_over_all_questions_with_the_same_intervals(tmp_path):
    """Of 4 answers to question a 1 is right, of those to b none, one of which failed."""
    rows = [plain_row("a", float(sample == 2), sample) for sample in range(4)]
    rows += [plain_row("b", 0.0, sample, failure="Timeout" if sample else None) for sample in range(4)]
    (summary,) = summaries_of(write_folder(tmp_path / "run", rows, samples=4))
    assert {k: (e.mean, e.n) for k, e in summary.passes.items()} == {1: (12.5, 2), 2: (25.0, 2), 4: (50.0, 2)}
    assert summary.passes[1] == summary.scores["sub_em"]
    assert (summary.passes[4].low, summary.passes[4].high) == (0.0, 100.0)


def test_pass_at_k_goes_as_far_as_every_question_has_answers(tmp_path):
    rows = [plain_row("a", 1.0, sample) for sample in range(4)] + [plain_row("b", 0.0, sample) for sample in range(3)]
    (summary,) = summaries_of(write_folder(tmp_path / "run", rows, samples=4))
    assert [*summary.passes] == [1, 2, 3] and summary.samples == 4
    (partial,) = summaries_of(write_folder(tmp_path / "parts", [plain_row("a", 0.5, s) for s in (0, 1)], samples=2))
    assert partial.passes == {} and partial.best
    (once,) = summaries_of(write_folder(tmp_path / "once", [plain_row("a")]))
    assert once.passes == {} and once.best is None


def test_failed_rows_count_in_scores_and_not_in_costs(tmp_path):
    rows = [plain_row("a"), plain_row("b", 0.0, failure="Timeout", seconds=900.0)]
    (summary,) = summaries_of(write_folder(tmp_path / "run", rows))
    assert summary.failed == 1
    assert summary.scores["em"].mean == 50.0
    assert summary.costs["seconds"].mean == 2.0


@pytest.mark.parametrize(("tokens", "dropped", "percent"), [
    (8000, 2000, 25.0), (8000, 0, 0.0), (8000, 8000, 100.0), (0, 0, None),
])
def test_a_share_of_a_document_that_none_has_is_none(tmp_path, tokens, dropped, percent):
    counts = {"document_tokens": tokens, "dropped_tokens": dropped}
    (summary,) = summaries_of(write_folder(tmp_path / "run", [plain_row("a", counts=counts)]))
    assert (summary.not_read.mean if summary.not_read else None) == percent


def test_missing_is_what_was_asked_for_and_has_no_row(tmp_path):
    rows = [plain_row("a"), plain_row("a", sample=1), plain_row("b", failure="Timeout")]
    (summary,) = summaries_of(write_folder(tmp_path / "run", rows, questions=4, samples=2))
    assert (summary.rows, summary.missing) == (3, 5)


def test_a_score_counts_where_every_row_has_it(tmp_path):
    without = {name: value for name, value in plain_row("b").items() if name != "f1"}
    (summary,) = summaries_of(write_folder(tmp_path / "run", [plain_row("a"), without]))
    assert set(summary.scores) == {"sub_em", "em", "sub_em_legacy"}


def test_memory_by_turn_is_pooled_in_doubling_ranges(tmp_path):
    memories = [{"tokens": t, "gold": g} for t, g in ((10, False), (20, False), (30, True), (50, False), (70, None))]
    (summary,) = summaries_of(write_folder(tmp_path / "run", [plain_row("a", memories=memories)]))
    found = [(t.name, t.first, t.tokens.mean, t.gold and t.gold.mean) for t in summary.turns]
    assert found == [("turn_1", 1, 10, 0), ("turn_2", 2, 20, 0), ("turn_3-4", 3, 40, 50), ("turn_5-8", 5, 70, None)]


def test_only_runs_of_the_same_data_are_subtracted(tmp_path):
    first = write_folder(tmp_path / "first", [plain_row("a"), plain_row("b", 0.0), plain_row("only here")])
    same = write_folder(tmp_path / "same", [plain_row("a"), plain_row("b")])
    other = write_folder(tmp_path / "other", [plain_row("a"), plain_row("b")], data="different")
    ((label, found),) = differences(read_results([first, same, other]))
    assert (label, found.metric, found.left_out) == ("same", "sub_em", 1)
    assert found.found.difference.mean == pytest.approx(50.0)


# --- names that rows choose -----------------------------------------------------------------------------------------
