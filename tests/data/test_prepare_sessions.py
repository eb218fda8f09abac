"""``mem-agent prepare-sessions``: published formats to rows of the sifter, splits, and what is wrong with an input."""

import json
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mem_agent.data.prepare_sessions import main
from mem_agent.rewards.sessions import embedded_text, question_of


def run(tmp_path, *words, dataset="d"):
    return main([*map(str, words), "--dataset", dataset, "--output-dir", str(tmp_path / "data")])


def read(tmp_path, split="test", dataset="d"):
    rows = pq.read_table(tmp_path / "data" / dataset / f"{split}.parquet").to_pylist()
    return [question_of(row, split, number) for number, row in enumerate(rows)]


def write(path: Path, value) -> Path:
    path.write_text(json.dumps(value))
    return path


# --- LoCoMo ---------------------------------------------------------------------------------------------------------
def turn(speaker, text, **more):
    return {"speaker": speaker, "dia_id": "D1:1", "text": text, **more}


def conversation(*questions, **sessions):
    talks = sessions or {"session_1": [turn("Ann", "I moved to Lyon.")], "session_2": [turn("Bo Li", "Hi")]}
    dates = {f"session_{n}_date_time": f"{n} May" for n in (1, 2, 9)}  # 9 was never held
    return {"sample_id": "conv-1", "conversation": {"speaker_a": "Ann", **talks, **dates}, "qa": list(questions)}


def qa(question="Where?", answer="Lyon", category=4, evidence=("D1:1",), **more):
    return {"question": question, "answer": answer, "category": category, "evidence": list(evidence), **more}


def locomo(tmp_path, *questions, **sessions):
    path = write(tmp_path / "in.json", [conversation(*questions, **sessions)])
    code = run(tmp_path, "--format", "locomo", "--input", path)
    return read(tmp_path) if code == 0 else code


def test_a_conversation_names_its_speakers_dates_and_pictures(tmp_path):
    asked, chinese = locomo(
        tmp_path, qa(), qa("小明住在哪里？", "上海"), session_2=[turn("Bo Li", "", blip_caption="a dog")],
        session_10=[turn("小明", "再见")], session_1=[turn("Ann", "Look!", blip_caption="a cat", img_url=["x"])],
    )
    assert [(s.id, s.date, embedded_text(s)) for s in asked.sessions] == [
        ("session_1", "1 May", "<Ann0>Look! [photo: a cat]</Ann>"),
        ("session_2", "2 May", "<Bo_Li0>[photo: a dog]</Bo_Li>"),
        ("session_10", "", "<小明0>再见</小明>"),
    ]
    assert (asked.id, asked.kind, asked.gold, asked.answers) == ("conv-1_0", "single-hop", ("session_1",), ("Lyon",))
    assert asked.own == {"sample_id": "conv-1", "category": 4, "evidence": ["D1:1"]}
    assert (asked.language, chinese.language) == ("en", "zh")


@pytest.mark.parametrize(
    ("evidence", "gold"),
    [
        (["D1:3", "D2:4"], ("session_1", "session_2")), (["D2:6; D1:17"], ("session_1", "session_2")),
        (["D:2:26"], ("session_2",)), (["D02:05"], ("session_2",)), (["D9:1", "D1:1"], ("session_1",)),
        (["", None], ()), ("D2:1", ("session_2",)),
    ],
)
def test_evidence_leads_to_gold_sessions(tmp_path, evidence, gold):
    assert locomo(tmp_path, qa() | {"evidence": evidence})[0].gold == gold


@pytest.mark.parametrize(
    ("answer", "category", "answers"),
    [(2022, 2, ("2022",)), (0, 4, ("0",)), ("Likely no; she paints", 3, ("Likely no", "Likely no; she paints")),
     ("a; b", 1, ("a; b",)), ("x", 3, ("x",))],
)
def test_answers(tmp_path, answer, category, answers):
    assert locomo(tmp_path, qa(answer=answer, category=category))[0].answers == answers


def test_adversarial_questions_are_left_out_and_counted(tmp_path, capsys):
    false = {"question": "What did Bo say?", "category": 5, "evidence": ["D1:1"], "adversarial_answer": "Lyon"}
    assert [asked.id for asked in locomo(tmp_path, qa(), false)] == ["conv-1_0"]
    assert "1 rows\nleft out: 1 rows (1 adversarial, without an answer)" in capsys.readouterr().out


