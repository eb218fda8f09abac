"""Stage files to scores: what each method's order is, what counts, and what is said where something is missing."""

from math import log2

import pytest

from mem_agent.evaluation.statistics import interval
from mem_agent.memsifter.table import main, markdown, sifter_scores
from mem_agent.tests.helpers.sifter_files import chat_row, embed_row, small_results, write_stage


def means(scores, method, measure="retrieval"):
    (line,) = [each for each in scores.lines if (each.measure, each.method) == (measure, method)]
    return line, {name: round(score.mean, 2) for name, score in line.scores.items() if name != "tokens shown"}


def test_rankings_are_scored_as_they_stand_or_completed_by_similarity(tmp_path):
    """Order b c d a for all. q1: a at rank 4; q2: b first; q3: c and d at 2 and 3; q4 has no gold. The ranker named c
    alone for q3: the order is c b d a. Its q4 failed: no ranking score, and no valid reply.
    """
    line, found = means(sifter_scores(small_results(tmp_path)), "mini")
    third = (1 / log2(3) + 1 / 2) / (1 + 1 / log2(3))
    assert (line.n, line.failed, line.missing) == (3, 0, 0)
    assert found["NDCG@1"] == found["recall@1"] == 33.33 and found["recall@5"] == found["recall@10"] == 100
    assert found["NDCG@5"] == pytest.approx(100 * (1 / log2(5) + 1 + third) / 3, abs=0.01)
    assert found["MRR@10"] == pytest.approx(100 * (1 / 4 + 1 + 1 / 2) / 3, abs=0.01)
    line, found = means(sifter_scores(tmp_path), "ranker")
    assert (line.n, line.failed) == (3, 1)
    assert found["recall@1"] == pytest.approx(100 * (1 + 1 + 0.5) / 3, abs=0.01)
    assert found["NDCG@10"] == pytest.approx(100 * (1 + 1 + 1.5 / (1 + 1 / log2(3))) / 3, abs=0.01)
    assert found["valid"] == 50 and found["kept"] == 83.33  # q1 and q2 of four; c of c and d is left


def test_answers_that_failed_are_wrong_and_counted_and_others_are_missing(tmp_path):
    scores = sifter_scores(small_results(tmp_path))
    line, found = means(scores, "full", measure="answers")
    assert line.scores["tokens shown"].mean == 30 and line.scores["tokens shown"].n == 2  # the failed one apart
    assert (line.n, line.failed, line.missing) == (3, 1, 1) and found == {"F1": 66.67, "EM": 66.67}
    assert means(scores, "mini", measure="answers")[1] == {"F1": 55.56, "EM": 33.33}  # "the red key": 2 words, 1 right
    (note,) = [note for note in scores.notes if note.startswith("locomo/test, chat, full")]
    assert "1 rows are missing" in note


def test_a_hub_id_is_a_models_name_and_its_folders(tmp_path):
    for name, kind in (("org/m", "embed"), ("org/chat/org/m", "chat"), ("org/chat/full", "chat"), ("", "embed")):
        write_stage(tmp_path / name, [chat_row("q", "red")], kind)
    assert [(line.measure, line.model, line.method) for line in sifter_scores(tmp_path).lines] == [
        ("retrieval", "", "org/m"), ("retrieval", "", "bm25"), ("answers", "org/chat", "full"),
        ("answers", "org/chat", "org/m")]


def test_what_is_written_is_read_again_and_wrong_use_is_one_line(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    assert main([str(small_results(tmp_path))]) == 0
    told = capsys.readouterr().out
    assert markdown(sifter_scores(tmp_path)) in told
    assert "| locomo/test | bm25 | 3 | 0 | 0 |" in told and "| locomo/test | chat | ranker | 3 | 0 | 1 | 100.0" in told
    assert "| F1 | EM | tokens shown |" in told
    write_stage(tmp_path / "mini", [chat_row("q", "red")] * 2, "embed")
    assert main([str(tmp_path)]) == 1 and "question_id" in capsys.readouterr().err


@pytest.mark.parametrize("count, each, told", [
    (12, 5, "60 questions about 12 histories: "), (9, 4, "36 questions about 9 histories: ")])
def test_intervals_are_over_histories_where_there_are_ten(tmp_path, count, each, told):
    """Five equal questions about each of twelve histories say no more than twelve questions."""
    rows = [embed_row(f"q{h}-{n}", "b" if h % 2 else "a", [0, 1, 0, 0.0], sample_id=f"c{h}")
            for h in range(count) for n in range(each)]
    write_stage(tmp_path / "m", rows, "embed")
    line, _ = means(scores := sifter_scores(tmp_path), "m")
    right = [100.0 * (h % 2) for h in range(count)]
    apart = interval(right if count >= 10 else right * each, full=100.0)
    found, note = line.scores["recall@1"], next(note for note in scores.notes if "histories: " in note)
    assert found.high - found.low == pytest.approx(apart.high - apart.low, abs=6) and told in note
