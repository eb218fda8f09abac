"""``mem-agent prepare-sessions``: published formats to rows of the sifter, splits, and what is wrong with an input."""

import json
import random

import pyarrow.parquet as pq
import pytest

from mem_agent.data.prepare_sessions import main
from mem_agent.rewards.sessions import embedded_text, question_of


@pytest.fixture
def prepare(tmp_path):
    """The questions that are written, by split; the exit code where none are. ``rows`` is the content of the input."""

    def run(form, rows, *options, name="in.json", dataset="d"):
        if rows is not None:
            (tmp_path / name).write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
        words = ["--format", form, "--input", tmp_path / name, "--dataset", dataset, *options]
        if code := main([*map(str, words), "--output-dir", str(tmp_path / "data")]):
            return code
        tables = {path.stem: pq.read_table(path).to_pylist() for path in (tmp_path / "data" / dataset).iterdir()}
        return {split: [question_of(row, split) for row in table] for split, table in tables.items()}

    return run


# --- LoCoMo ---------------------------------------------------------------------------------------------------------
def conversation(*questions, **sessions):
    talks = {"session_1": [{"speaker": "Ann", "text": "I moved."}], "session_2": [{"speaker": "Bo Li", "text": "Hi"}]}
    dates = {f"session_{n}_date_time": f"{n} May" for n in (1, 2, 9)}  # 9 was never held
    return [{"sample_id": "conv-1", "conversation": {"speaker_a": "Ann", **talks, **sessions, **dates},
             "qa": list(questions)}]


def qa(answer="Lyon", category=4, evidence=("D1:1",), question="Where?"):
    return {"question": question, "answer": answer, "category": category, "evidence": list(evidence)}


def test_a_conversation_names_its_speakers_dates_pictures_and_evidence(prepare, capsys):
    talks = {"session_10": [{"speaker": "小明", "text": "再见"}],
             "session_1": [{"speaker": "Ann", "text": "Look!", "blip_caption": "a cat"}]}
    evidence = [["D1:3", "D2:4"], ["D2:6; D1:17"], ["D:2:26"], ["D02:05"], ["D9:1", "D1:1"], ["", None]]
    answers = [qa("上海", question="小明住在哪里？"), qa(2022, 2), qa("Likely no; she paints", 3), qa("a; b", 1)]
    false = {"question": "What did Bo say?", "category": 5, "evidence": ["D1:1"], "adversarial_answer": "Lyon"}
    questions = [*(qa(evidence=each) for each in evidence), *answers, false]
    asked = prepare("locomo", conversation(*questions, **talks))["test"]
    assert [(s.id, s.date, embedded_text(s)) for s in asked[0].sessions] == [
        ("session_1", "1 May", "<Ann0>Look! [photo: a cat]</Ann>"), ("session_2", "2 May", "<Bo_Li0>Hi</Bo_Li>"),
        ("session_10", "", "<小明0>再见</小明>")]
    assert ["".join(id[-1] for id in each.gold) for each in asked[:6]] == ["12", "12", "2", "2", "1", ""]
    assert [each.answers for each in asked[7:]] == [("2022",), ("Likely no", "Likely no; she paints"), ("a; b",)]
    assert [(each.id, each.kind, each.language) for each in asked[5:8]] == [
        ("conv-1_5", "single-hop", "en"), ("conv-1_6", "single-hop", "zh"), ("conv-1_7", "temporal", "en")]
    assert asked[0].own == {"sample_id": "conv-1", "category": 4, "evidence": ["D1:3", "D2:4"]}
    assert "10 rows\nleft out: 1 rows (1 adversarial, without an answer)" in capsys.readouterr().out