# --- LongMemEval ----------------------------------------------------------------------------------------------------
def entry(id="q", **columns):
    talk = [{"role": "user", "content": "I moved to Lyon.", "has_answer": True}, {"role": "assistant",
                                                                                  "content": "Oh"}]
    return {
        "question_id": id, "question_type": "multi-session", "question": "Where?", "answer": 4,
        "question_date": "2023/05/30 (Tue) 23:40", "haystack_dates": ["2023/05/20 (Sat) 02:21",
                                                                      "2023/05/20 (Sat) 02:11"],
        "haystack_session_ids": ["b", "a"], "haystack_sessions": [talk, [{"role": "user", "content": "Hi"}]],
        "answer_session_ids": ["b"], **columns,
    }


def longmemeval(tmp_path, *entries, options=()):
    path = write(tmp_path / "in.json", list(entries))
    code = run(tmp_path, "--format", "longmemeval", "--input", path, *options)
    return read(tmp_path) if code == 0 else code


def test_sessions_stand_in_the_order_of_time(tmp_path):
    (asked,) = longmemeval(tmp_path, entry())
    assert [(s.id, s.date) for s in asked.sessions] == [
        ("a", "2023/05/20 (Sat) 02:11"), ("b", "2023/05/20 (Sat) 02:21")]
    assert (asked.gold, asked.gold_positions, asked.answers, asked.kind) == (("b",), (1,), ("4",), "multi-session")
    assert asked.own == {"evidence_session_ids": ["b"], "evidence_turns": ["b:0"]}
    assert asked.date == "2023/05/30 (Tue) 23:40"


def test_a_date_that_cannot_be_read_leaves_the_order(tmp_path):
    for dates in (["2023/05/20", "soon"], [], ["2023/05/20", None]):
        (asked,) = longmemeval(tmp_path, entry(haystack_dates=dates))
        assert [s.id for s in asked.sessions] == ["b", "a"]


def test_abstention_questions_have_no_gold_and_session_ids_that_repeat_are_told_apart(tmp_path):
    asked, twice = longmemeval(tmp_path, entry("q_abs", answer="You never said."),
                               entry(haystack_session_ids=["b", "b"]))
    assert (asked.kind, asked.gold, asked.own["evidence_session_ids"]) == ("abstention", (), ["b"])
    assert [s.id for s in twice.sessions] == ["b#2", "b"] and set(twice.gold) == {"b", "b#2"}


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"question": None}, "no question"), ({"answer": ""}, "no answer"),
        ({"haystack_dates": ["x"]}, "dates"),
        ({"haystack_sessions": [["x"], []]}, "turn"),
    ],
)
def test_a_bad_entry_is_left_out_and_told(tmp_path, capsys, columns, says):
    assert [asked.id for asked in longmemeval(tmp_path, entry("bad", **columns), entry("good"))] == ["good"]
    told = capsys.readouterr()
    assert says in told.err and "in.json: row 1" in told.err and "1 rows (1 bad)" in told.out


def test_the_published_split_of_longmemeval(tmp_path):
    """As MemSifter made it: the list of entries shuffled by ``random`` with seed 42, its first 70% train."""
    names = [f"q{n}" for n in range(50)]
    expected = list(names)
    random.Random(42).shuffle(expected)
    longmemeval(tmp_path, *map(entry, names), options=["--test-share", "0.3"])
    found = {split: [asked.id for asked in read(tmp_path, split)] for split in ("train", "test")}
    assert found == {"train": sorted(expected[:35], key=names.index), "test": sorted(expected[35:], key=names.index)}


def test_the_ids_of_one_file_decide_for_another(tmp_path):
    names = [f"q{n}" for n in range(20)]
    longmemeval(tmp_path, *map(entry, names), options=["--test-share", "0.3"])
    first = {asked.id for asked in read(tmp_path)}
    small = (tmp_path / "in.json").rename(tmp_path / "small.json")
    longmemeval(tmp_path, *map(entry, reversed(names)), options=["--test-share", "0.3", "--split-order", small])
    assert {asked.id for asked in read(tmp_path)} == first
    assert longmemeval(tmp_path, *map(entry, [*names, "new"]),
                       options=["--test-share", "0.3", "--split-order", small]) == 2


