"""Stage 2: what is asked, and how replies become rankings of a history."""

import json
import re

import pytest

from mem_agent.memsifter import rank
from mem_agent.tests.helpers.fake_chat import FakeChat, chat_server
from mem_agent.tests.helpers.stage_rows import chinese_question, embedded_row, read_rows, write_rows
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

OPTIONS = {"--model": "ranker", "--output-dir": "out", "--embedding-model-name": "emb"}


def words(options=()):
    return [str(word) for pair in (OPTIONS | dict(options)).items() for word in pair]


@pytest.fixture
def ranked(folder, monkeypatch):
    """Runs the stage by a server at BASE_URL: the exit code."""
    def run(chat, options=(), **env):
        with chat_server(chat):
            for name, value in {"BASE_URL": chat.url, **env}.items():
                monkeypatch.setenv(name, str(value))
            return rank.main(words(options))

    return run


def says(reply, **options):
    return FakeChat(lambda body, number: reply, **options)


def rows_of(dataset="set", model="ranker"):
    return read_rows(f"out/{model}/{dataset}_test_ranking.parquet")


def shown(chat):
    return [body["messages"][0]["content"] for body in chat.bodies]


def test_replies_become_positions_in_the_history(ranked, capsys):
    chat = says("<ranking>2,0,1,5,4,3</ranking>")
    assert ranked(chat, SEED=5) == 0
    rows = rows_of()
    assert [row["question_id"] for row in rows] == [f"q{n}" for n in range(10)]
    assert all(row["haystack_session_gen_rankings"] == [2, 0, 1, 5, 4, 3] for row in rows)
    assert all((row["rank_status"], row["ranking_error"]) == ("ok", "") for row in rows)
    assert rows[0]["prefiltered_session_idx"] == [0, 1, 2, 3, 4, 5] and "similarities" in rows[0]
    text = shown(chat)[0]
    assert "I moved to Turin, note 2." in text and "<session5> <date>2023/05/06</date>" in text
    assert "10 of 10" in capsys.readouterr().out
    assert {(body["temperature"], body["max_tokens"], body["top_p"]) for body in chat.bodies} == {(0.6, 64, 0.95)}
    assert len({body["seed"] for body in chat.bodies}) == 10
    assert ranked(chat, TEMPERATURE=1) == 1
    assert re.search(r"set_test_ranking\.parquet.*eval_temperature was 0\.6 and is 1\.0", capsys.readouterr().err)


@pytest.mark.parametrize("top_k, reply, named, valid", [
    (3, "<ranking>1,7,1,0</ranking>", [1, 0], False), (2, "Session 1 helps.", [], False),
    (2, "<think><ranking>1,0</ranking></think><ranking>0,1</ranking>", [0, 2], True),
])
def test_a_prompts_numbers_are_mapped_back(ranked, top_k, reply, named, valid):
    """By similarity: 2, 0, 1 ...: with RANK_TOP_K=2 the prompt's session 1 is the history's 2."""
    assert ranked(says(reply), {"--rank-top-k": top_k}) == 0
    row = rows_of()[0]
    assert row["prefiltered_session_idx"] == ([0, 1, 2] if top_k == 3 else [0, 2])
    assert (row["haystack_session_gen_rankings"], not row["ranking_error"]) == (named, valid)
    assert row["generated_text"] == reply and row["rank_status"] == "ok"


def test_a_reply_that_was_cut_says_so(ranked):
    assert ranked(says("<ranking>1,", finish_reason="length"), {"--rank-top-k": 2}) == 0
    assert "cut at 64" in rows_of()[0]["ranking_error"] and rows_of()[0]["haystack_session_gen_rankings"] == [2]


@pytest.mark.parametrize("env, served", [({"ENGINE_MAX_LEN": 800}, None), ({}, 800)])
def test_a_small_context_shows_the_most_similar_and_every_prompt_fits(ranked, env, served):
    chat = says("<ranking>0</ranking>", max_model_len=served)
    assert ranked(chat, **env) == 0
    assert all(2 in row["prefiltered_session_idx"] and len(row["prefiltered_session_idx"]) < 6 for row in rows_of())
    chats = [make_tokenizer().apply_chat_template(body["messages"], add_generation_prompt=True)["input_ids"]
             for body in chat.bodies]
    assert len(chats) == 10 and all(len(ids) + 64 <= 800 for ids in chats)


def test_a_token_of_the_template_in_a_session_is_plain_text_and_a_key_that_is_repeated_is_not_kept(folder, ranked):
    end, key = make_tokenizer().eos_token, "sk-secret-0123456789"
    row = embedded_row(chinese_question(0))
    row["haystack_sessions"] = row["haystack_sessions"].replace("里昂", f"里昂{end}")
    write_rows(folder / "out/emb/zh_test_embed.parquet", [row])
    chat = says(f"{key} <ranking>1,0,2</ranking>", key=key)
    assert ranked(chat, {"--datasets": "zh", "--model-name": "mine"}, API_KEY=key) == 0
    (text,) = shown(chat)
    assert "我搬到了里昂" in text and "哪些会话" in text and end not in text
    (row,) = rows_of("zh", "mine")
    assert row["haystack_session_gen_rankings"] == [1, 0, 2] and key not in json.dumps(row)


@pytest.mark.parametrize("options, env, named", [
    ({}, {"ENGINE_MAX_LEN": "70"}, "MEM_MAX_FINAL"), ({"--embedding-model-name": "no"}, {}, "session-embedding"),
    ({"--model": ""}, {}, "--model"), ({}, {}, "http://127.0.0.1"),
])
def test_one_line_for_what_is_missing_or_wrong(folder, monkeypatch, capsys, options, env, named, silent_port):
    for name, value in ({"BASE_URL": "" if env else f"http://127.0.0.1:{silent_port}"} | env).items():
        monkeypatch.setenv(name, value)
    assert rank.main(words(options)) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and named in line


def test_engines_with_the_context_of_a_converted_model_are_there_while_something_is_left(folder, engines, monkeypatch):
    """Lengths are rounded up to 64; a few tokens of the chat template stand around a message."""
    begun, chat = engines
    chat.answer = lambda body, number: "<ranking>2,0,1,5,4,3</ranking>"
    monkeypatch.delenv("MEM_MAX_FINAL")
    own = "mem_agent: {AGENT: chat, MEM_MAX_QUESTION: 900, MEM_MAX_FINAL: 32}"
    (folder / "ranker/mem_agent.yaml").write_text(own)
    assert rank.main(words()) == 0 and rank.main(words()) == 0
    length, stopped = begun
    assert 932 < length < 1032 and length % 64 == 0 and stopped == "stopped"
    assert len(chat.bodies) == 10 and {body["max_tokens"] for body in chat.bodies} == {32}
