"""A whole evaluation in one number: the question is the unit over all lengths."""

from hypothesis import given
from hypothesis import strategies as st

from mem_agent.evaluation.overall import overall, overall_differences
from mem_agent.evaluation.results import Cell, Run, read_results, write_run
from mem_agent.evaluation.statistics import interval
from mem_agent.tests.helpers.fake_results import plain_row, write_rows


def evaluated(folder, scores):
    """``scores`` by file, and in it by question."""
    folder.mkdir()
    run = Run(model="m", mode="recurrent", settings={}, samples=1, data={name: f"d{name}" for name in scores},
              questions={name: len(each) for name, each in scores.items()})
    write_run(folder, run)
    for name, each in scores.items():
        write_rows(folder, name, [plain_row(q, s, length=name) for q, s in each.items()])
    return folder


def test_a_questions_lengths_are_averaged_before_anything_is_drawn(tmp_path):
    scores = {"50": {"q1": 1.0, "q2": 1.0}, "200": {"q1": 0.0, "q2": 1.0}}
    (run,) = read_results([evaluated(tmp_path / "r", scores)])
    (found,) = overall(run.cells)
    assert (found.metric, found.cells) == ("sub_em", ("50", "200"))
    assert found.found == interval([50.0, 100.0], full=100.0) and found.found.n == 2


def test_differences_are_over_the_answers_that_both_have(tmp_path):
    first = {"50": {"q1": 0.0, "q2": 1.0, "only": 1.0}, "200": {"q1": 0.0}}
    second = {"50": {"q1": 1.0, "q2": 1.0}, "400": {"q1": 0.0}}
    runs = read_results([evaluated(tmp_path / "a", first), evaluated(tmp_path / "b", second)])
    (found,) = overall_differences(*runs)
    assert (found.cells, found.found.first, found.found.second) == (("50",), 50.0, 100.0)
    assert found.found.difference.n == 2 and overall_differences(*reversed(runs))[0].found.difference.mean == -50.0


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 4))
def test_files_of_the_same_answers_say_no_more_than_one_of_them(tmp_path_factory, right, files):
    scores = {str(q): float(each) for q, each in enumerate(right)}
    names = [str(50 * 2**n) for n in range(files)]
    folder = evaluated(tmp_path_factory.mktemp("r") / "r", dict.fromkeys(names, scores))
    cells: tuple[Cell, ...] = read_results([folder])[0].cells
    (whole,), (one,) = overall(cells), overall(cells[:1])
    assert whole.found == one.found
