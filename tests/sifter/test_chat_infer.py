"""Stage 3: what is shown and asked, what is kept of replies and failures, and that nothing is asked twice."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.sifter.stages import chat_infer
from mem_agent.tests.helpers.fake_chat import HANG, FakeChat, chat_server
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.stage_rows import (
    chinese_question,
    embedded_row,
    history_question,
    journalled,
    read_rows,
    write_rows,
)

KEY = "sk-secret-0123456789"
SETTINGS = {"TOP_K": "2", "MAX_INPUT_TOKENS": "1000", "CHAT_RETRIES": "0", "MODEL_NAME": "served"}
NUMBER = re.compile(r"number 10(\d+)")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Stage 1's file of ten questions; the environment of the stage."""
    for name in ("API_KEY", "OPENAI_API_KEY", "TEMPERATURE", "METHODS", "DATASETS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (SETTINGS | {"OUTPUT_DIR": str(tmp_path), "EMBEDDING_MODEL_NAME": "emb"}).items():
        monkeypatch.setenv(name, value)
    write_rows(tmp_path / "emb" / "set_test_embed.parquet", [embedded_row(history_question(n)) for n in range(10)])
    return tmp_path


def infer(monkeypatch, chat, *arguments, **env):
    monkeypatch.setenv("BASE_URL", chat.url)
    for name, value in env.items():
        monkeypatch.setenv(name, str(value))
    return chat_infer.main(list(arguments))


def rows_of(folder, method="emb", model="served", dataset="set"):
    return read_rows(folder / model / method / f"{dataset}_test_chat.parquet")


def asked(chat):
    return [body["messages"][0]["content"] for body in chat.bodies]


def numbers(chat):
    return sorted(int(NUMBER.search(text)[1]) for text in asked(chat))


def test_the_best_sessions_are_shown_in_the_order_of_time(folder, monkeypatch, capsys):
    with chat_server(FakeChat(lambda body, number: "<think>so</think>Sure. <answer>Turin</answer>")) as chat:
        assert infer(monkeypatch, chat, MAX_OUTPUT_TOKEN=7, TEMPERATURE=0, SEED=3) == 0
    rows = rows_of(folder)
    assert [row["question_id"] for row in rows] == [f"q{n}" for n in range(10)]
    assert all(row["shown_session_idx"] == [0, 2] and row["predicted_answer"] == "Turin" for row in rows)
    assert all(row["api_status"] == "ok" and row["generated_text"].startswith("<think>") for row in rows)
    assert rows[0]["shown_tokens"] == sum(rows[0]["session_tokens"][n] for n in (0, 2))
    assert "similarities" in rows[0] and "haystack_sessions" in rows[0]
    text = next(text for text in asked(chat) if "number 104?" in text)
    assert text.index("<session0> <date>2023/05/01</date>") < text.index("<session1> <date>2023/05/03</date>")
    assert "I moved to Turin" in text and "note 1." not in text and "It was asked on 2023/06/01." in text
    assert {(body["model"], body["max_tokens"], body["temperature"]) for body in chat.bodies} == {("served", 7, 0.0)}
    assert len({body["seed"] for body in chat.bodies}) == 10
    assert "set/test emb: 10 of 10 questions answered, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("env,shown", [
    ({"METHODS": "emb"}, [0, 2]), ({"METHODS": "bm25", "TOP_K": "1"}, [2]), ({"METHODS": "full"}, [0, 1, 2, 3, 4, 5]),
    ({"METHODS": "full", "FULL_INPUT_TOKENS": "30"}, [4, 5]), ({"METHODS": "emb", "MAX_INPUT_TOKENS": "20"}, [2]),
    ({"METHODS": "emb", "MAX_INPUT_TOKENS": "1"}, []), ({"METHODS": "emb", "TOP_K": "4"}, [0, 1, 2, 3]),
])
def test_methods_and_budgets(folder, monkeypatch, env, shown):
    with chat_server(FakeChat()) as chat:
        assert infer(monkeypatch, chat, **env) == 0
    assert [row["shown_session_idx"] for row in rows_of(folder, env["METHODS"])] == [shown] * 10


def test_a_ranking_is_completed_by_similarity(folder, monkeypatch):
    rows = [embedded_row(history_question(0)) | {"haystack_session_gen_rankings": [5]},
            embedded_row(history_question(1)) | {"haystack_session_gen_rankings": [4, 3, 1]},
            embedded_row(history_question(2)) | {"haystack_session_gen_rankings": []}]
    write_rows(folder / "rankers" / "mine" / "set_test_ranking.parquet", rows)
    with chat_server(FakeChat()) as chat:
        assert infer(monkeypatch, chat, METHODS="rankers/mine") == 0
    assert [row["shown_session_idx"] for row in rows_of(folder, "rankers/mine")] == [[2, 5], [3, 4], [0, 2]]


