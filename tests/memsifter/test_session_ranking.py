"""Stage 2: what is asked, how replies become rankings of a history, and that nothing is asked twice."""

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from mem_agent.memsifter.stages import session_ranking
from mem_agent.tests.helpers.evaluations import encode, make_model, turns_asked
from mem_agent.tests.helpers.fake_chat import FakeChat, chat_server
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
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

OPTIONS = {"--model": "ranker", "--output-dir": "out", "--embedding-model-name": "emb"}
NUMBER = re.compile(r"number 10(\d+)")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("API_KEY", "OPENAI_API_KEY", "TEMPERATURE", "DATASETS", "BASE_URL", "MODEL_NAME", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MEM_MAX_FINAL", "64")
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "out" / "emb" / "set_test_embed.parquet",
               [embedded_row(history_question(n)) for n in range(10)])
    (tmp_path / "ranker").mkdir()
    make_model(tmp_path / "ranker", positions=4096)
    return tmp_path


def words(options=()):
    return [str(word) for pair in (OPTIONS | dict(options)).items() for word in pair]


def rank(monkeypatch, router, options=(), **env):
    """By a server at BASE_URL."""
    for name, value in env.items():
        monkeypatch.setenv(name, str(value))
    with running_beside(router):
        monkeypatch.setenv("BASE_URL", f"http://127.0.0.1:{router.port}")
        return session_ranking.main(words(options))


def rows_of(folder, dataset="set", model="ranker"):
    return read_rows(folder / "out" / model / f"{dataset}_test_ranking.parquet")


def shown(router):
    return [make_tokenizer().decode(body["token_ids"]) for body in turns_asked(router)]


def numbers(router):
    return sorted(int(NUMBER.search(text)[1]) for text in shown(router))


def test_replies_become_positions_in_the_history(folder, monkeypatch, capsys):
    router = FakeRouter(default=encode("<ranking>2,0,1,5,4,3</ranking>"))
    assert rank(monkeypatch, router) == 0
    rows = rows_of(folder)
    assert [row["question_id"] for row in rows] == [f"q{n}" for n in range(10)]
    assert all(row["haystack_session_gen_rankings"] == [2, 0, 1, 5, 4, 3] for row in rows)
    assert all((row["rank_status"], row["ranking_error"]) == ("ok", "") for row in rows)
    assert rows[0]["prefiltered_session_idx"] == [0, 1, 2, 3, 4, 5] and "similarities" in rows[0]
    text = shown(router)[0]
    assert "I moved to Turin, note 2." in text and "<session5> <date>2023/05/06</date>" in text
    assert "recall@1 ranked 100.0" in capsys.readouterr().out


@pytest.mark.parametrize("top_k,reply,named,valid", [
    (3, "<ranking>2,0,1</ranking>", [2, 0, 1], True), (3, "<ranking>1,7,1,0</ranking>", [1, 0], False),
    (2, "<ranking>1</ranking>", [2], False), (2, "Session 1 helps.", [], False), (2, "", [], False),
])
def test_a_prompts_numbers_are_mapped_back(folder, monkeypatch, top_k, reply, named, valid):
    """By similarity: 2, 0, 1 ...: with RANK_TOP_K=2 the prompt's session 1 is the history's 2."""
    assert rank(monkeypatch, FakeRouter(default=encode(reply)), {"--rank-top-k": top_k}) == 0
    row = rows_of(folder)[0]
    assert row["prefiltered_session_idx"] == [0, 1, 2][: top_k] if top_k == 3 else [0, 2]
    assert (row["haystack_session_gen_rankings"], not row["ranking_error"]) == (named, valid)
    assert row["generated_text"] == reply and row["rank_status"] == "ok"


def test_thinking_is_kept_in_the_reply_and_names_nothing(folder, monkeypatch):
    tokenizer = make_tokenizer()
    ids = [*tokenizer.encode("<think><ranking>1,0</ranking></think>", add_special_tokens=False),
           *encode("<ranking>0,1</ranking>")]
    assert rank(monkeypatch, FakeRouter(default=ids), {"--rank-top-k": 2}) == 0
    row = rows_of(folder)[0]
    assert row["haystack_session_gen_rankings"] == [0, 2] and row["generated_text"].startswith("<think>")


def test_a_reply_that_was_cut_says_so(folder, monkeypatch):
    cut = {"choices": [{"token_ids": encode("<ranking>1,")[:-1], "finish_reason": "length",
                        "logprobs": {"content": [{"token_id": i, "logprob": -1.0}
                                                 for i in encode("<ranking>1,")[:-1]]}}]}
    assert rank(monkeypatch, FakeRouter(default=cut), {"--rank-top-k": 2}) == 0
    row = rows_of(folder)[0]
    assert "cut" in row["ranking_error"] and row["rank_status"] == "ok"
    assert row["haystack_session_gen_rankings"] == [2]


def test_a_small_context_shows_the_most_similar_and_every_prompt_fits(folder, monkeypatch):
    router = FakeRouter(default=encode("<ranking>0</ranking>"))
    assert rank(monkeypatch, router, ENGINE_MAX_LEN=800) == 0
    rows = rows_of(folder)
    assert all(2 in row["prefiltered_session_idx"] and len(row["prefiltered_session_idx"]) < 6 for row in rows)
    assert all(len(body["token_ids"]) + 64 <= 800 for body in router.requests)


