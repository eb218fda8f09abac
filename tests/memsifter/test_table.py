"""Stage files to scores: what each method's order is, what counts, and what is said where something is missing."""

from math import log2

import pandas as pd
import pytest

from mem_agent.evaluation.statistics import interval
from mem_agent.memsifter.table import FILE, estimate, main, markdown, read_scores, sifter_scores
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.sifter_files import chat_row, embed_row, ranking_row, small_results, write_stage


def means(scores, method, measure="retrieval"):
    (line,) = [each for each in scores.lines if (each.measure, each.method) == (measure, method)]
    return line, {name: round(score.mean, 2) for name, score in line.scores.items() if name != "tokens shown"}


def test_the_order_of_similarity_is_scored(tmp_path):
    """Order b c d a for all. q1: a at rank 4; q2: b first; q3: c and d at 2 and 3; q4 has no gold."""
    line, found = means(sifter_scores(small_results(tmp_path)), "mini")
    third = (1 / log2(3) + 1 / 2) / (1 + 1 / log2(3))
    assert (line.n, line.failed, line.missing) == (3, 0, 0)
    assert found["NDCG@1"] == found["recall@1"] == pytest.approx(100 / 3, abs=0.01)
    assert found["NDCG@5"] == pytest.approx(100 * (1 / log2(5) + 1 + third) / 3, abs=0.01)
    assert found["recall@5"] == found["recall@10"] == 100
    assert found["MRR@10"] == pytest.approx(100 * (1 / 4 + 1 + 1 / 2) / 3, abs=0.01)


def test_a_ranking_is_completed_by_similarity_and_its_replies_are_counted(tmp_path):
    """q3 named c alone: the order is c b d a, so d is third. q4 failed: no ranking score, and no valid reply."""
    line, found = means(sifter_scores(small_results(tmp_path)), "ranker")
    assert (line.n, line.failed) == (3, 1)
    assert found["recall@1"] == pytest.approx(100 * (1 + 1 + 0.5) / 3, abs=0.01)
    assert found["NDCG@10"] == pytest.approx(100 * (1 + 1 + 1.5 / (1 + 1 / log2(3))) / 3, abs=0.01)
    assert found["valid"] == 50  # q1 and q2 of four
    assert found["kept"] == pytest.approx(83.33)  # c of c and d is left


def test_answers_that_failed_are_wrong_and_counted_and_others_are_missing(tmp_path):
    scores = sifter_scores(small_results(tmp_path))
    line, found = means(scores, "full", measure="answers")
    assert line.scores["tokens shown"].mean == 30 and line.scores["tokens shown"].n == 2  # the failed one apart
    assert (line.n, line.failed, line.missing) == (3, 1, 1) and found == {"F1": 66.67, "EM": 66.67}
    assert means(scores, "mini", measure="answers")[1] == {"F1": 55.56, "EM": 33.33}  # "the red key": 2 words, 1 right
    assert [note for note in scores.notes if "full" in note] == [
        "locomo/test, chat, full: 1 rows are missing; its means are over those that are there."]


def test_a_hub_id_is_a_models_name_and_its_folders(tmp_path):
    for names, kind in ((("org/m", ), "embed"), (("org/chat/org/m", "org/chat/full"), "chat"), (("",), "embed")):
        for name in names:
            write_stage(tmp_path / name, [chat_row("q", "red", similarities=[1, 0, 0, 0.0])], kind)
    assert [(line.measure, line.model, line.method) for line in sifter_scores(tmp_path).lines] == [
        ("retrieval", "", "org/m"), ("retrieval", "", "bm25"), ("answers", "org/chat", "org/m"),
        ("answers", "org/chat", "full")]


def test_what_is_written_is_read_again(tmp_path, capsys):
    assert main([str(small_results(tmp_path))]) == 0
    told = capsys.readouterr().out
    scores = sifter_scores(tmp_path)
    assert read_scores(tmp_path / FILE) == scores and markdown(scores) in told
    assert "| locomo/test | bm25 | 3 | 0 | 0 |" in told and "| locomo/test | chat | ranker | 3 | 0 | 1 | 100.0" in told
    assert "| F1 | EM | tokens shown |" in told