def test_a_memory_from_elsewhere_is_shown_as_it_is(folder, monkeypatch):
    rows = [embedded_row(history_question(0)) | {"retrieved_memory": "The user lives in {question} Turin."},
            embedded_row(history_question(1)) | {"retrieved_memory": None}]
    write_rows(folder / "a_mem" / "set_test_retrieved_memory.parquet", rows)
    with chat_server(FakeChat()) as chat:
        assert infer(monkeypatch, chat, METHODS="a_mem") == 3
    (text,) = asked(chat)
    assert "The user lives in {question} Turin." in text
    found = rows_of(folder, "a_mem")
    assert found[0]["shown_session_idx"] == [] and "retrieved_memory" in found[1]["api_status"]


def test_a_chinese_history_is_asked_and_answered_in_chinese(folder, monkeypatch):
    write_rows(folder / "emb" / "zh_test_embed.parquet", [embedded_row(chinese_question(n)) for n in range(3)])
    with chat_server(FakeChat(lambda body, number: "<think>他说过。</think><answer>里昂</answer>")) as chat:
        assert infer(monkeypatch, chat, DATASETS="zh") == 0
    assert len(asked(chat)) == 3
    for text in asked(chat):
        assert "我搬到了里昂" in text and "请根据这些记录" in text and "提问时间：2023年6月1日" in text
    assert [row["predicted_answer"] for row in rows_of(folder, dataset="zh")] == ["里昂"] * 3


def test_failed_rows_are_counted_and_only_they_are_asked_again(folder, monkeypatch, capsys):
    def some_fail(body, number):
        return 500 if NUMBER.search(body["messages"][0]["content"])[1] in "37" else "first"

    with chat_server(FakeChat(some_fail)) as chat:
        assert infer(monkeypatch, chat) == 3
    told = capsys.readouterr()
    assert "8 of 10 questions answered, 2 failed" in told.out and "2 questions have no reply" in told.err
    rows = rows_of(folder)
    assert [n for n, row in enumerate(rows) if row["api_status"] != "ok"] == [3, 7]
    assert "HTTP 500" in rows[3]["api_status"] and rows[3]["generated_text"] == ""
    with chat_server(FakeChat(lambda body, number: "second")) as chat:
        assert infer(monkeypatch, chat) == 0
    assert numbers(chat) == [3, 7]
    assert [row["generated_text"] for row in rows_of(folder)] == [
        "second" if n in (3, 7) else "first" for n in range(10)
    ]
    with chat_server(FakeChat()) as chat:
        assert infer(monkeypatch, chat) == 0
    assert not chat.bodies


def test_a_row_that_stage_2_repairs_is_asked_again_alone(folder, monkeypatch):
    rows = [embedded_row(history_question(n)) | {"haystack_session_gen_rankings": [5] if n != 3 else []}
            for n in range(10)]
    write_rows(folder / "mine" / "set_test_ranking.parquet", rows)
    with chat_server(FakeChat(lambda body, number: "first")) as chat:
        assert infer(monkeypatch, chat, METHODS="mine") == 0
    rows[3]["haystack_session_gen_rankings"] = [4]
    write_rows(folder / "mine" / "set_test_ranking.parquet", rows)
    with chat_server(FakeChat(lambda body, number: "second")) as chat:
        assert infer(monkeypatch, chat, METHODS="mine") == 0
    assert numbers(chat) == [3]
    found = rows_of(folder, "mine")
    assert [row["generated_text"] for row in found] == ["second" if n == 3 else "first" for n in range(10)]
    assert [row["shown_session_idx"] for row in found] == [[2, 4] if n == 3 else [2, 5] for n in range(10)]


def test_killed_in_the_middle_it_asks_for_the_rest_alone(folder):
    """SIGKILL after six replies; the four that are then asked for are the ones that no reply had come for."""
    chat = FakeChat(lambda body, number: f"reply {number}" if number < 6 else HANG)
    command = [sys.executable, "-m", "mem_agent", "chat-infer"]
    with chat_server(chat):
        env = os.environ | {"BASE_URL": chat.url, "CHAT_CONCURRENCY": "1", "PYTHONWARNINGS": "ignore"}
        run = subprocess.Popen(command, env=env)
        wait_for(lambda: len(chat.bodies) >= 7 and journalled(folder) >= 6, run)
        run.send_signal(signal.SIGKILL)
        run.wait(HANGS_AFTER_S)
        before = numbers(chat)[:]
        chat.bodies.clear()
        chat.answer = lambda body, number: "later"
        assert subprocess.run(command, env=env, capture_output=True).returncode == 0
    assert len(before) == 7 and len(numbers(chat)) == 4
    assert sorted([*before[:], *numbers(chat)]) == sorted([*range(10), *(set(before) & set(numbers(chat)))])
    assert [row["generated_text"].split()[0] for row in rows_of(folder)].count("reply") == 6


