"""Tables and comparisons: what is counted, what is refused."""

import json

import pytest

from mem_agent import eval_ruler_hqa as ev
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.result_store import RowWriter, cut_half_line, read_rows
from mem_agent.evaluation.tables import comparison, doings, lengths_of, summarise, table


def row(question, score, sample=0, length="50", failure=None):
    scores = {"em": score, "f1": score, "sub_em": score, "sub_em_legacy": score}
    told = {"failure": failure, "failure_message": failure}
    return {"_id": question, "sample": sample, "length": length} | told | scores


def result(folder, rows, questions=4, samples=1, data=None):
    folder.mkdir()
    lengths = {r["length"] for r in rows}
    run = {"model": "m", "settings": {}, "samples": samples, "questions": dict.fromkeys(lengths, questions)}
    (folder / "run.json").write_text(json.dumps(run | {"data": data or {n: f"hash of {n}" for n in lengths}}))
    with RowWriter(folder) as writer:
        for each in rows:
            writer.write(each)
    return folder


def test_means_are_over_all_rows_and_intervals_over_questions(tmp_path):
    rows = [row("a", 1.0), row("a", 0.0, 1), row("b", 1.0), row("b", 1.0, 1), row("c", 0.0, failure="timeout")]
    summary = summarise(result(tmp_path / "r", rows, samples=2), "50")
    assert (summary.n, summary.failed, summary.missing) == (5, 1, 3)
    assert summary.accuracy.n == 3 and summary.accuracy.mean == pytest.approx((0.5 + 1 + 0) / 3)
    assert summary.means["em"] == summary.accuracy.mean


def test_what_the_agents_did_is_over_questions_that_did_not_fail(tmp_path):
    def read(question, sample=0, failure=None, **counts):
        return row(question, 1.0, sample, failure=failure) | {"counts": {"updates": 9, "prompt_tokens": 9} | counts}

    revisit = [read("a", updates=1), read("a", 1, updates=2), read("b", updates=3), read("c", failure="timeout")]
    plain = [row("a", 1.0) | {"counts": {"turns": 4}}]
    outputs = [result(tmp_path / "re", revisit), result(tmp_path / "mem", plain)]
    # (1 + 2) / 2 of one question and 3 of the other
    assert doings(outputs).splitlines()[::2] == ["| run | length | updates | turns |", "| re | 50 | 2.25 | - |"]
    assert doings(outputs).splitlines()[3] == "| mem | 50 | - | 4.00 |"


def test_lengths_are_ordered_by_size_within_their_task(tmp_path):
    rows = [row("a", 1.0, length=n) for n in ("800", "50", "vt_16384", "vt_8192", "100")]
    assert lengths_of(result(tmp_path / "r", rows)) == ["50", "100", "800", "vt_8192", "vt_16384"]


def test_a_comparison_is_paired_and_says_what_was_left_out(tmp_path):
    first = result(tmp_path / "a", [row(q, s) for q, s in (("1", 0.0), ("2", 0.0), ("3", 1.0), ("only a", 1.0))])
    second = result(tmp_path / "b", [row(q, s) for q, s in (("1", 1.0), ("2", 1.0), ("3", 1.0))])
    # Differences 1 1 0: two of four sign patterns are as far, p = 0.5.
    (line,) = comparison(first, second).splitlines()[2:]
    assert line.startswith("| 50 | 3 | 1 | 33.3 | 100.0 | +66.7 | ") and line.endswith(" | 0.500 |")
    assert ev.main(["--compare", str(first), str(second)]) == 0


def test_runs_of_other_data_are_not_compared(tmp_path):
    first, second = (result(tmp_path / n, [row("1", 1.0)], data={"50": n}) for n in "ab")
    with pytest.raises(EvalError, match=r"different eval_50\.json; they cannot be compared"):
        comparison(first, second)
    other = result(tmp_path / "c", [row("1", 1.0, length="100")])
    with pytest.raises(EvalError, match="no length in common"):
        comparison(first, other)
    assert "| a | 50 |" in table([first, second])


def test_damaged_folders_are_one_line(tmp_path):
    with pytest.raises(EvalError, match="no results"):
        table([tmp_path])
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(EvalError, match=r"run\.json: damaged"):
        table([tmp_path])


@pytest.mark.parametrize("content", [b"", b"half", b"one\n", b"one\nhalf", b"one\n" + b"x" * 5000])
def test_what_stands_behind_the_last_line_end_is_cut_off(tmp_path, content):
    path = tmp_path / "f"
    path.write_bytes(content)
    cut_half_line(path, block=7)
    assert path.read_bytes() == content[: content.rfind(b"\n") + 1]


def test_the_newest_row_counts_and_torn_lines_do_not(tmp_path):
    folder = result(tmp_path / "r", [row("a", 0.0, failure="timeout"), row("b", 1.0)])
    with (folder / "50.jsonl").open("a") as file:
        file.write('{"_id": "b", "em\n[]\n' + json.dumps(row("a", 1.0) | {"turns": [1]}) + "\n{")
    read = [(r["_id"], r["em"], "turns" in r) for r in read_rows(folder, "50")]
    assert read == [("a", 1.0, False), ("b", 1.0, False)]
