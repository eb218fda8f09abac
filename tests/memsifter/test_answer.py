"""Stage 3: what is shown and asked, what is kept of replies and failures, and that nothing is asked twice."""

import re

import pytest

from mem_agent.memsifter import answer
from mem_agent.tests.helpers.fake_chat import HANG, FakeChat, chat_server
from mem_agent.tests.helpers.stage_rows import chinese_question, embedded_row, history_question, read_rows, write_rows

KEY = "sk-secret-0123456789"
OPTIONS = {"--top-k": 2, "--max-input-tokens": 1000, "--chat-retries": 0, "--model-name": "served",
           "--embedding-model-name": "emb", "--output-dir": "out"}
NUMBER = re.compile(r"number 10(\d+)")


def words(options):
    return [str(word) for pair in (OPTIONS | options).items() for word in pair]


@pytest.fixture
def infer(folder, monkeypatch):
    """Runs the stage by a server at BASE_URL, which answers so: the exit code, and the server."""
    def run(reply="yes", options=(), chat=None, **env):
        chat = chat or FakeChat(reply if callable(reply) else lambda body, number: reply)
        with chat_server(chat):
            for name, value in {"BASE_URL": chat.url, **env}.items():
                monkeypatch.setenv(name, str(value))
            return answer.main(words(dict(options))), chat

    return run


def rows_of(method="emb", model="served", dataset="set"):
    return read_rows(f"out/{model}/{method}/{dataset}_test_chat.parquet")


def asked(chat):
    return [body["messages"][0]["content"] for body in chat.bodies]


def numbers(chat):
    return sorted(int(NUMBER.search(text)[1]) for text in asked(chat))


def test_the_best_sessions_are_shown_in_the_order_of_time(infer, capsys):
    code, chat = infer("<think>so</think>A <answer>Turin</answer>", {"--max-output-token": 7}, TEMPERATURE=0, SEED=3)
    rows = rows_of()
    assert code == 0 and [row["question_id"] for row in rows] == [f"q{n}" for n in range(10)]
    assert all(row["shown_session_idx"] == [0, 2] and row["predicted_answer"] == "Turin" for row in rows)
    assert all(row["api_status"] == "ok" and row["generated_text"].startswith("<think>") for row in rows)
    assert rows[0]["shown_tokens"] == sum(rows[0]["session_tokens"][n] for n in (0, 2))
    assert "similarities" in rows[0] and "haystack_sessions" in rows[0]
    text = next(text for text in asked(chat) if "number 104?" in text)
    assert text.index("<session0> <date>2023/05/01</date>") < text.index("<session1> <date>2023/05/03</date>")
    assert "I moved to Turin" in text and "note 1." not in text and "2023/06/01" in text
    assert {(body["model"], body["max_tokens"], body["temperature"]) for body in chat.bodies} == {("served", 7, 0.0)}
    assert len({body["seed"] for body in chat.bodies}) == 10
    assert "10 of 10" in capsys.readouterr().out


@pytest.mark.parametrize("method, options, shown", [
    ("bm25", {"--top-k": 1}, [2]), ("full", {}, [0, 1, 2, 3, 4, 5]), ("full", {"--full-input-tokens": 30}, [4, 5]),
    ("emb", {"--max-input-tokens": 20}, [2]), ("emb", {"--max-input-tokens": 1}, []),
    ("emb", {"--top-k": 4}, [0, 1, 2, 3]),
])
def test_methods_and_budgets(infer, method, options, shown):
    assert infer(options=options, METHODS=method)[0] == 0  # an option has the variable of its name as default
    assert [row["shown_session_idx"] for row in rows_of(method)] == [shown] * 10


def test_a_ranking_is_completed_by_similarity_and_one_that_is_repaired_is_asked_again_alone(folder, infer):
    rankings = [[5], [4, 3, 1], []]
    for reply, shown in (("first", [[2, 5], [3, 4], [0, 2]]), ("second", [[2, 5], [3, 4], [1, 2]])):
        rows = [embedded_row(history_question(n)) | {"haystack_session_gen_rankings": rankings[n]} for n in range(3)]
        write_rows(folder / "out/org/mine/set_test_ranking.parquet", rows)
        code, chat = infer(reply, {"--methods": "org/mine"})
        assert code == 0 and [row["shown_session_idx"] for row in rows_of("org/mine")] == shown
        rankings[2] = [1]
    assert numbers(chat) == [2]
    assert [row["generated_text"] for row in rows_of("org/mine")] == ["first", "first", "second"]


def test_a_memory_from_elsewhere_is_shown_as_it_is(folder, infer):
    rows = [embedded_row(history_question(0)) | {"retrieved_memory": "The user lives in {question} Turin."},
            embedded_row(history_question(1)) | {"retrieved_memory": None}]
    write_rows(folder / "out/a_mem/set_test_retrieved_memory.parquet", rows)
    code, chat = infer(options={"--methods": "a_mem"})
    (text,) = asked(chat)
    assert code == 3 and "The user lives in {question} Turin." in text
    assert rows_of("a_mem")[0]["shown_session_idx"] == [] and "retrieved_memory" in rows_of("a_mem")[1]["api_status"]