def test_a_test_of_so_many_rows_counts_those_that_are_written(tmp_path):
    bad = [entry(f"b{n}", question="") for n in range(9)]
    longmemeval(tmp_path, *bad, *(entry(f"q{n}") for n in range(9)), options=["--test-rows", "3"])
    assert (len(read(tmp_path)), len(read(tmp_path, "train"))) == (3, 6)


# --- PersonaMem -----------------------------------------------------------------------------------------------------
PERSONA = {"role": "system", "content": "Current user persona: Kai."}
OPTIONS = "['(a) tea', \"(b) coffee, as you've said\", '(c) milk', '(d) rum']"


def message(content, role="user"):
    return {"role": role, "content": content}


def persona_v1(tmp_path, messages, options=(), **columns):
    contexts = {"x": [], "bare": [message("", "system")] * len(messages), "c1": messages}
    (tmp_path / "contexts.jsonl").write_text("".join(json.dumps({id: one}) + "\n" for id, one in contexts.items()))
    row = {"persona_id": 7, "question_id": "q1", "question_type": "recall", "topic": "food", "correct_answer": "(b)",
           "user_question_or_message": "What, do you think?", "all_options": OPTIONS, "shared_context_id": "c1",
           "end_index_in_shared_context": len(messages), **columns}
    cells = ['"' + str(value).replace('"', '""') + '"' for value in row.values()]
    (tmp_path / "q.csv").write_text(",".join(row) + "\n" + ",".join(cells) + "\n", encoding="utf-8")
    code = run(tmp_path, "--format", "personamem", "--input", tmp_path / "q.csv", "--contexts",
               tmp_path / "contexts.jsonl", *options)
    return read(tmp_path)[0] if code == 0 else code


TALKS = [PERSONA, message("a" * 100), PERSONA, message("b" * 100), message("B" * 100, "assistant"), PERSONA,
         message("c" * 100)]


def test_a_context_is_cut_at_its_system_messages_and_ends_where_the_question_is_asked(tmp_path):
    asked = persona_v1(tmp_path, [*TALKS, PERSONA, message("the future")], end_index_in_shared_context=7)
    assert [[(turn.role, turn.content[0]) for turn in s.turns] for s in asked.sessions] == [
        [("system", "C"), ("user", "a")], [("user", "b"), ("assistant", "B")], [("user", "c")]]
    assert asked.answers == ("coffee, as you've said", "(b)") and len(asked.options) == 4
    assert (asked.question, asked.kind, asked.gold) == ("What, do you think?", "recall", ())
    assert asked.own == {"persona_id": "7", "topic": "food", "topic_query": "", "shared_context_id": "c1",
                         "gold_by": ""}


@pytest.mark.parametrize(
    ("back", "blocks", "gold"),
    [  # characters: session 0 to 126 of 426, session 1 to 326
        (90, 2, "session_0"), (50, 1, "session_1"), (5, 0, "session_2"), (0, 0, "session_2"),
        (71, 1, "session_1"),  # at 124 characters: in session 0 by estimate, 2 from session 1, which the blocks name
        (71, 2, "session_0"), (90, 1, "session_0"),  # blocks that lead elsewhere are not believed
    ],
)
def test_the_session_as_far_back_as_the_evidence_is_gold(tmp_path, back, blocks, gold):
    asked = persona_v1(tmp_path, TALKS, distance_to_ref_in_tokens=back, context_length_in_tokens=100,
                       distance_to_ref_in_blocks=blocks)
    assert (asked.gold, asked.own["gold_by"]) == ((gold,), "distance")


@pytest.mark.parametrize(
    ("columns", "says"),
    [({"correct_answer": "(x)"}, "correct_answer"), ({"all_options": "__import__('os')"}, "all_options"),
     ({"shared_context_id": "nowhere"}, "'nowhere'"), ({"end_index_in_shared_context": 99}, "99 of 7"),
     ({"end_index_in_shared_context": "x"}, "'x'"), ({"shared_context_id": "x"}, "messages"),
     ({"shared_context_id": "bare"}, "sessions")],
)
def test_a_bad_question_about_a_persona(tmp_path, capsys, columns, says):
    assert persona_v1(tmp_path, TALKS, **columns) == 1  # there is no other row
    assert says in capsys.readouterr().err


