"""Tables and comparisons: what is counted, what is refused."""

import pytest

from mem_agent import eval_ruler_hqa as ev
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.tables import agent_table, comparison, failures, table, tables
from mem_agent.report.__main__ import main as report
from mem_agent.tests.helpers.fake_results import plain_row, write_folder


def test_means_are_over_all_rows_and_intervals_over_questions(tmp_path):
    rows = [plain_row("a", 1.0), plain_row("a", 0.0, 1), plain_row("b", 1.0), plain_row("b", 1.0, 1),
            plain_row("c", 0.0, failure="timeout")]
    (line,) = table([write_folder(tmp_path / "r", rows, questions=4, samples=2)]).splitlines()[2:]
    # (0.5 + 1 + 0) / 3
    assert line.startswith("| r | 50 | 5 | 1 | 3 | 0.0% | 50.0 | 0.0 to ") and "| 50.0 | 50.0 | 50.0 |" in line
    # of q a: best of two draws from 0 and 1 is 1 in 3 of 4 cases; (0.75 + 1 + 0) / 3
    assert line.endswith("| 58.3 (k=2) |")


def test_pass_at_k_stands_beside_best_at_k_and_in_a_table_of_its_own(tmp_path, capsys):
    rows = [plain_row("a", float(sample == 0), sample) for sample in range(4)]
    rows += [plain_row("b", 1.0, sample) for sample in range(4)]
    folder = write_folder(tmp_path / "r", rows, samples=4)
    accuracy, _, passes = tables([folder]).split("\n\n")
    # best of four draws with replacement: 1 - (3/4)^4 = 0.684
    assert accuracy.splitlines()[0].endswith("| pass@k | best@k |")
    assert accuracy.splitlines()[2].endswith("| 100.0 (k=4) | 84.2 (k=4) |")
    assert passes.splitlines()[0] == "| run | length | questions | pass@1 | pass@2 | pass@4 |"
    assert passes.splitlines()[2].startswith("| r | 50 | 2 | 62.5 (25.0 to 100.0) | 75.0 (50.0 to 100.0) | 100.0 (")
    assert report([str(folder), "--no-published"]) == 0
    capsys.readouterr()
    assert "### One of several answers is right" in (tmp_path / "report" / "report.md").read_text()
    header, line = (tmp_path / "report" / "results.csv").read_text().splitlines()
    values = dict(zip(header.split(","), line.split(","), strict=True))
    assert (values["pass@2"], values["pass@2_low"], values["pass@2_high"]) == ("75.0", "50.0", "100.0")


def test_what_a_task_measures_besides_has_a_table_with_intervals(tmp_path):
    modes = [{"strict": 1.0, "medium": 0.0}, {"strict": 0.0, "medium": 0.0}]
    common = ("em", "f1", "sub_em", "sub_em_legacy")
    rows = [
        {k: v for k, v in plain_row(name).items() if k not in common} | {"headline": "medium", "scores": scores}
        for name, scores in zip("ab", modes, strict=True)
    ]
    folder = write_folder(tmp_path / "r", rows, "gsm8k")
    accuracy, own, _ = tables([folder]).split("\n\n")
    assert "| r | gsm8k | 2 | 0 | 0 | 0.0% | 0.0 | 0.0 to " in accuracy
    assert own.splitlines()[0] == "| run | length | medium | strict |"
    assert own.splitlines()[2].startswith("| r | gsm8k | 0.0 (0.0 to ") and own.endswith("| 50.0 (0.0 to 100.0) |")
    assert len(tables([write_folder(tmp_path / "plain", [plain_row("a")])]).split("\n\n")) == 2


def test_a_file_named_by_no_length_is_a_task_of_its_own(tmp_path, capsys):
    folder = write_folder(tmp_path / "r", [plain_row("a")], "gsm8k")
    assert report([str(folder), "--no-published"]) == 0
    capsys.readouterr()
    written = (tmp_path / "report" / "report.md").read_text()
    assert "### gsm8k: sub_em by file" in written and "multi-document" not in written