def test_a_chinese_history_is_asked_and_answered_in_chinese(folder, infer):
    write_rows(folder / "out/emb/zh_test_embed.parquet", [embedded_row(chinese_question(n)) for n in range(3)])
    code, chat = infer("<think>他说过。</think><answer>里昂</answer>", {"--datasets": "zh"})
    assert code == 0 and len(asked(chat)) == 3
    for text in asked(chat):
        assert "我搬到了里昂" in text and "请根据这些记录" in text and "提问时间：2023年6月1日" in text
    assert [row["predicted_answer"] for row in rows_of(dataset="zh")] == ["里昂"] * 3


def test_another_wording_is_asked_and_keeps_its_own_rows(folder, infer, capsys):
    (folder / "own.yaml").write_text("en: {chat: 'Look: {history} Now say: {question}'}")
    code, chat = infer(options={"--prompts": "own.yaml"})
    assert code == 0 and all(text.startswith("Look: ") for text in asked(chat))
    assert infer()[0] == 1 and "set_test_chat.parquet" in capsys.readouterr().err


def test_failed_rows_are_counted_and_only_they_are_asked_again(infer, capsys):
    def some_fail(body, number):
        return 500 if NUMBER.search(body["messages"][0]["content"])[1] in "37" else "first"

    assert infer(some_fail)[0] == 3 and "2 failed" in capsys.readouterr().out
    rows = rows_of()
    assert [n for n, row in enumerate(rows) if row["api_status"] != "ok"] == [3, 7]
    assert "500" in rows[3]["api_status"] and rows[3]["generated_text"] == ""
    code, chat = infer("second")
    assert code == 0 and numbers(chat) == [3, 7]
    assert [row["generated_text"] for row in rows_of()] == ["second" if n in (3, 7) else "first" for n in range(10)]
    assert not infer()[1].bodies


def test_what_no_row_could_pass_ends_it_in_one_line(infer, capsys):
    code, chat = infer(401)
    assert code == 1 and capsys.readouterr().err.splitlines()[-1].startswith(f"error: {chat.url}/v1: ")
    code, chat = infer(HANG, {"--chat-timeout": 0.2})
    assert code == 3 and rows_of()[0]["api_status"].startswith("timeout")


def test_the_name_is_that_of_the_only_model_there(infer, capsys):
    assert infer(options={"--model-name": ""}, chat=FakeChat(models=("org/only",)))[0] == 0
    assert rows_of(model="org/only")
    assert infer(options={"--model-name": ""}, chat=FakeChat(models=("b", "a")))[0] == 1
    assert "--model-name" in capsys.readouterr().err


@pytest.mark.parametrize("options, url, named", [
    ({"--methods": "never"}, "http://a", "session-ranking"), ({"--datasets": "none"}, "http://a", "session-embedding"),
    ({}, "", "BASE_URL"), ({"--model": "chat"}, "http://a", "BASE_URL"),
])
def test_one_line_for_what_is_missing_or_wrong(folder, monkeypatch, capsys, options, url, named):
    monkeypatch.setenv("BASE_URL", url)
    assert answer.main(words(options)) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and named in line


def test_the_key_is_in_no_file_and_no_line(folder, infer, capsys):
    chat = FakeChat(lambda body, number: 400 if number % 2 else "so", key=KEY)
    assert infer(options={"--chat-concurrency": 1}, chat=chat, API_KEY=KEY)[0] == 3
    told = capsys.readouterr()
    assert len(chat.bodies) == 10 and KEY not in told.out + told.err
    assert not [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_bad_rows_have_a_status_and_the_others_their_answers(folder, infer):
    rows = [embedded_row(history_question(n)) for n in range(3)]
    rows[0]["question"], rows[1]["session_tokens"] = " ", [1, 2]
    write_rows(folder / "out/emb/bad_test_embed.parquet", rows)
    assert infer(options={"--datasets": "bad"})[0] == 3
    assert [row["api_status"] == "ok" for row in rows_of(dataset="bad")] == [False, False, True]


def test_a_model_is_served_here_for_as_long_as_it_is_asked_and_gets_no_key(folder, monkeypatch, engines, capsys):
    begun, chat = engines
    monkeypatch.setenv("API_KEY", KEY)
    own = {"--model": "ranker", "--model-name": "", "--max-output-token": 100}
    assert answer.main(words(own | {"--max-input-tokens": 8192})) == 1
    assert "--max-input-tokens" in capsys.readouterr().err and not begun  # a context that holds no question
    assert answer.main(words(own)) == 0 and answer.main(words(own)) == 0
    assert begun == [1000 + 100 + 1024, "stopped"], "nothing was left to ask, so nothing was started again"
    assert {body["model"] for body in chat.bodies} == {"policy"} and len(rows_of(model="ranker")) == 10
    assert KEY not in str(chat.headers)
