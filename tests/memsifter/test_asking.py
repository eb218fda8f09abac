"""Stages 2 and 3: what is asked, how replies become rankings and answers, and that nothing is asked twice."""

import json
import re

import pytest

from mem_agent.memsifter import answer, rank
from mem_agent.tests.helpers.fake_router import FakeRouter, chat_message, chat_model, running_beside
from mem_agent.tests.helpers.stage_rows import chinese_question, embedded_row, history_question, read_rows, write_rows
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

KEY = "sk-secret-0123456789"
NUMBER = re.compile(r"number 10(\d+)")
OPTIONS = {
    rank: {"--model": "ranker"},
    answer: {"--top-k": 2, "--max-input-tokens": 1000, "--model-name": "served"},
}


def run(stage, options=()):
    given = {"--output-dir": "out", "--embedding-model-name": "emb"} | OPTIONS[stage] | dict(options)
    return stage.main([str(word) for pair in given.items() for word in pair])


@pytest.fixture
def ask(folder, monkeypatch):
    """Runs a stage by a server at BASE_URL, which answers so: the exit code, and the server."""
    def ask(stage, chat, options=(), **env):
        chat = chat if isinstance(chat, FakeRouter) else chat_model(chat)
        with running_beside(chat):
            for name, value in {"BASE_URL": chat.url, **env}.items():
                monkeypatch.setenv(name, str(value))
            return run(stage, options), chat

    return ask


def rankings(name="ranker/set"):
    return read_rows(f"out/{name}_test_ranking.parquet")


def answers(method="emb", model="served"):
    return read_rows(f"out/{model}/{method}/set_test_chat.parquet")


def asked(chat):
    return [body["messages"][0]["content"] for body in chat.requests]


def numbers(chat):
    return sorted(int(NUMBER.search(text)[1]) for text in asked(chat))


def test_replies_become_positions_in_the_history(ask, capsys):
    code, chat = ask(rank, "<ranking>2,0,1,5,4,3</ranking>", SEED=5)
    rows = rankings()
    assert code == 0 and [row["question_id"] for row in rows] == [f"q{n}" for n in range(10)]
    assert all(row["haystack_session_gen_rankings"] == [2, 0, 1, 5, 4, 3] for row in rows)
    assert all((row["rank_status"], row["ranking_error"]) == ("ok", "") for row in rows)
    assert rows[0]["prefiltered_session_idx"] == [0, 1, 2, 3, 4, 5] and "similarities" in rows[0]
    assert "I moved to Turin, note 2." in asked(chat)[0] and "<session5> <date>2023/05/06</date>" in asked(chat)[0]
    assert {(body["temperature"], body["max_tokens"], body["top_p"]) for body in chat.requests} == {(0.6, 64, 0.95)}
    assert len({body["seed"] for body in chat.requests}) == 10
    assert ask(rank, chat, TEMPERATURE=1)[0] == 1
    assert re.search(r"set_test_ranking\.parquet.*eval_temperature was 0\.6 and is 1\.0", capsys.readouterr().err)


@pytest.mark.parametrize("top_k, reply, ends, named, valid", [
    (3, "<ranking>1,7,1,0</ranking>", "stop", [1, 0], False), (2, "Session 1 helps.", "stop", [], False),
    (2, "<think><ranking>1,0</ranking></think><ranking>0,1</ranking>", "stop", [0, 2], True),
    (2, "<ranking>1,", "length", [2], False),
])
def test_a_prompts_numbers_are_mapped_back(ask, top_k, reply, ends, named, valid):
    """By similarity: 2, 0, 1 ...: with RANK_TOP_K=2 the prompt's session 1 is the history's 2."""
    assert ask(rank, chat_model(chat_message(reply, ends)), {"--rank-top-k": top_k})[0] == 0
    row = rankings()[0]
    assert row["prefiltered_session_idx"] == ([0, 1, 2] if top_k == 3 else [0, 2])
    assert (row["haystack_session_gen_rankings"], not row["ranking_error"]) == (named, valid)
    assert ("cut at 64" in row["ranking_error"]) == (ends == "length")


