"""Stage 2: what is asked, how replies become rankings of a history, and that nothing is asked twice."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from mem_agent.sifter.stages import session_ranking
from mem_agent.tests.helpers.evaluations import encode, make_model, turns_asked
from mem_agent.tests.helpers.fake_chat import FakeChat, chat_server
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.local_ray import needs_local_ray
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.stage_rows import (
    chinese_question,
    embedded_row,
    history_question,
    journalled,
    read_rows,
    write_rows,
)
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

SETTINGS = {"MEM_MAX_FINAL": "64", "MEM_MAX_RETRIES": "0", "EVAL_SERVER_WAIT": "0", "EMBEDDING_MODEL_NAME": "emb"}
NUMBER = re.compile(r"number 10(\d+)")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("API_KEY", "OPENAI_API_KEY", "TEMPERATURE", "DATASETS", "BASE_URL", "MODEL_NAME", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (SETTINGS | {"OUTPUT_DIR": str(tmp_path / "out")}).items():
        monkeypatch.setenv(name, value)
    write_rows(tmp_path / "out" / "emb" / "set_test_embed.parquet",
               [embedded_row(history_question(n)) for n in range(10)])
    (tmp_path / "ranker").mkdir()
    make_model(tmp_path / "ranker", positions=4096)
    return tmp_path


def rank(folder, router, *arguments, monkeypatch=None, **env):
    for name, value in env.items():
        monkeypatch.setenv(name, str(value))
    with running_beside(router):
        url = f"http://127.0.0.1:{router.port}"
        return session_ranking.main(["--model", str(folder / "ranker"), "--url", url, *arguments])


def rows_of(folder, dataset="set", model="ranker"):
    return read_rows(folder / "out" / model / f"{dataset}_test_ranking.parquet")


def shown(router):
    return [make_tokenizer().decode(body["token_ids"]) for body in turns_asked(router)]


def numbers(router):
    return sorted(int(NUMBER.search(text)[1]) for text in shown(router))


def test_replies_become_positions_in_the_history(folder, capsys):
    router = FakeRouter(default=encode("<ranking>2,0,1,5,4,3</ranking>"))
    assert rank(folder, router) == 0
    rows = rows_of(folder)
    assert [row["question_id"] for row in rows] == [f"q{n}" for n in range(10)]
    assert all(row["haystack_session_gen_rankings"] == [2, 0, 1, 5, 4, 3] for row in rows)
    assert all((row["rank_status"], row["ranking_error"]) == ("ok", "") for row in rows)
    assert rows[0]["prefiltered_session_idx"] == [0, 1, 2, 3, 4, 5] and "similarities" in rows[0]
    text = shown(router)[0]
    assert "I moved to Turin, note 2." in text and "<session5> <date>2023/05/06</date>" in text
    told = capsys.readouterr().out
    assert "10 of 10 questions ranked, 10 validly" in told and "recall@1 ranked 100.0" in told


@pytest.mark.parametrize("top_k,reply,named,error", [
    (3, "<ranking>2,0,1</ranking>", [2, 0, 1], ""),
    (3, "<ranking>1,7,1,0</ranking>", [1, 0], "session 7 of 3"),
    (2, "<ranking>1</ranking>", [2], "1 sessions, expected 2"),
    (2, "Session 1 helps.", [], "no <ranking>...</ranking>"),
    (2, "", [], "no <ranking>...</ranking>"),
])
def test_a_prompts_numbers_are_mapped_back(folder, monkeypatch, top_k, reply, named, error):
    """By similarity: 2, 0, 1 ...: with RANK_TOP_K=2 the prompt's session 1 is the history's 2."""
    assert rank(folder, FakeRouter(default=encode(reply)), monkeypatch=monkeypatch, RANK_TOP_K=top_k) == 0
    row = rows_of(folder)[0]
    assert row["prefiltered_session_idx"] == [0, 1, 2][: top_k] if top_k == 3 else [0, 2]
    assert (row["haystack_session_gen_rankings"], row["ranking_error"]) == (named, error)
    assert row["generated_text"] == reply and row["rank_status"] == "ok"


def test_thinking_is_kept_in_the_reply_and_names_nothing(folder, monkeypatch):
    tokenizer = make_tokenizer()
    ids = [*tokenizer.encode("<think><ranking>1,0</ranking></think>", add_special_tokens=False),
           *encode("<ranking>0,1</ranking>")]
    assert rank(folder, FakeRouter(default=ids), monkeypatch=monkeypatch, RANK_TOP_K=2) == 0
    row = rows_of(folder)[0]
    assert row["haystack_session_gen_rankings"] == [0, 2] and row["generated_text"].startswith("<think>")


def test_a_reply_that_was_cut_says_so(folder, monkeypatch):
    cut = {"choices": [{"token_ids": encode("<ranking>1,")[:-1], "finish_reason": "length",
                        "logprobs": {"content": [{"token_id": i, "logprob": -1.0}
                                                 for i in encode("<ranking>1,")[:-1]]}}]}
    assert rank(folder, FakeRouter(default=cut), monkeypatch=monkeypatch, RANK_TOP_K=2) == 0
    row = rows_of(folder)[0]
    assert row["ranking_error"].startswith("the reply was cut at ") and row["rank_status"] == "ok"
    assert row["haystack_session_gen_rankings"] == [2]


def test_a_small_context_shows_the_most_similar_and_every_prompt_fits(folder, monkeypatch):
    assert rank(folder, FakeRouter(default=encode("<ranking>0</ranking>")), monkeypatch=monkeypatch,
                ENGINE_MAX_LEN=800) == 0
    router = FakeRouter(default=encode("<ranking>0</ranking>"))
    rows = rows_of(folder)
    assert all(2 in row["prefiltered_session_idx"] and len(row["prefiltered_session_idx"]) < 6 for row in rows)
    assert all(len(body["token_ids"]) + 64 <= 800 for body in router.requests)


def test_sampling_has_a_seed_for_each_row_and_its_temperature(folder, monkeypatch):
    router = FakeRouter(default=encode("<ranking>0</ranking>"))
    assert rank(folder, router, monkeypatch=monkeypatch, SEED=5) == 0
    first = sorted((body["sampling_params"]["temperature"], body["sampling_params"]["seed"], body["sampling_params"][
        "max_tokens"]) for body in turns_asked(router))
    assert len(set(first)) == 10 and {(t, m) for t, _, m in first} == {(0.6, 64)}
    (folder / "out" / "ranker" / "set_test_ranking.parquet").unlink()
    again = FakeRouter(default=encode("<ranking>0</ranking>"))
    assert rank(folder, again, monkeypatch=monkeypatch, TEMPERATURE=0.6) == 0
    assert sorted(body["sampling_params"]["seed"] for body in turns_asked(again)) == sorted(s for _, s, _ in first)


def test_failed_rows_are_asked_again_and_no_others(folder, capsys):
    def some_fail(body):
        number = NUMBER.search(make_tokenizer().decode(body["token_ids"]))
        return 400 if number and number[1] in "37" else encode("<ranking>0,1,2,3,4,5</ranking>")

    assert rank(folder, FakeRouter(default=some_fail)) == 3
    told = capsys.readouterr()
    assert "8 of 10 questions ranked" in told.out and "2 failed" in told.out and "run again" in told.err
    assert [n for n, row in enumerate(rows_of(folder)) if row["rank_status"] != "ok"] == [3, 7]
    router = FakeRouter(default=encode("<ranking>1,0,2,3,4,5</ranking>"))
    assert rank(folder, router) == 0
    assert numbers(router) == [3, 7]
    assert [row["haystack_session_gen_rankings"][0] for row in rows_of(folder)] == [
        int(n in (3, 7)) for n in range(10)
    ]
    router = FakeRouter(default=encode("x"))
    assert rank(folder, router) == 0 and not turns_asked(router)


def test_killed_in_the_middle_it_asks_for_the_rest_alone(folder):
    router = FakeRouter(script=[encode("<ranking>0</ranking>")] * 7, default="hang")  # the first asks if it answers
    command = [sys.executable, "-m", "mem_agent", "session-ranking", "--model", str(folder / "ranker"), "--url"]
    env = os.environ | {"MEM_CONCURRENCY": "1", "PYTHONWARNINGS": "ignore"}
    with running_beside(router):
        command.append(f"http://127.0.0.1:{router.port}")
        run = subprocess.Popen(command, env=env)
        wait_for(lambda: len(router.requests) >= 8 and journalled(folder) >= 6, run)
        run.send_signal(signal.SIGKILL)
        run.wait(HANGS_AFTER_S)
        before = set(numbers(router)[:])
        router.requests.clear()
        router.script, router.default = [], encode("<ranking>1</ranking>")
        done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(before) == 7 and len(numbers(router)) == 4 and before | set(numbers(router)) == set(range(10))
    named = [tuple(row["haystack_session_gen_rankings"]) for row in rows_of(folder)]
    assert (named.count((0,)), named.count((1,))) == (6, 4)


def test_a_chat_server_with_a_key_ranks_in_chinese(folder, monkeypatch):
    write_rows(folder / "out" / "emb" / "zh_test_embed.parquet", [embedded_row(chinese_question(n)) for n in range(3)])
    key = "sk-secret-0123456789"  # repeated by the server in its replies
    with chat_server(FakeChat(lambda body, number: f"{key} <ranking>1,0,2</ranking>", key=key)) as chat:
        for name, value in {"BASE_URL": chat.url, "API_KEY": key, "EVAL_API": "chat", "DATASETS": "zh",
                            "MODEL_NAME": "served"}.items():
            monkeypatch.setenv(name, value)
        assert session_ranking.main(["--model", str(folder / "ranker")]) == 0
    asked = [body["messages"][0]["content"] for body in chat.bodies if "会话" in body["messages"][0]["content"]]
    assert len(asked) == 3 and all("我搬到了里昂" in text and "哪些会话" in text for text in asked)
    rows = rows_of(folder, "zh", "served")
    assert [row["haystack_session_gen_rankings"] for row in rows] == [[1, 0, 2]] * 3
    assert key not in json.dumps(rows) and all("***" in row["generated_text"] for row in rows)


@pytest.mark.parametrize("env,told", [
    ({"ENGINE_MAX_LEN": "300"}, "beside a reply of MEM_MAX_FINAL=64; lower that, or raise ENGINE_MAX_LEN"),
    ({"EMBEDDING_MODEL_NAME": "no"}, "mem-agent session-embedding makes them"),
    ({}, "nothing answers there"),
])
def test_one_line_for_what_is_missing_or_wrong(folder, monkeypatch, capsys, env, told, silent_port):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert session_ranking.main(["--model", str(folder / "ranker"), "--url", f"http://127.0.0.1:{silent_port}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("error: ") and told in line


def test_what_a_server_needs_is_known_before_it_starts(folder, monkeypatch, capsys):
    """ChatML of the test's tokenizer puts 17 tokens around a message; lengths are rounded up to 64."""
    check = ["--model", str(folder / "ranker"), "--check"]
    assert session_ranking.main(check) == 0
    length, question, final, left = map(int, capsys.readouterr().out.split())
    assert (length, final, left) == (4096, 64, 10)
    around = 4096 - 64 - question
    assert 0 < around < 100
    monkeypatch.setenv("MEM_MAX_QUESTION", "1000")
    assert session_ranking.main(check) == 0
    assert capsys.readouterr().out == f"{-(-(1000 + 64 + around) // 64) * 64} 1000 64 10\n"


def test_a_model_that_the_pack_converted_brings_its_lengths(folder, monkeypatch, capsys):
    monkeypatch.delenv("MEM_MAX_FINAL")
    (folder / "ranker" / "mem_agent.yaml").write_text(
        "mem_agent: {AGENT: chat, MEM_MAX_QUESTION: 900, MEM_MAX_FINAL: 32}\n"
    )
    assert session_ranking.main(["--model", str(folder / "ranker"), "--check"]) == 0
    assert capsys.readouterr().out.split()[1:3] == ["900", "32"]


@needs_local_ray
@pytest.mark.servers
def test_on_ray_data_the_same_rows_come_out(folder, monkeypatch):
    router = FakeRouter(default=encode("<ranking>2,0,1,5,4,3</ranking>"))
    assert rank(folder, router, "--ray", "local", "--workers", "1") == 0
    assert [row["haystack_session_gen_rankings"] for row in rows_of(folder)] == [[2, 0, 1, 5, 4, 3]] * 10
    assert len(turns_asked(router)) == 10