def test_rows_without_gold_or_similarities_are_not_counted(tmp_path):
    write_stage(tmp_path / "m", [embed_row("a", [], [1, 0, 0, 0.0]), embed_row("b", "a", None),
                                 embed_row("c", "a", [1.0])], "embed")
    line, found = means(sifter_scores(tmp_path), "m")
    assert (line.n, line.failed, found) == (0, 2, {})
    assert sum("m: no question could be scored" in note for note in sifter_scores(tmp_path).notes) == 1


def test_a_row_that_failed_before_it_was_filtered_says_nothing_of_the_filter(tmp_path):
    similar = [1, 0, 0, 0.0]
    write_stage(tmp_path / "r", [ranking_row("a", "a", similar, [0], kept=[0]),
                                 ranking_row("b", "b", similar, [], kept=[], status="bad row: x"),
                                 ranking_row("c", "c", similar, [], kept=[0], status="timeout: y")], "ranking")
    line, found = means(sifter_scores(tmp_path), "r")
    assert (found["kept"], line.scores["kept"].n, line.failed, line.n) == (50, 2, 2, 3)


def test_options_are_scored_where_there_are_some(tmp_path):
    options = ["(a) blue as the sea", "(b) red as blood"]
    rows = [chat_row("1", "(b)", all_options=options, answers=["red as blood", "(b)"]),
            chat_row("2", "blue as the sea", all_options=options, answers=["red as blood", "(b)"]),
            chat_row("3", "red", all_options=[])]
    write_stage(tmp_path / "chat" / "m", rows, "chat")
    line, found = means(sifter_scores(tmp_path), "m", measure="answers")
    assert line.scores["right option"].n == 2 and found["right option"] == 50 and line.n == 3


def test_a_folder_without_files_and_a_question_that_repeats_end_in_one_line(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err and not (tmp_path / FILE).exists()
    write_stage(tmp_path / "m", [embed_row("q", "a", [1, 0, 0, 0.0])] * 2, "embed")
    with pytest.raises(MemAgentError, match="question_id"):
        sifter_scores(tmp_path)


def of_histories(folder, count, each):
    """``each`` questions about each of ``count`` histories; all of a history rank their gold alike."""
    rows = [embed_row(f"q{h}-{n}", "b" if h % 2 else "a", [0, 1, 0, 0.0], sample_id=f"c{h}")
            for h in range(count) for n in range(each)]
    write_stage(folder / "m", rows, "embed")
    return sifter_scores(folder)


def width(found):
    return found.high - found.low


def test_intervals_are_over_histories_where_there_are_ten(tmp_path):
    """Five equal questions about each of twelve histories say no more than twelve questions."""
    line, _ = means(scores := of_histories(tmp_path, 12, 5), "m")
    found = line.scores["recall@1"]
    apart = interval([0.0, 100.0] * 6)
    assert (found.mean, found.n) == (50, 60)
    assert width(found) == pytest.approx(width(apart), abs=6)
    assert width(found) > 1.5 * width(interval([0.0, 100.0] * 30))
    assert any("60 questions about 12 histories" in note for note in scores.notes)


def test_of_fewer_histories_the_interval_is_over_questions_and_it_is_said(tmp_path):
    line, _ = means(scores := of_histories(tmp_path, 9, 4), "m")
    assert line.scores["recall@1"] == interval([100.0 * (h % 2) for h in range(9) for _ in range(4)], full=100.0)
    assert any("36 questions about 9 histories, fewer than 10" in note for note in scores.notes)
    assert not any("histories" in note for note in of_histories(tmp_path, 20, 1).notes)


def test_a_history_weighs_as_many_questions_as_it_has():
    """Eleven histories of one question, all right, and one of 89, all wrong: the mean is 11%."""
    histories = pd.Series([*(f"h{n}" for n in range(11)), *["big"] * 89])
    values = 100.0 * (histories != "big")
    found = estimate(values, histories, True)
    assert found.mean == 11 and found.low < 6 and found.high == 100  # a draw without the big one is all right
    right = estimate(values * 0 + 100, histories, True)
    assert right.high == 100 and right.low == pytest.approx(interval([100.0] * 12, full=100.0).low)