def test_table_and_report_count_the_same_answers_as_missing(tmp_path, capsys):
    folder = write_folder(tmp_path / "half", [plain_row(str(i)) for i in range(100)], questions=200)
    assert ev.main(["--table", str(folder)]) == 0
    assert "| half | 50 | 100 | 0 | 100 | 0.0% | 100.0 |" in capsys.readouterr().out
    assert report([str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "100 answers are missing" in printed and "at 50 | 0 | 100 |" in printed
    written = (tmp_path / "report" / "report.md").read_text()
    assert "| half | 50 | 100 | 100 | 0 | 100 | 0.0% | 100.0 [" in written
    assert "half, multi-document QA, 50: 100 answers are missing" in written


def test_what_the_agents_did_is_over_questions_that_did_not_fail(tmp_path):
    def read(question, sample=0, failure=None, **counts):
        return plain_row(question, 1.0, sample, failure, counts={"updates": 9, "prompt_tokens": 9} | counts)

    revisit = [read("a", updates=1), read("a", 1, updates=2), read("b", updates=3), read("c", failure="timeout")]
    plain = [plain_row("a", counts={"turns": 4})]
    outputs = [write_folder(tmp_path / "re", revisit), write_folder(tmp_path / "mem", plain)]
    # (1 + 2) / 2 of one question and 3 of the other
    assert agent_table(outputs).splitlines()[::2] == ["| run | length | updates | turns |", "| re | 50 | 2.25 | - |"]
    assert agent_table(outputs).splitlines()[3] == "| mem | 50 | - | 4.00 |"


def test_a_comparison_is_paired_and_says_what_was_left_out(tmp_path, capsys):
    first = [plain_row(q, s) for q, s in (("1", 0.0), ("2", 0.0), ("3", 1.0), ("only a", 1.0))]
    second = [plain_row(q, s) for q, s in (("1", 1.0), ("2", 1.0), ("3", 1.0))]
    folders = [write_folder(tmp_path / "a", first), write_folder(tmp_path / "b", second)]
    assert ev.main(["--compare", *map(str, folders)]) == 0
    header, _, line = capsys.readouterr().out.splitlines()
    assert header == "| length | questions | left out | a | b | difference | 95% interval | p |"
    # Differences 1 1 0: two of four sign patterns are as far, p = 0.5.
    assert line.startswith("| 50 | 3 | 1 | 33.3 | 100.0 | +66.7 | ") and line.endswith(" | 0.5000 (lowest possible) |")


def test_runs_of_other_data_are_not_compared(tmp_path):
    first, second = (write_folder(tmp_path / n, [plain_row("1")], data=n) for n in "ab")
    with pytest.raises(EvalError, match=r"different eval_50\.json; they cannot be compared"):
        comparison(first, second)
    other = write_folder(tmp_path / "c", [plain_row("1")], "100")
    with pytest.raises(EvalError, match="no length in common"):
        comparison(first, other)
    apart = write_folder(tmp_path / "d", [plain_row("2")], data="a")
    with pytest.raises(EvalError, match="no question of length 50 in common yet"):
        comparison(first, apart)
    assert "| a | 50 |" in table([first, second])


def test_failed_answers_are_listed_with_their_reason(tmp_path):
    rows = [plain_row("a"), plain_row("b", failure="timeout"), plain_row("b", sample=1, failure="timeout")]
    found = failures(write_folder(tmp_path / "r", rows), ["50"])
    assert found == ["50/b: timeout: timeout", "50/b#1: timeout: timeout"]


def test_runs_of_the_same_name_are_told_apart_and_names_keep_the_table(tmp_path):
    folders = [write_folder(tmp_path / parent / "a|b", [plain_row("1")]) for parent in "xy"]
    assert [line.split(" | ")[0] for line in table(folders).splitlines()[2:]] == ["| x/a\\|b", "| y/a\\|b"]


def test_what_was_not_read_is_in_every_table_and_warned_of(tmp_path, capsys):
    """A quarter of one document, nothing of the other: an eighth of a document on average."""
    cut = {"turns": 3, "document_tokens": 8000, "dropped_tokens": 2000}
    folder = write_folder(tmp_path / "cut", [plain_row("a", counts=cut), plain_row("b")], questions=2)
    assert "| cut | 50 | 2 | 0 | 0 | 12.5% |" in table([folder])
    assert report([str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "50: 12.5% of its documents' tokens were not read" in printed and "| 0 | 0 | 12.5% |" in printed
    assert "| 2 | 2 | 0 | 0 | 12.5% |" in (tmp_path / "report" / "report.md").read_text()