def test_sampling_has_a_seed_for_each_row_and_its_temperature(folder, monkeypatch):
    router = FakeRouter(default=encode("<ranking>0</ranking>"))
    assert rank(monkeypatch, router, SEED=5) == 0
    first = sorted((body["sampling_params"]["temperature"], body["sampling_params"]["seed"], body["sampling_params"][
        "max_tokens"]) for body in turns_asked(router))
    assert len(set(first)) == 10 and {(t, m) for t, _, m in first} == {(0.6, 64)}
    (folder / "out" / "ranker" / "set_test_ranking.parquet").unlink()
    again = FakeRouter(default=encode("<ranking>0</ranking>"))
    assert rank(monkeypatch, again, TEMPERATURE=0.6) == 0
    assert sorted(body["sampling_params"]["seed"] for body in turns_asked(again)) == sorted(s for _, s, _ in first)


def test_failed_rows_are_asked_again_and_no_others(folder, monkeypatch, capsys):
    def some_fail(body):
        number = NUMBER.search(make_tokenizer().decode(body["token_ids"]))
        return 400 if number and number[1] in "37" else encode("<ranking>0,1,2,3,4,5</ranking>")

    assert rank(monkeypatch, FakeRouter(default=some_fail)) == 3
    assert "2 failed" in capsys.readouterr().out
    assert [n for n, row in enumerate(rows_of(folder)) if row["rank_status"] != "ok"] == [3, 7]
    router = FakeRouter(default=encode("<ranking>1,0,2,3,4,5</ranking>"))
    assert rank(monkeypatch, router) == 0
    assert numbers(router) == [3, 7]
    assert [row["haystack_session_gen_rankings"][0] for row in rows_of(folder)] == [
        int(n in (3, 7)) for n in range(10)
    ]
    router = FakeRouter(default=encode("x"))
    assert rank(monkeypatch, router) == 0 and not turns_asked(router)


def test_killed_in_the_middle_it_asks_for_the_rest_alone(folder):
    router = FakeRouter(script=[encode("<ranking>0</ranking>")] * 8, default="hang")  # two ask if it answers
    command = [sys.executable, "-m", "mem_agent", "session-ranking", *words()]
    with running_beside(router):
        env = os.environ | {"MEM_CONCURRENCY": "1", "PYTHONWARNINGS": "ignore",
                            "BASE_URL": f"http://127.0.0.1:{router.port}"}
        run = subprocess.Popen(command, env=env)
        wait_for(lambda: len(router.requests) >= 9 and journalled(folder) >= 6, run)
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
        for name, value in {"BASE_URL": chat.url, "API_KEY": key, "EVAL_API": "chat"}.items():
            monkeypatch.setenv(name, value)
        own = {"--datasets": "zh", "--model-name": "mine", "--served-model": "served"}
        assert session_ranking.main(words(own)) == 0
    asked = [body["messages"][0]["content"] for body in chat.bodies if "会话" in body["messages"][0]["content"]]
    assert len(asked) == 3 and all("我搬到了里昂" in text and "哪些会话" in text for text in asked)
    rows = rows_of(folder, "zh", "mine")
    assert [row["haystack_session_gen_rankings"] for row in rows] == [[1, 0, 2]] * 3
    assert key not in json.dumps(rows) and all("***" in row["generated_text"] for row in rows)


@pytest.mark.parametrize("options,env,named", [
    ({}, {"ENGINE_MAX_LEN": "300"}, "MEM_MAX_FINAL"), ({"--embedding-model-name": "no"}, {}, "session-embedding"),
    ({"--model": ""}, {}, "--model"), ({}, {}, "http://127.0.0.1"),
])
def test_one_line_for_what_is_missing_or_wrong(folder, monkeypatch, capsys, options, env, named, silent_port):
    for name, value in ({"BASE_URL": "" if env else f"http://127.0.0.1:{silent_port}"} | env).items():
        monkeypatch.setenv(name, value)
    assert session_ranking.main(words(options)) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and named in line


@pytest.fixture
def engines(monkeypatch):
    """The context that engines would be started with; a router answers in their place."""
    lengths, router = [], FakeRouter(default=encode("<ranking>2,0,1,5,4,3</ranking>"))

    @contextmanager
    def own_engines(model, length, logs):
        lengths.append(length)
        yield f"http://127.0.0.1:{router.port}"

    monkeypatch.setattr(session_ranking, "own_engines", own_engines)
    with running_beside(router):
        yield lengths, router


def test_a_ranker_is_served_here_with_the_context_that_it_needs(folder, monkeypatch, engines):
    """Lengths are rounded up to 64; a few tokens of the chat template stand around a message."""
    lengths, router = engines
    monkeypatch.setenv("MEM_MAX_QUESTION", "1000")
    assert session_ranking.main(words()) == 0 and len(rows_of(folder)) == 10
    assert session_ranking.main(words()) == 0 and len(turns_asked(router)) == 10
    (length,) = lengths  # nothing is started where nothing is left to ask
    assert length % 64 == 0 and 1000 + 64 < length < 1000 + 64 + 100


def test_a_model_that_the_pack_converted_brings_its_lengths(folder, monkeypatch, engines):
    lengths, router = engines
    monkeypatch.delenv("MEM_MAX_FINAL")
    (folder / "ranker" / "mem_agent.yaml").write_text(
        "mem_agent: {AGENT: chat, MEM_MAX_QUESTION: 900, MEM_MAX_FINAL: 32}\n"
    )
    assert session_ranking.main(words()) == 0
    assert 932 < lengths[0] < 1032 and {b["sampling_params"]["max_tokens"] for b in turns_asked(router)} == {32}
