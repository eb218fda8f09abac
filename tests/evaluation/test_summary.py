"""Result folders and what is said of them: rows, statistics, tables, comparisons, RULER's averages, a model's card."""

import re
from itertools import combinations

import numpy as np
import orjson
import pytest
import yaml

from mem_agent import eval_ruler_hqa as ev
from mem_agent.checkpoints.model_card import card_of_run, read_card, write_card
from mem_agent.evaluation import card_table
from mem_agent.evaluation.results import EvalError, lock_results, read_results, read_rows, write_row
from mem_agent.evaluation.statistics import Estimate, compare, expected_best, interval, pass_at, pass_sizes
from mem_agent.evaluation.summary import answers_of, average, comparison, differences, failures, tables
from mem_agent.rewards.qa_metrics import MEMAGENT_TASKS, TASKS
from mem_agent.tests.helpers.evaluations import numbers_of
from mem_agent.tests.helpers.fake_results import plain_row, write_files, write_folder

# --- rows on disk ---------------------------------------------------------------------------------------------------


def test_the_newest_row_counts_and_half_a_line_is_none(tmp_path):
    folder = write_folder(tmp_path / "r", [plain_row("a", 0.0, failure="timeout"), plain_row("b"), plain_row("a")])
    path = folder / "50.jsonl"
    before = path.read_bytes()
    path.write_bytes(before + b'{"_id": "b", "em')
    rows = read_rows(folder, "50")
    assert rows == [plain_row("a"), plain_row("b")] and path.read_bytes() != before, "reading changes nothing"
    with lock_results(folder):
        assert path.read_bytes() == before
        write_row(folder, rows[0])
    assert path.read_bytes() == before + orjson.dumps(plain_row("a")) + b"\n"


# --- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("differences", "p", "text"), [
    # By hand: of the 2^n sign patterns, the share whose sum is as far from 0 as the one found.
    ([1, 1, 1], 2 / 8, "0.2500 (lowest possible)"),
    ([1, -1], 4 / 4, "1.0000"),  # found 0: every pattern is as far
    ([1, 1, 0, 0], 2 / 4, "0.5000 (lowest possible)"),  # zeros have no sign
    ([1] * 5 + [-1], 14 / 64, "0.2188"),  # |sum| >= 4: no or one minus, and their mirrors: 2 x (1 + 6)
    ([0, 0], 1.0, "1.0000 (lowest possible)"),
    # Drawn. 20 differences of 1, 15 of them up: P(|sum| >= 10) = 2 x P(Binomial(20, 1/2) >= 15) = 2 x 21700 / 2^20.
    ([1] * 15 + [-1] * 5, 2 * 21700 / 2**20, ""),
    ([1] * 40, 0.0, "< 0.0001 (10,000 resamples)"),
])
def test_p_is_the_share_of_sign_patterns_that_are_as_far_and_says_where_it_cannot_be_lower(differences, p, text):
    second = {question: float(value) for question, value in enumerate(differences)}
    found = compare(dict.fromkeys(second, 0.0), second)
    assert found.p == pytest.approx(p, abs=0.006 if len(differences) > 13 else 1e-9) and text in ("", found.p_text)


def test_95_percent_of_the_intervals_hold_the_truth_and_equal_scores_do_not_pretend_certainty():
    rng = np.random.default_rng(7)
    found = [interval((rng.random(128) < 0.8).astype(float), seed=seed, resamples=1000) for seed in range(400)]
    assert 0.92 <= np.mean([one.low <= 0.8 <= one.high for one in found]) <= 0.98
    for score, questions, low, high in ((0.0, 2, 0.0, 0.842), (1.0, 128, 0.972, 1.0)):
        equal = interval([score] * questions, full=1.0)
        assert (equal.mean, equal.low, equal.high) == pytest.approx((score, low, high), abs=1e-3)


def test_runs_are_compared_on_the_questions_both_have_and_rounding_is_no_difference():
    found = compare({"a": 0.0, "b": 1.0, "c": 0.0, "x": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0, "y": 0.0})
    assert (found.first, found.second, found.difference.n) == (pytest.approx(1 / 3), 1.0, 3)
    rounded = compare({"a": 0.1 + 0.2}, {"a": 0.3})
    assert (rounded.difference.mean, rounded.difference.low, rounded.difference.high, rounded.p) == (0, 0, 0, 1)


def test_best_and_pass_at_k_by_hand_and_by_counting_draws():
    # of three draws all are 0.2 in 1 of 27 cases, at most 0.5 in 8, else the best is 1
    assert expected_best([1.0, 0.2, 0.5]) == pytest.approx(0.2 / 27 + 0.5 * 7 / 27 + 19 / 27)
    for right in range(6):
        for k in range(1, 6):
            drawn = [max(some) for some in combinations([1] * right + [0] * (5 - right), k)]
            assert pass_at(k, 5, right) == pytest.approx(sum(drawn) / len(drawn))
    assert [pass_sizes(n) for n in (0, 1, 2, 5, 8)] == [[], [1], [1, 2], [1, 2, 4, 5], [1, 2, 4, 8]]


