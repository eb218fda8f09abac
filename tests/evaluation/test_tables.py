"""Tables and comparisons: what is counted, what is refused."""

import pytest

from mem_agent import eval_ruler_hqa as ev
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.tables import comparison, failures, tables
from mem_agent.report.__main__ import main as report
from mem_agent.tests.helpers.fake_results import plain_row, write_folder


def accuracy_of(*outputs):
    return tables(outputs).split("\n\n")[0].splitlines()


def test_means_are_over_all_rows_and_intervals_over_questions(tmp_path):
    rows = [plain_row("a", 1.0), plain_row("a", 0.0, 1), plain_row("b", 1.0), plain_row("b", 1.0, 1),
            plain_row("c", 0.0, failure="timeout")]
    line = accuracy_of(write_folder(tmp_path / "r", rows, questions=4, samples=2))[2]
    # (0.5 + 1 + 0) / 3
    assert line.startswith("| r | 50 | 5 | 1 | 3 | 0.0% | 50.0 | 0.0 to ") and "| 50.0 | 50.0 | 50.0 |" in line
    # of q a: best of two draws from 0 and 1 is 1 in 3 of 4 cases; (0.75 + 1 + 0) / 3
    assert line.endswith("| 58.3 (k=2) |")


def test_pass_at_k_stands_beside_best_at_k_and_in_a_table_of_its_own(tmp_path):
    rows = [plain_row("a", float(sample == 0), sample) for sample in range(4)]
    rows += [plain_row("b", 1.0, sample) for sample in range(4)]
    accuracy, _, passes = tables([write_folder(tmp_path / "r", rows, samples=4)]).split("\n\n")
    # best of four draws with replacement: 1 - (3/4)^4 = 0.684
    assert accuracy.splitlines()[2].endswith("| 100.0 (k=4) | 84.2 (k=4) |")
    assert passes.splitlines()[0] == "| run | length | questions | pass@1 | pass@2 | pass@4 |"
    assert passes.splitlines()[2].startswith("| r | 50 | 2 | 62.5 (25.0 to 100.0) | 75.0 (50.0 to 100.0) | 100.0 (")


def test_what_a_task_measures_besides_has_a_table_with_intervals(tmp_path):
    modes = [{"strict": 1.0, "medium": 0.0}, {"strict": 0.0, "medium": 0.0}]
    common = ("em", "f1", "sub_em", "sub_em_legacy")
    rows = [
        {k: v for k, v in plain_row(name).items() if k not in common} | {"headline": "medium", "scores": scores}
        for name, scores in zip("ab", modes, strict=True)
    ]
    accuracy, own, _ = tables([write_folder(tmp_path / "r", rows, "gsm8k")]).split("\n\n")
    assert "| r | gsm8k | 2 | 0 | 0 | 0.0% | 0.0 | 0.0 to " in accuracy
    assert own.splitlines()[0] == "| run | length | medium | strict |"
    assert own.splitlines()[2].startswith("| r | gsm8k | 0.0 (0.0 to ") and own.endswith("| 50.0 (0.0 to 100.0) |")


def test_table_and_report_count_the_same_answers(tmp_path, capsys):
    """Half are missing; a quarter of one document was not read."""
    cut = {"turns": 3, "document_tokens": 8000, "dropped_tokens": 2000}
    folder = write_folder(tmp_path / "half", [plain_row("a", counts=cut), plain_row("b")], questions=4)
    assert ev.main(["--table", str(folder)]) == 0
    assert "| half | 50 | 2 | 0 | 2 | 12.5% | 100.0 |" in capsys.readouterr().out
    assert report([str(folder)]) == 0
    assert "2 answers are missing" in capsys.readouterr().out


def test_what_the_agents_did_is_over_questions_that_did_not_fail(tmp_path):
    def read(question, sample=0, failure=None, **counts):
        return plain_row(question, 1.0, sample, failure, counts={"updates": 9, "prompt_tokens": 9} | counts)

    revisit = [read("a", updates=1), read("a", 1, updates=2), read("b", updates=3), read("c", failure="timeout")]
    outputs = [write_folder(tmp_path / "re", revisit), write_folder(tmp_path / "mem", [plain_row("a")])]
    did = tables(outputs).split("\n\n")[1].splitlines()
    # (1 + 2) / 2 of one question and 3 of the other
    assert did[0] == "| run | length | updates | turns |"
    assert did[2:] == ["| re | 50 | 2.25 | - |", "| mem | 50 | - | 3.00 |"]


def test_a_comparison_is_paired_and_says_what_was_left_out(tmp_path, capsys):
    first = [plain_row(q, s) for q, s in (("1", 0.0), ("2", 0.0), ("3", 1.0), ("only a", 1.0))]
    second = [plain_row(q, s) for q, s in (("1", 1.0), ("2", 1.0), ("3", 1.0))]
    folders = [write_folder(tmp_path / "a", first), write_folder(tmp_path / "b", second)]
    assert ev.main(["--compare", *map(str, folders)]) == 0
    header, _, line = capsys.readouterr().out.splitlines()
    assert header == "| length | questions | left out | a | b | difference | 95% interval | p |"
    # Differences 1 1 0: two of four sign patterns are as far, p = 0.5.
    assert line.startswith("| 50 | 3 | 1 | 33.3 | 100.0 | +66.7 | ") and line.endswith(" | 0.5000 (lowest possible) |")


@pytest.mark.parametrize("other", [{"data": "b"}, {"stem": "100"}, {"rows": [plain_row("2")]}], ids=str)
def test_runs_of_other_data_are_not_compared(other, tmp_path):
    first = write_folder(tmp_path / "a", [plain_row("1")], data="a")
    second = write_folder(tmp_path / "b", **{"rows": [plain_row("1")], "data": "a"} | other)
    with pytest.raises(EvalError, match=str(second)):
        comparison(first, second)


def test_failed_answers_are_listed_with_their_reason(tmp_path):
    rows = [plain_row("a"), plain_row("b", failure="timeout"), plain_row("b", sample=1, failure="timeout")]
    folder = write_folder(tmp_path / "r", rows)
    assert failures(folder, ["50"]) == ["50/b: timeout: timeout", "50/b#1: timeout: timeout"]
