"""Stage files to scores: what each method's order is, what counts, and what is said where something is missing."""

import json
from math import log2

import pandas as pd
import pyarrow.parquet as pq
import pytest

from mem_agent.data.prepare_sessions import main as prepare
from mem_agent.evaluation.statistics import interval
from mem_agent.memsifter.table import (
    FILE,
    estimate,
    main,
    markdown,
    read_scores,
    sifter_scores,
    stage_files,
)
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.sifter_files import chat_row, embed_row, ranking_row, small_results, write_stage


def means(scores, method, kind="", measure="retrieval"):
    (line,) = [each for each in scores.lines if (each.measure, each.method, each.kind) == (measure, method, kind)]
    return line, {name: round(estimate.mean, 2) for name, estimate in line.scores.items()}


def test_the_order_of_similarity_is_scored(tmp_path):
    """Order b c d a for all. q1: a at rank 4; q2: b first; q3: c and d at 2 and 3; q4 has no gold."""
    line, found = means(sifter_scores(small_results(tmp_path)), "mini")
    third = (1 / log2(3) + 1 / 2) / (1 + 1 / log2(3))
    assert (line.n, line.failed, line.missing) == (3, 0, 0)
    assert found["ndcg@1"] == found["recall@1"] == pytest.approx(100 / 3, abs=0.01)
    assert found["ndcg@5"] == pytest.approx(100 * (1 / log2(5) + 1 + third) / 3, abs=0.01)
    assert found["recall@5"] == found["recall@10"] == 100
    assert found["mrr@10"] == pytest.approx(100 * (1 / 4 + 1 + 1 / 2) / 3, abs=0.01)


def test_a_ranking_is_completed_by_similarity_and_its_replies_are_counted(tmp_path):
    """q3 named c alone: the order is c b d a, so d is third. q4 failed: no ranking score, and no valid reply."""
    line, found = means(sifter_scores(small_results(tmp_path)), "ranker")
    assert (line.n, line.failed) == (3, 1)
    assert found["recall@1"] == pytest.approx(100 * (1 + 1 + 0.5) / 3, abs=0.01)
    assert found["ndcg@10"] == pytest.approx(100 * (1 + 1 + 1.5 / (1 + 1 / log2(3))) / 3, abs=0.01)
    assert found["valid"] == 50  # q1 and q2 of four
    assert (found["kept"], found["kept_all"]) == (pytest.approx(83.33), pytest.approx(66.67))  # c of c and d is left


def test_answers_that_failed_are_wrong_and_counted_and_others_are_missing(tmp_path):
    scores = sifter_scores(small_results(tmp_path))
    line, found = means(scores, "full", measure="answers")
    assert line.costs["tokens shown"].mean == 30 and line.costs["tokens shown"].n == 2  # the failed one apart
    assert (line.n, line.failed, line.missing) == (3, 1, 1) and found == {"f1": 66.67, "em": 66.67}
    assert means(scores, "mini", measure="answers")[1] == {"f1": 55.56, "em": 33.33}  # "the red key": 2 words, 1 right
    assert [note for note in scores.notes if "full" in note] == [
        "locomo/test, chat, full: 1 rows are missing; its means are over those that are there."]


def test_names_with_slashes_are_told_apart(tmp_path):
    """A hub id is a model's name and its folders."""
    small_results(tmp_path)
    (tmp_path / "org").mkdir()
    for name in ("mini", "ranker"):
        (tmp_path / name).rename(tmp_path / "org" / name)
        (tmp_path / "chat" / "org").mkdir(exist_ok=True)
        (tmp_path / "chat" / name).rename(tmp_path / "chat" / "org" / name)
    (tmp_path / "chat").rename(tmp_path / "org" / "chat")
    scores = sifter_scores(tmp_path)
    assert [f"{line.model} {line.method}" for line in scores.lines if not line.kind and line.method != "bm25"] == [
        " org/mini", " org/ranker", "org/chat org/mini", "org/chat full", "org/chat org/ranker"]


def test_methods_are_compared_with_the_embedding_question_by_question(tmp_path):
    scores = sifter_scores(small_results(tmp_path))
    lines = [(line.measure, line.model, line.method) for line in scores.lines if not line.kind]
    assert lines == [("retrieval", "", "mini"), ("retrieval", "", "bm25"), ("retrieval", "", "ranker"),
                     ("answers", "chat", "mini"), ("answers", "chat", "full"), ("answers", "chat", "ranker")]
    found = {(each.measure, each.method): each for each in scores.versus}
    ranker, full = found["retrieval", "ranker"], found["answers", "full"]
    assert (ranker.base, ranker.metric, ranker.difference.n) == ("mini", "ndcg@10", 3)
    assert ranker.difference.mean > 0 and 0 < ranker.p <= 1
    assert full.base == "mini" and full.difference.mean == pytest.approx(11.11, abs=0.01)
    assert means(scores, "mini", "two")[1]["recall@1"] == 50 and means(scores, "mini", "one")[0].n == 1  # by type