def test_a_small_context_shows_the_most_similar_and_every_prompt_fits(ask):
    code, chat = ask(rank, chat_model("<ranking>0</ranking>", models=({"id": "served", "max_model_len": 800},)))
    assert code == 0
    assert all(2 in row["prefiltered_session_idx"] and len(row["prefiltered_session_idx"]) < 6 for row in rankings())
    encode = make_tokenizer().apply_chat_template
    chats = [encode(body["messages"], add_generation_prompt=True)["input_ids"] for body in chat.requests]
    assert len(chats) == 10 and all(len(ids) + 64 <= 800 for ids in chats)


def test_a_token_of_the_template_in_a_session_is_plain_text_and_a_key_that_is_repeated_is_not_kept(folder, ask):
    end = make_tokenizer().eos_token
    row = embedded_row(chinese_question(0))
    row["haystack_sessions"] = row["haystack_sessions"].replace("里昂", f"里昂{end}")
    write_rows(folder / "out/emb/zh_test_embed.parquet", [row])
    chat = chat_model(f"{KEY} <ranking>1,0,2</ranking>", key=KEY)
    assert ask(rank, chat, {"--datasets": "zh", "--model-name": "mine"}, API_KEY=KEY)[0] == 0
    (text,), (row,) = asked(chat), rankings("mine/zh")
    assert "我搬到了里昂" in text and "哪些会话" in text and end not in text
    assert row["haystack_session_gen_rankings"] == [1, 0, 2] and KEY not in json.dumps(row)


def test_the_best_sessions_are_shown_in_the_order_of_time(ask):
    reply = "<think>so</think>A <answer>Turin</answer>"
    code, chat = ask(answer, reply, {"--max-output-token": 7}, TEMPERATURE=0, SEED=3)
    rows = answers()
    assert code == 0 and [row["question_id"] for row in rows] == [f"q{n}" for n in range(10)]
    assert all(row["shown_session_idx"] == [0, 2] and row["predicted_answer"] == "Turin" for row in rows)
    assert rows[0]["shown_tokens"] == sum(rows[0]["session_tokens"][n] for n in (0, 2))
    text = next(text for text in asked(chat) if "number 104?" in text)
    assert text.index("<session0> <date>2023/05/01</date>") < text.index("<session1> <date>2023/05/03</date>")
    assert "I moved to Turin" in text and "note 1." not in text and "2023/06/01" in text
    assert {(body["model"], body["max_tokens"], body["temperature"]) for body in chat.requests} == {("served", 7, 0.0)}
    assert len({body["seed"] for body in chat.requests}) == 10


@pytest.mark.parametrize("method, options, shown", [
    ("bm25", {"--top-k": 1}, [2]), ("full", {}, [0, 1, 2, 3, 4, 5]), ("full", {"--full-input-tokens": 30}, [4, 5]),
    ("emb", {"--max-input-tokens": 1}, []),
])
def test_methods_and_budgets(ask, method, options, shown):
    assert ask(answer, "yes", options, METHODS=method)[0] == 0  # an option has the variable of its name as default
    assert [row["shown_session_idx"] for row in answers(method)] == [shown] * 10


def test_a_ranking_is_completed_by_similarity_and_one_that_is_repaired_is_asked_again_alone(folder, ask):
    named = [[5], [4, 3, 1], []]
    for reply, shown in (("first", [[2, 5], [3, 4], [0, 2]]), ("second", [[2, 5], [3, 4], [1, 2]])):
        rows = [embedded_row(history_question(n)) | {"haystack_session_gen_rankings": named[n]} for n in range(3)]
        write_rows(folder / "out/org/mine/set_test_ranking.parquet", rows)
        code, chat = ask(answer, reply, {"--methods": "org/mine"})
        assert code == 0 and [row["shown_session_idx"] for row in answers("org/mine")] == shown
        named[2] = [1]
    assert numbers(chat) == [2]
    assert [row["generated_text"] for row in answers("org/mine")] == ["first", "first", "second"]