@pytest.mark.parametrize("answer,told", [
    (401, "the key is refused"), (HANG, "no answer within 0.2 s"),
])
def test_what_no_row_could_pass_ends_it_in_one_line(folder, monkeypatch, capsys, answer, told):
    with chat_server(FakeChat(lambda body, number: answer)) as chat:
        assert infer(monkeypatch, chat, CHAT_TIMEOUT=0.2 if answer is HANG else HANGS_AFTER_S) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith(f"error: {chat.url}/v1: ") and told in lines[-1]
    assert not (folder / "served" / "emb" / "set_test_chat.parquet").exists()


def test_the_name_is_that_of_the_only_model_there(folder, monkeypatch, capsys):
    with chat_server(FakeChat(models=("org/only",))) as chat:
        assert infer(monkeypatch, chat, MODEL_NAME="") == 0
    assert rows_of(folder, model="org/only")
    with chat_server(FakeChat(models=("b", "a"))) as chat:
        assert infer(monkeypatch, chat, MODEL_NAME="") == 1
    assert "serves 2 models (a, b); name one with MODEL_NAME" in capsys.readouterr().err


@pytest.mark.parametrize("env,told", [
    ({"METHODS": "never"}, "MODEL_NAME=never mem-agent session-ranking makes it"),
    ({"DATASETS": "none"}, "none_test_embed.parquet: no such file; mem-agent session-embedding makes it"),
    ({"BASE_URL": ""}, "BASE_URL is not set"),
])
def test_one_line_for_what_is_missing_or_wrong(folder, monkeypatch, capsys, env, told, silent_port):
    monkeypatch.setenv("BASE_URL", f"http://127.0.0.1:{silent_port}")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert chat_infer.main([]) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("error: ") and told in line


def test_the_key_is_in_no_file_and_no_line(folder, monkeypatch, capsys):
    with chat_server(FakeChat(lambda body, number: 400 if number % 2 else "so", key=KEY)) as chat:
        assert infer(monkeypatch, chat, API_KEY=KEY, CHAT_CONCURRENCY=1) == 3
    told = capsys.readouterr()
    assert len(chat.bodies) == 10 and KEY not in told.out + told.err
    assert not [path for path in Path(folder).rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_bad_rows_have_a_status_and_the_others_their_answers(folder, monkeypatch):
    rows = [embedded_row(history_question(n)) for n in range(3)]
    rows[0]["question"], rows[1]["session_tokens"] = " ", [1, 2]
    write_rows(folder / "emb" / "bad_test_embed.parquet", rows)
    with chat_server(FakeChat()) as chat:
        assert infer(monkeypatch, chat, DATASETS="bad") == 3
    status = [row["api_status"] for row in rows_of(folder, dataset="bad")]
    assert "no question" in status[0] and "2 session_tokens for 6 sessions" in status[1] and status[2] == "ok"


def test_a_server_of_the_packs_own_gets_no_key_and_a_name_in_the_files(folder, monkeypatch, tmp_path):
    (tmp_path / "my-chat").mkdir()
    (tmp_path / "my-chat" / "config.json").write_text("{}")
    for name, value in {"MODEL_NAME": "", "API_KEY": KEY}.items():
        monkeypatch.setenv(name, value)
    with chat_server(FakeChat(models=("policy",))) as chat:
        assert chat_infer.main(["--model", str(tmp_path / "my-chat"), "--url", chat.url]) == 0
    assert {body["model"] for body in chat.bodies} == {"policy"} and len(rows_of(folder, model="my-chat")) == 10
    assert KEY not in str(chat.headers)


def test_a_server_of_the_packs_own_is_measured_before_it_is_started(folder, monkeypatch, capsys, tmp_path):
    model = tmp_path / "chat-model"
    model.mkdir()
    (model / "config.json").write_text('{"max_position_embeddings": 4096}')
    check = ["--check", "--model", str(model)]
    monkeypatch.setenv("MAX_OUTPUT_TOKEN", "100")
    assert chat_infer.main(check) == 0
    assert capsys.readouterr().out == f"{1000 + 100 + 1024} 10\n"
    monkeypatch.setenv("MAX_INPUT_TOKENS", "8192")
    assert chat_infer.main(check) == 1
    assert "leave no room for a question in 4096 tokens" in capsys.readouterr().err
