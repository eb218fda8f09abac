"""Stage 3: what is shown and asked, what is kept of replies and failures, and that nothing is asked twice."""

import re

import pytest

from mem_agent.memsifter import answer
from mem_agent.memsifter.table import bm25_order
from mem_agent.rewards.sessions import HistoryQuestion, Session, Turn
from mem_agent.tests.helpers.fake_chat import FakeChat, chat_server
from mem_agent.tests.helpers.stage_rows import embedded_row, history_question, read_rows, write_rows

KEY = "sk-secret-0123456789"
OPTIONS = {"--top-k": 2, "--max-input-tokens": 1000, "--model-name": "served", "--embedding-model-name": "emb",
           "--output-dir": "out"}
NUMBER = re.compile(r"number 10(\d+)")


def words(options):
    return [str(word) for pair in (OPTIONS | dict(options)).items() for word in pair]


@pytest.fixture
def infer(folder, monkeypatch):
    """Runs the stage by a server at BASE_URL, which answers so: the exit code, and the server."""
    def run(reply="yes", options=(), chat=None, **env):
        chat = chat or FakeChat(reply if callable(reply) else lambda body, number: reply)
        with chat_server(chat):
            for name, value in {"BASE_URL": chat.url, **env}.items():
                monkeypatch.setenv(name, str(value))
            return answer.main(words(options)), chat

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
])
def test_methods_and_budgets(infer, method, options, shown):
    assert infer(options=options, METHODS=method)[0] == 0  # an option has the variable of its name as default
    assert [row["shown_session_idx"] for row in rows_of(method)] == [shown] * 10


@pytest.mark.parametrize("question, talks, order", [
    ("Where is the key?", ("Ben sleeps", "We talked a lot", "the key is red", "Ben eats"), [2, 0, 1, 3]),
    ("小明住在哪里？", ("今天天气很好", "我们去吃饭吧", "小明搬到了上海居住"), [2, 0, 1]),  # by characters
    ("What did Caroline run?", ("Melanie: I ran a race", "Caroline: I ran a race"), [1, 0]),  # the speaker
    ("key", (), []),
])
def test_bm25_ranks_the_rare_word_first_and_the_rest_by_time(question, talks, order):
    said = [talk.rpartition(": ") for talk in talks]
    sessions = tuple(Session(str(n), (Turn(name or "user", text),)) for n, (name, _, text) in enumerate(said))
    assert bm25_order(HistoryQuestion("q", question, (), sessions)) == order


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


def test_failed_and_bad_rows_are_counted_and_only_they_are_asked_again_and_no_key_is_written(folder, infer, capsys):
    """The server's refusals repeat the key."""
    def some_fail(body, number):
        return 400 if NUMBER.search(body["messages"][0]["content"])[1] in "37" else f"first {KEY}"

    rows = [embedded_row(history_question(n)) for n in range(10)]
    rows[5]["session_tokens"] = [1, 2]
    write_rows(folder / "out/emb/set_test_embed.parquet", rows)
    assert infer(chat=FakeChat(some_fail, key=KEY), API_KEY=KEY)[0] == 3
    told = capsys.readouterr()
    assert "3 failed" in told.out and KEY not in told.out + told.err
    found = rows_of()
    assert [n for n, row in enumerate(found) if row["api_status"] != "ok"] == [3, 5, 7]
    assert "400" in found[3]["api_status"] and found[3]["generated_text"] == ""
    assert not [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    code, chat = infer("second")
    assert code == 3 and numbers(chat) == [3, 7]
    assert [row["generated_text"][:6] for row in rows_of()] == [*["first "] * 3, "second", "first ", "", "first ",
                                                                "second", *["first "] * 2]
    assert not infer()[1].bodies


def test_what_no_row_could_pass_ends_it_in_one_line(infer, capsys):
    code, chat = infer(401)
    assert code == 1 and capsys.readouterr().err.splitlines()[-1].startswith(f"error: {chat.url}/v1: ")


@pytest.mark.parametrize("options, url, named", [
    ({"--methods": "never"}, "http://a", "session-ranking"), ({"--datasets": "none"}, "http://a", "session-embedding"),
    ({}, "", "BASE_URL"), ({"--model": "chat"}, "http://a", "BASE_URL"),
    ({"--model-name": ""}, "http://a", "--model-name"),
])
def test_one_line_for_what_is_missing_or_wrong(folder, monkeypatch, capsys, options, url, named):
    monkeypatch.setenv("BASE_URL", url)
    assert answer.main(words(options)) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and named in line


def test_a_model_is_served_here_for_as_long_as_it_is_asked_and_gets_no_key(folder, monkeypatch, engines):
    begun, chat = engines
    monkeypatch.setenv("API_KEY", KEY)
    own = {"--model": "ranker", "--model-name": "", "--max-output-token": 100}
    assert answer.main(words(own | {"--max-input-tokens": 8192})) == 1 and not begun  # no context holds a question
    assert answer.main(words(own)) == 0 and answer.main(words(own)) == 0
    assert begun == [1000 + 100 + 1024, "stopped"], "nothing was left to ask, so nothing was started again"
    assert {body["model"] for body in chat.bodies} == {"policy"} and len(rows_of(model="ranker")) == 10
    assert KEY not in str(chat.headers)