def test_failed_and_bad_rows_are_counted_and_only_they_are_asked_again_and_no_key_is_written(folder, ask, capsys):
    """The server's refusals repeat the key."""
    def some_fail(body):
        return 400 if NUMBER.search(body["messages"][0]["content"])[1] in "37" else f"first {KEY}"

    rows = [embedded_row(history_question(n)) for n in range(10)]
    rows[5]["session_tokens"] = [1, 2]
    write_rows(folder / "out/emb/set_test_embed.parquet", rows)
    assert ask(answer, chat_model(some_fail, key=KEY), API_KEY=KEY)[0] == 3
    told, found = capsys.readouterr(), answers()
    assert "3 failed" in told.out and KEY not in told.out + told.err
    assert [n for n, row in enumerate(found) if row["api_status"] != "ok"] == [3, 5, 7]
    assert "400" in found[3]["api_status"] and found[3]["generated_text"] == ""
    assert not [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    code, chat = ask(answer, "second")
    assert code == 3 and numbers(chat) == [3, 7]
    assert [row["generated_text"][:1] for row in answers()] == [*"fffsf", "", *"fsff"]
    assert not ask(answer, "third")[1].requests


@pytest.mark.parametrize("stage, options, url, named", [
    (rank, {"--embedding-model-name": "no"}, "", "session-embedding"), (rank, {"--model": ""}, "", "--model"),
    (rank, {}, "silent", "http://127.0.0.1"), (answer, {"--methods": "never"}, "silent", "session-ranking"),
    (answer, {}, "", "BASE_URL"), (answer, {"--model-name": ""}, "silent", "--model-name"),
])
def test_one_line_for_what_is_missing_or_wrong(folder, monkeypatch, capsys, stage, options, url, named, silent_port):
    monkeypatch.setenv("BASE_URL", url and f"http://127.0.0.1:{silent_port}")
    assert run(stage, options) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and named in line


def test_what_no_row_could_pass_ends_it_in_one_line(ask, capsys):
    code, chat = ask(answer, 401)
    assert code == 1 and capsys.readouterr().err.splitlines()[-1].startswith(f"error: {chat.url}/v1: ")
    assert ask(rank, "yes", ENGINE_MAX_LEN=70)[0] == 1 and "MEM_MAX_FINAL" in capsys.readouterr().err


def test_engines_with_the_context_of_a_converted_model_are_there_while_something_is_left(folder, engines, monkeypatch):
    """Lengths are rounded up to 64; a few tokens of the chat template stand around a message."""
    begun, chat = engines
    chat.default = "<ranking>2,0,1,5,4,3</ranking>"
    monkeypatch.delenv("MEM_MAX_FINAL")
    own = "mem_agent: {AGENT: chat, MEM_MAX_QUESTION: 900, MEM_MAX_FINAL: 32}"
    (folder / "ranker/mem_agent.yaml").write_text(own)
    assert run(rank) == 0 and run(rank) == 0
    length, stopped = begun
    assert 932 < length < 1032 and length % 64 == 0 and stopped == "stopped"
    assert len(chat.requests) == 10 and {body["max_tokens"] for body in chat.requests} == {32}


def test_a_model_is_served_here_for_as_long_as_it_is_asked_and_gets_no_key(folder, monkeypatch, engines):
    begun, chat = engines
    monkeypatch.setenv("API_KEY", KEY)
    own = {"--model": "ranker", "--model-name": "", "--max-output-token": 100}
    assert run(answer, own | {"--max-input-tokens": 8192}) == 1 and not begun  # no context holds a question
    assert run(answer, own) == 0 and run(answer, own) == 0
    assert begun == [1000 + 100 + 1024, "stopped"], "nothing was left to ask, so nothing was started again"
    assert {body["model"] for body in chat.requests} == {"policy"} and len(answers(model="ranker")) == 10
    assert KEY not in str(chat.headers)