def test_what_is_written_is_read_again(tmp_path, capsys):
    assert main([str(small_results(tmp_path))]) == 0
    told = capsys.readouterr().out
    scores = sifter_scores(tmp_path)
    assert read_scores(tmp_path / FILE) == scores and markdown(scores) in told
    assert "| locomo/test | bm25 | 3 | 0 | 0 |" in told and "| locomo/test | chat | ranker | 3 | 0 | 1 | 100.0" in told
    assert "| F1 | EM | tokens shown |" in told


def test_other_files_and_unfinished_ones_are_not_read(tmp_path):
    rows = [embed_row("q", "a", [1, 0, 0, 0.0])]
    write_stage(tmp_path / "mini", rows, "embed")
    write_stage(tmp_path / "mini", rows, "embed", "longmemeval_s_train")
    write_stage(tmp_path, rows, "embed")  # of no model
    write_stage(tmp_path / "org" / "model", rows, "embed")
    found = stage_files(tmp_path, "embed")
    assert [(file.data, file.name) for file in found] == [
        ("locomo/test", "mini"), ("longmemeval_s/train", "mini"), ("locomo/test", "org/model")]
    assert [file.data for file in stage_files(tmp_path, "embed", splits=["train"])] == ["longmemeval_s/train"]
    assert [file.name for file in stage_files(tmp_path, "embed", ["locomo"])] == ["mini", "org/model"]


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


def test_a_chinese_data_set_from_rows_to_scores(tmp_path):
    """BM25 by characters finds both; 他住在上海 has 4 words, of which one is the answer's: F1 0.4."""
    talks = ("今天天气很好", "小明搬到了上海", "我们去吃饭吧", "他的猫叫咪咪")
    questions = (("小明住在哪里？", "上海", "session_1"), ("他的猫叫什么？", "咪咪", "session_3"))
    history = json.dumps([[{"role": "user", "content": talk}] for talk in talks], ensure_ascii=False)
    rows = [{"question": asked, "answer": answer, "answer_session_ids": [gold], "haystack_sessions": history}
            for asked, answer, gold in questions]
    path = tmp_path / "zh.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    assert prepare(["--format", "rows", "--input", str(path), "--dataset", "zh", "--output-dir", str(tmp_path)]) == 0
    made = pq.read_table(tmp_path / "zh" / "test.parquet").to_pylist()
    similar = [row | {"similarities": [0.4, 0.3, 0.2, 0.1]} for row in made]
    write_stage(tmp_path / "r" / "m", similar, "embed", "zh_test")
    said = [row | {"predicted_answer": text, "api_status": "ok"}
            for row, text in zip(made, ("他住在上海。", "“咪咪”"), strict=True)]
    write_stage(tmp_path / "r" / "chat" / "m", said, "chat", "zh_test")
    scores = sifter_scores(tmp_path / "r")
    assert means(scores, "bm25")[1]["ndcg@1"] == 100 and means(scores, "m")[1]["ndcg@1"] == 0
    assert means(scores, "m", measure="answers")[1] == {"f1": 70, "em": 50}


def test_options_are_scored_where_there_are_some(tmp_path):
    options = ["(a) blue as the sea", "(b) red as blood"]
    rows = [chat_row("1", "(b)", all_options=options, answers=["red as blood", "(b)"]),
            chat_row("2", "blue as the sea", all_options=options, answers=["red as blood", "(b)"]),
            chat_row("3", "red", all_options=[])]
    write_stage(tmp_path / "chat" / "m", rows, "chat")
    line, found = means(sifter_scores(tmp_path), "m", measure="answers")
    assert line.scores["option"].n == 2 and found["option"] == 50 and line.n == 3


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
    write_stage(folder / "r", [row | {"haystack_session_gen_rankings": [0], "rank_status": "ok"} for row in rows],
                "ranking")
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
    (ranked,) = [each for each in scores.versus if each.method == "r"]
    assert ranked.difference.n == 60 and ranked.p > 0.5  # 6 histories gain what 6 lose: over questions as well


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