# --- tables ---------------------------------------------------------------------------------------------------------


def test_means_are_over_all_rows_and_intervals_over_questions(tmp_path):
    rows = [plain_row("a", 1.0), plain_row("a", 0.0, 1), plain_row("b", 1.0), plain_row("b", 1.0, 1),
            plain_row("c", 0.0, failure="timeout")]
    accuracy, _, passes = tables([write_folder(tmp_path / "r", rows, questions=4, samples=2)]).split("\n\n")
    line = accuracy.splitlines()[2]
    # (0.5 + 1 + 0) / 3
    assert line.startswith("| r | 50 | 5 | 1 | 3 | 0.0% | 50.0 | 0.0 to ") and "| 50.0 | 50.0 | 50.0 |" in line
    # of q a: best of two draws from 0 and 1 is 1 in 3 of 4 cases; (0.75 + 1 + 0) / 3
    assert "| 58.3 (" in passes.splitlines()[2]


def test_pass_at_k_goes_as_far_as_every_question_has_answers(tmp_path):
    """Of 4 answers to question a 1 is right, of those to b none, one of which failed."""
    rows = [plain_row("a", float(sample == 2), sample) for sample in range(4)]
    rows += [plain_row("b", 0.0, sample, failure="Timeout" if sample else None) for sample in range(4)]
    passes = tables([write_folder(tmp_path / "run", rows, samples=4)]).split("\n\n")[2]
    assert passes.splitlines()[0] == "| run | length | questions | pass@1 | pass@2 | pass@4 | best@4 |"
    # best: (1 - (3/4)^4) / 2
    assert re.search(r"\| 2 \| 12\.5 \(.*\| 25\.0 \(.*\| 50\.0 \(.*\| 34\.2 \(", passes)
    three = tables([write_folder(tmp_path / "three", rows[:-1], samples=4)]).split("\n\n")[2]
    assert three.splitlines()[0].endswith("| pass@1 | pass@2 | pass@3 | best@4 |")


def test_memory_by_turn_is_pooled_in_doubling_ranges(tmp_path):
    memories = [{"tokens": t, "gold": g} for t, g in ((10, False), (20, False), (30, True), (50, False), (70, None))]
    found = numbers_of(write_folder(tmp_path / "run", [plain_row("a", memories=memories)]))
    assert {name: value for name, value in found.items() if "/" in name} == {
        "memory_tokens/turn_1": 10, "memory_tokens/turn_2": 20, "memory_tokens/turn_3-4": 40,
        "memory_tokens/turn_5-8": 70, "gold_in_memory/turn_1": 0, "gold_in_memory/turn_2": 0,
        "gold_in_memory/turn_3-4": 50}


def test_a_task_is_judged_by_its_headline_and_what_else_it_measures_has_a_table(tmp_path):
    """GSM8K's rows hold ``strict`` first and are judged by ``medium``."""
    rows = [plain_row(name, headline="medium", scores={"strict": strict, "medium": 0.0})
            for name, strict in (("a", 1.0), ("b", 0.0))]
    accuracy, own, _ = tables([write_folder(tmp_path / "run", rows, "gsm8k")]).split("\n\n")
    assert "| run | gsm8k | 2 | 0 | 0 | 0.0% | 0.0 | 0.0 to " in accuracy
    assert own.splitlines()[0] == "| run | length | medium | strict |" and own.endswith("| 50.0 (0.0 to 100.0) |")


def test_what_the_agents_did_is_over_questions_that_did_not_fail(tmp_path):
    def read(question, sample=0, failure=None, **counts):
        return plain_row(question, 1.0, sample, failure, counts={"updates": 9, "prompt_tokens": 9} | counts)

    revisit = [read("a", updates=1), read("a", 1, updates=2), read("b", updates=3), read("c", failure="timeout")]
    outputs = [write_folder(tmp_path / "re", revisit), write_folder(tmp_path / "mem", [plain_row("a")])]
    did = tables(outputs).split("\n\n")[1].splitlines()
    assert did[0] == "| run | length | updates | turns |"
    # (1 + 2) / 2 of one question and 3 of the other
    assert did[2:] == ["| re | 50 | 2.25 | - |", "| mem | 50 | - | 3.00 |"]


def test_what_is_missing_or_was_not_read_is_in_the_table_and_failures_are_listed(tmp_path, capsys):
    cut = {"turns": 3, "document_tokens": 8000, "dropped_tokens": 2000}
    rows = [plain_row("a", counts=cut), plain_row("b"), plain_row("c", 0.0, 1, "timeout")]
    folder = write_folder(tmp_path / "half", rows, questions=4)
    assert ev.main(["--table", str(folder)]) == 0
    assert "| half | 50 | 3 | 1 | 1 | 12.5% | 66.7 |" in capsys.readouterr().out
    assert failures(folder, ["50"]) == ["50/c#1: timeout: timeout"]


# --- several files, two runs ----------------------------------------------------------------------------------------