# --- LongMemEval ----------------------------------------------------------------------------------------------------
def entry(id="q", **columns):
    talk = [{"role": "user", "content": "I moved to Lyon.", "has_answer": True}, {"role": "assistant", "content": "O"}]
    return {
        "question_id": id, "question_type": "multi-session", "question": "Where?", "answer": 4,
        "question_date": "2023/05/30 (Tue) 23:40", "answer_session_ids": ["b"], "haystack_session_ids": ["b", "a"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/20 (Sat) 02:11"],
        "haystack_sessions": [talk, [{"role": "user", "content": "Hi"}]], **columns,
    }


def test_sessions_stand_in_the_order_of_time_and_abstention_has_no_gold(prepare):
    asked, undated, abstains, twice = prepare("longmemeval", [
        entry(), entry("u", haystack_dates=["2023/05/20", "soon"]), entry("q_abs"),
        entry("t", haystack_session_ids=["b", "b"])])["test"]
    assert [(s.id, s.date[-5:]) for s in asked.sessions] == [("a", "02:11"), ("b", "02:21")]
    assert (asked.gold, asked.gold_positions, asked.answers, asked.kind) == (("b",), (1,), ("4",), "multi-session")
    assert [s.id for s in undated.sessions] == ["b", "a"]
    assert (abstains.kind, abstains.gold) == ("abstention", ())
    assert [s.id for s in twice.sessions] == ["b#2", "b"] and set(twice.gold) == {"b", "b#2"}


def test_the_published_split_of_longmemeval_that_of_another_file_or_of_so_many_good_rows(prepare, tmp_path, capsys):
    """As MemSifter made it: the list of entries shuffled by ``random`` with seed 42, its first 70% train."""
    order = [f"q{n}" for n in range(50)]
    entries = list(map(entry, order))
    found = prepare("longmemeval", entries, "--test-share", "0.3", name="small.json")
    random.Random(42).shuffle(order)
    ids = {split: {asked.id for asked in rows} for split, rows in found.items()}
    assert ids == {"train": {*order[:35]}, "test": {*order[35:]}}
    by_other = ("--test-share", "0.3", "--split-order", tmp_path / "small.json")
    again = prepare("longmemeval", entries[::-1], *by_other)
    assert {asked.id for asked in again["test"]} == ids["test"]
    left = [entry(question=None), entry(haystack_dates=["x"]), entry("q0"), entry("none", answer_session_ids=[])]
    found = prepare("longmemeval", [*entries, *left], "--test-rows", "3", "--with-gold")
    assert (len(found["test"]), len(found["train"])) == (3, 47)  # of those that are written
    told = capsys.readouterr()
    assert "4 rows (1 without a gold session; 3 bad)" in told.out
    for line, row, reason in zip(told.err.splitlines()[-3:], (51, 52, 53), ("question", "dates", "'q0'"), strict=True):
        assert f"in.json: row {row}" in line and reason in line


# --- PersonaMem -----------------------------------------------------------------------------------------------------
PERSONA = {"role": "system", "content": "Current user persona: Kai."}


def message(content, role="user"):
    return {"role": role, "content": content}


TALKS = [PERSONA, message("a" * 100), PERSONA, message("b" * 100), message("B" * 100, "assistant"), PERSONA,
         message("c" * 100), PERSONA, message("the future")]


@pytest.fixture
def persona(prepare, tmp_path):
    """The question about TALKS by version 1."""
    (tmp_path / "contexts.jsonl").write_text(json.dumps({"c1": TALKS}))

    def run(**columns):
        row = {"question_id": "q1", "question_type": "recall", "correct_answer": "(b)", "shared_context_id": "c1",
               "user_question_or_message": "What, do you think?", "end_index_in_shared_context": 7,
               "all_options": "['(a) tea', \"(b) coffee, as you've said\", '(c) milk', '(d) rum']", **columns}
        return prepare("personamem", [row], "--contexts", tmp_path / "contexts.jsonl")["test"][0]

    return run


def test_a_context_is_cut_at_its_system_messages_and_ends_where_the_question_is_asked(persona):
    asked = persona()
    assert [[(turn.role, turn.content[0]) for turn in s.turns] for s in asked.sessions] == [
        [("system", "C"), ("user", "a")], [("user", "b"), ("assistant", "B")], [("user", "c")]]
    assert asked.answers == ("coffee, as you've said", "(b)") and len(asked.options) == 4
    assert (asked.question, asked.kind, asked.gold) == ("What, do you think?", "recall", ())
    assert asked.own == {"shared_context_id": "c1", "gold_by": ""}


@pytest.mark.parametrize(("back", "blocks", "gold"), [  # characters: session 0 to 126 of 426, session 1 to 326
    (90, 2, "session_0"), (50, 1, "session_1"), (0, 0, "session_2"),
    (71, 1, "session_1"),  # at 124 characters: in session 0 by estimate, 2 from session 1, which the blocks name
    (90, 1, "session_0"),  # blocks that lead elsewhere are not believed
])
def test_the_session_as_far_back_as_the_evidence_is_gold(persona, back, blocks, gold):
    asked = persona(distance_to_ref_in_tokens=back, context_length_in_tokens=100, distance_to_ref_in_blocks=blocks)
    assert (asked.gold, asked.own["gold_by"]) == ((gold,), "distance")


def test_version_2_reads_histories_from_a_folder_and_gold_from_quotations(prepare, tmp_path, capsys):
    talk = [PERSONA, *(m for n in range(17) for m in (message(f"u{n}"), message(f"a{n}", "assistant")))]
    (tmp_path / "h.json").write_text(json.dumps({"metadata": {}, "chat_history": talk}))
    row = {"persona_id": "9", "chat_history_32k_link": "h.json", "correct_answer": "tea", "pref_type": "neutral",
           "user_query": "{'role': 'user', 'content': 'Hi?'}", "incorrect_answers": '["coffee", "milk", "rum"]',
           "related_conversation_snippet": json.dumps([message("u11"), message("a11", "assistant")])}
    absent = row | {"chat_history_32k_link": "none.json"}
    (asked,) = prepare("personamem", [row, absent], "--contexts", tmp_path)["test"]
    assert [len(s.turns) for s in asked.sessions] == [11, 10, 10, 4]  # the first holds the persona as well
    assert (asked.gold, asked.own["gold_by"], asked.question) == (("session_2",), "quotation", "Hi?")
    assert asked.answers == ("tea", "(c)") and asked.options == ("(a) rum", "(b) milk", "(c) tea", "(d) coffee")
    assert "none.json" in capsys.readouterr().err


# --- rows and the command -------------------------------------------------------------------------------------------
def test_chinese_rows_are_written_as_they_are_and_read_again(prepare, tmp_path):
    talk = [[{"role": "user", "content": "我搬到了上海。"}], [{"role": "小王", "content": "你好"}]]
    rows = [{"question": "小明住在哪里？", "answer": "上海", "haystack_sessions": talk,
             "answer_session_ids": ["session_0"], "source": "PerLTQA", "score": n / 2, "tags": ["a"]}
            for n in range(3)]
    asked = prepare("rows", rows, "--split", "dev", name="zh.json")["dev"]
    assert [a.id for a in asked] == ["zh_0", "zh_1", "zh_2"] and asked[0].language == "zh"
    assert asked[1].own == {"source": "PerLTQA", "score": 0.5, "tags": ["a"]} and asked[1].gold == ("session_0",)
    assert prepare("rows", None, name="data/d/dev.parquet", dataset="e")["test"] == asked


@pytest.mark.parametrize(("rows", "words", "code", "says"), [
    (None, [], 2, "in.json"), (conversation(qa(), qa()), ["--test-rows", "5"], 2, "5 of 2 to the test"),
    (conversation(qa()), ["--format", "personamem"], 2, "--contexts"), ([], [], 2, "in.json"),
    ([{"qa": 1}], [], 1, "--format"), ([{"qa": 1}], ["--test-rows", "400"], 1, "--format"),
])
def test_what_cannot_be_used_is_said_and_leaves_the_old_output(prepare, tmp_path, capsys, rows, words, code, says):
    prepare("locomo", conversation(qa()), name="old.json")
    before = (tmp_path / "data/d/test.parquet").read_bytes()
    assert prepare("locomo", rows, *words) == code and says in capsys.readouterr().err
    assert [path.read_bytes() for path in (tmp_path / "data/d").iterdir()] == [before]