def persona_v2(tmp_path, history, **columns):
    (tmp_path / "data").mkdir(exist_ok=True)
    write(tmp_path / "data" / "h.json", history)
    row = {"persona_id": "9", "chat_history_32k_link": "data/h.json",
           "user_query": "{'role': 'user', 'content': 'Hi?'}",
           "correct_answer": "tea", "incorrect_answers": '["coffee", "milk", "rum"]', "pref_type": "neutral",
           "related_conversation_snippet": json.dumps([message("u11"), message("a11", "assistant")]), **columns}
    path = write(tmp_path / "q.json", [row])
    code = run(tmp_path, "--format", "personamem", "--input", path, "--contexts", tmp_path)
    return read(tmp_path)[0] if code == 0 else code


def test_version_2_reads_histories_from_a_folder_and_gold_from_quotations(tmp_path, capsys):
    talk = [PERSONA, *(m for n in range(17) for m in (message(f"u{n}"), message(f"a{n}", "assistant")))]
    asked = persona_v2(tmp_path, {"metadata": {}, "chat_history": talk})
    assert [len(s.turns) for s in asked.sessions] == [11, 10, 10, 4]  # the first holds the persona as well
    assert asked.gold == ("session_2",) and asked.own["gold_by"] == "quotation"
    right = asked.options[asked.options.index(f"{asked.answers[1]} tea")]
    assert asked.answers == ("tea", right[:3]) and sorted(o[:3] for o in asked.options) == ["(a)", "(b)", "(c)", "(d)"]
    assert persona_v2(tmp_path, talk).options == asked.options  # a bare list, and the same order again
    assert persona_v2(tmp_path, talk, chat_history_32k_link="data/none.json") == 1
    assert "data/none.json" in capsys.readouterr().err


# --- rows -----------------------------------------------------------------------------------------------------------
def test_chinese_rows_are_written_as_they_are(tmp_path):
    talk = [[{"role": "user", "content": "我搬到了上海。"}], [{"role": "小王", "content": "你好"}]]
    rows = [{"question": "小明住在哪里？", "answer": "上海", "haystack_sessions": json.dumps(talk, ensure_ascii=False),
             "answer_session_ids": ["session_0"], "source": "PerLTQA", "score": n / 2,
             "tags": ["a"]} for n in range(3)]
    path = tmp_path / "zh.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    assert run(tmp_path, "--format", "rows", "--input", path, "--split", "dev") == 0
    asked = read(tmp_path, "dev")
    assert [a.id for a in asked] == ["zh_0", "zh_1", "zh_2"] and asked[0].language == "zh"
    assert asked[1].own == {"source": "PerLTQA", "score": 0.5, "tags": ["a"]} and asked[1].gold == ("session_0",)
    again = tmp_path / "data" / "d" / "dev.parquet"
    assert run(tmp_path, "--format", "rows", "--input", again, dataset="e") == 0
    assert read(tmp_path, dataset="e") == asked


# --- the command ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--format", "locomo", "--input", "none.json"], "none.json"),
        (["--split", "dev", "--test-share", "0.5"], "--split"), (["--format", "personamem"], "--contexts"),
        (["--test-rows", "5"], "5 of 2 to the test"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_in_one_line(tmp_path, capsys, words, says):
    path = write(tmp_path / "in.json", [conversation(qa(), qa())])
    assert run(tmp_path, "--format", "locomo", "--input", path, *words) == 2
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1
    assert not list(tmp_path.glob("data/d/*"))


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [("[]", 1, "no row for test"), ("[7]", 1, "no row for test"), ('[{"qa": 1}]', 1, "expected LoCoMo's format"),
     ('[{"a": 1', 2, "not JSON"), ("x", 1, "JSON")],
)
def test_an_input_that_is_no_locomo_leaves_the_old_output(tmp_path, capsys, content, code, says):
    locomo(tmp_path, qa())
    before = (tmp_path / "data/d/test.parquet").read_bytes()
    (tmp_path / "in.json").write_text(content)
    assert run(tmp_path, "--format", "locomo", "--input", tmp_path / "in.json") == code
    assert says in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "data/d").iterdir()] == ["test.parquet"]
    assert (tmp_path / "data/d/test.parquet").read_bytes() == before


def test_an_id_belongs_to_one_row_and_a_limit_to_each_file(tmp_path, capsys):
    rows = [entry(f"q{n}") for n in range(20)]
    longmemeval(tmp_path, rows[0], *rows, options=["--test-share", "0.3", "--limit", "4"])
    assert (len(read(tmp_path)), len(read(tmp_path, "train"))) == (4, 4)
    assert "question_id 'q0' is that of a row before" in capsys.readouterr().err