def test_a_questions_lengths_are_averaged_before_anything_is_drawn(tmp_path):
    scores = {"50": {"q1": 1.0, "q2": 1.0}, "200": {"q1": 0.0, "q2": 1.0}}
    files = {name: [plain_row(*one) for one in rows.items()] for name, rows in scores.items()}
    folder = write_files(tmp_path / "r", files)
    (found,) = differences(answers_of(read_results([folder])), "r", "r", ["metric"])
    assert (found.files, found.found.first, found.found.difference.n) == (["50", "200"], 75.0, 2)


def test_a_comparison_is_paired_and_says_what_was_left_out(tmp_path, capsys):
    first = [plain_row(q, s) for q, s in (("1", 0.0), ("2", 0.0), ("3", 1.0), ("only a", 1.0))]
    second = [plain_row(q, s) for q, s in (("1", 1.0), ("2", 1.0), ("3", 1.0))]
    folders = [write_folder(tmp_path / "a", first), write_folder(tmp_path / "b", second)]
    assert ev.main(["--compare", *map(str, folders)]) == 0
    header, _, line = capsys.readouterr().out.splitlines()
    assert header == "| length | questions | left out | a | b | difference | 95% interval | p |"
    # Differences 1 1 0: two of four sign patterns are as far, p = 0.5.
    assert line.startswith("| 50 | 3 | 1 | 33.3 | 100.0 | +66.7 | ") and line.endswith(" | 0.5000 (lowest possible) |")
    for number, other in enumerate(({"data": "b"}, {"stem": "100"}, {"rows": [plain_row("2")]})):
        base = write_folder(tmp_path / f"base{number}", [plain_row("1")], data="a")
        unlike = write_folder(tmp_path / f"other{number}", **{"rows": [plain_row("1")], "data": "a"} | other)
        with pytest.raises(EvalError, match=str(unlike)):
            comparison(base, unlike)


# --- RULER ----------------------------------------------------------------------------------------------------------


def write_ruler(folder, right):
    """Ten questions of each task, of which so many are right; of qa_1's half of those by first gold."""
    return write_files(folder, {
        f"{task}_8192": [
            plain_row(str(n), headline="ruler", ruler=float(n < most),
                      scores={"sub_em_first_gold": float(2 * n < most)} if task == "qa_1" else {})
            for n in range(10)]
        for task, most in right.items()})


def test_the_ten_and_the_thirteen_are_averaged_where_all_are_there(tmp_path):
    # 95 - sqrt(10² + 3²) / 2 = 95 - 5.22; 95 + sqrt(6² + 0²) / 2 = 98
    joined = average([Estimate(90.0, 80.0, 96.0, 5), Estimate(100.0, 97.0, 100.0, 7)])
    assert (joined.mean, joined.low, joined.high, joined.n) == (95.0, pytest.approx(89.78, abs=0.01), 98.0, 12)
    # 0 1 2 3 4 5 6 7 | 8 vt, 9 cwe, 0 fwe, 4 qa_1, 2 qa_2
    every = {task: number % 10 for number, task in enumerate(TASKS)}
    header, _, text = tables([write_ruler(tmp_path / "r", every | {"qa_1": 4})]).split("\n\n")[2].splitlines()
    names, cells = ([cell.strip() for cell in each.strip("|").split("|")] for each in (header, text))
    found = dict(zip(names, cells, strict=True))
    assert (found["vt"], found["MemAgent's ten"], found["RULER's thirteen"]) == ("80.0", "36.0", "39.2")
    assert found["qa_1, first gold"] == "20.0"
    nine = write_ruler(tmp_path / "nine", dict.fromkeys(MEMAGENT_TASKS[1:], 5))
    assert tables([nine]).split("\n\n")[2].endswith(" | - | - | - | - | - |")
    assert len(tables([write_ruler(tmp_path / "one", {"vt": 5})]).split("\n\n")) == 2


# --- the card -------------------------------------------------------------------------------------------------------


def test_the_cards_table_has_every_run_and_its_head_the_last_ones_numbers(tmp_path, capsys):
    write_card(tmp_path, card_of_run(tmp_path, "iter_0000003", "Org/Model"))
    before = read_card(tmp_path)
    assert card_table.main([str(tmp_path), "--results", str(tmp_path / "nothing")]) != 0
    assert "no results" in capsys.readouterr().err and read_card(tmp_path) == before
    results = [write_folder(tmp_path / name, [plain_row(str(n), float(n < right)) for n in range(4)])
               for name, right in (("before", 1), ("after", 3))]
    assert card_table.main([str(tmp_path), "--results", *map(str, results)]) == 0
    card = read_card(tmp_path)
    assert re.search(r"\| before \| 50 \| +4 \| +0 \| sub_em \| 25\.0 \(0\.0 to", card)
    assert re.search(r"\| after \| 50 \| +4 \| +0 \| sub_em \| 75\.0 \(", card)
    (entry,) = yaml.safe_load(card.split("---")[1])["model-index"]
    assert [one["metrics"][0]["value"] for one in entry["results"]] == [75.0]
