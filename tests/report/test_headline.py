"""What a headline says: the difference with its interval, of one evaluation or of none."""

import pytest

from mem_agent.evaluation.results import read_results
from mem_agent.report.headline import MOST, headlines
from mem_agent.tests.helpers.fake_results import plain_row, write_folder


def evaluated(tmp_path, **scores):
    """One folder for each name, with these scores of questions 0, 1, 2 ..."""
    return read_results([
        write_folder(tmp_path / name, [plain_row(str(q), score) for q, score in enumerate(each)])
        for name, each in scores.items()
    ])


@pytest.mark.parametrize(("second", "number", "reading", "said"), [
    ([1.0] * 40, "+100.0", "better", "after is better than before: 0.0% to 100.0% in sub_em, +100.0 points"),
    ([0.0] * 40, "+0.0", "no clear difference", "after and before: no clear difference: 0.0% to 0.0% in sub_em"),
    ([1.0] + [0.0] * 39, "+2.5", "no clear difference", "p = 1.0000 (lowest possible); 40 questions."),
])
def test_a_difference_is_read_off_its_interval(tmp_path, second, number, reading, said):
    (line,) = headlines(evaluated(tmp_path, before=[0.0] * 40, after=second), [])
    assert (line.number, line.reading) == (number, reading) and said in line.sentence


def test_a_p_at_its_floor_is_said_as_such(tmp_path):
    (line,) = headlines(evaluated(tmp_path, before=[1.0] * 40, after=[0.0] * 40), [])
    assert line.reading == "worse" and "p < 0.0001 (10,000 resamples)" in line.sentence


def test_one_evaluation_is_said_with_its_interval(tmp_path):
    (line,) = headlines(evaluated(tmp_path, only=[1.0] * 30 + [0.0] * 10), [])
    assert line.number == "75.0%" and "only: sub_em 75.0% with a 95% interval of " in line.sentence


def test_evaluations_of_other_data_are_not_compared(tmp_path):
    folders = [write_folder(tmp_path / data, [plain_row("a")], data=data) for data in ("x", "y")]
    (line,) = headlines(read_results(folders), [])
    assert line.number == "–" and "y and x have no answers to the same data" in line.sentence


def test_no_more_headlines_than_are_read(tmp_path):
    runs = evaluated(tmp_path, **{f"r{number}": [1.0, 0.0] for number in range(MOST + 3)})
    found = headlines(runs, [])
    assert len(found) == MOST + 1 and "2 more comparisons" in found[-1].sentence
