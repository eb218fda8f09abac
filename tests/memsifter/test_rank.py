"""Stage 2: what is asked, and how replies become rankings of a history."""

import json
import re
from contextlib import contextmanager

import pytest

from mem_agent.memsifter import rank
from mem_agent.memsifter.endpoint import NOWHERE
from mem_agent.memsifter.rank import NoRoom, ranking_prompt
from mem_agent.sessions.wording import load_wording
from mem_agent.tests.helpers.evaluations import make_model
from mem_agent.tests.helpers.fake_chat import FakeChat, chat_server
from mem_agent.tests.helpers.stage_rows import chinese_question, embedded_row, history_question, read_rows, write_rows
from mem_agent.tests.helpers.stages_here import without_ray
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

OPTIONS = {"--model": "ranker", "--output-dir": "out", "--embedding-model-name": "emb"}
NUMBER = re.compile(r"number 10(\d+)")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    without_ray(monkeypatch)
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


def ranked(monkeypatch, chat, options=(), **env):
    """By a server at BASE_URL; the exit code."""
    with chat_server(chat):
        for name, value in {"BASE_URL": chat.url, **env}.items():
            monkeypatch.setenv(name, str(value))
        return rank.main(words(options))


def says(reply, **options):
    return FakeChat(lambda body, number: reply, **options)


def rows_of(folder, dataset="set", model="ranker"):
    return read_rows(folder / "out" / model / f"{dataset}_test_ranking.parquet")


def shown(chat):
    return [body["messages"][0]["content"] for body in chat.bodies]


def test_replies_become_positions_in_the_history(folder, monkeypatch, capsys):
    chat = says("<ranking>2,0,1,5,4,3</ranking>")
    assert ranked(monkeypatch, chat, SEED=5) == 0
    rows = rows_of(folder)
    assert [row["question_id"] for row in rows] == [f"q{n}" for n in range(10)]
    assert all(row["haystack_session_gen_rankings"] == [2, 0, 1, 5, 4, 3] for row in rows)
    assert all((row["rank_status"], row["ranking_error"]) == ("ok", "") for row in rows)
    assert rows[0]["prefiltered_session_idx"] == [0, 1, 2, 3, 4, 5] and "similarities" in rows[0]
    text = shown(chat)[0]
    assert "I moved to Turin, note 2." in text and "<session5> <date>2023/05/06</date>" in text
    assert "recall@1 ranked 100.0" in capsys.readouterr().out
    assert {(body["temperature"], body["max_tokens"], body["top_p"]) for body in chat.bodies} == {(0.6, 64, 0.95)}
    assert len({body["seed"] for body in chat.bodies}) == 10


@pytest.mark.parametrize("top_k,reply,named,valid", [
    (3, "<ranking>2,0,1</ranking>", [2, 0, 1], True), (3, "<ranking>1,7,1,0</ranking>", [1, 0], False),
    (2, "<ranking>1</ranking>", [2], False), (2, "Session 1 helps.", [], False), (2, "", [], False),
    (2, "<think><ranking>1,0</ranking></think><ranking>0,1</ranking>", [0, 2], True),
])
def test_a_prompts_numbers_are_mapped_back(folder, monkeypatch, top_k, reply, named, valid):
    """By similarity: 2, 0, 1 ...: with RANK_TOP_K=2 the prompt's session 1 is the history's 2."""
    assert ranked(monkeypatch, says(reply), {"--rank-top-k": top_k}) == 0
    row = rows_of(folder)[0]
    assert row["prefiltered_session_idx"] == [0, 1, 2][: top_k] if top_k == 3 else [0, 2]
    assert (row["haystack_session_gen_rankings"], not row["ranking_error"]) == (named, valid)
    assert row["generated_text"] == reply and row["rank_status"] == "ok"


def test_a_reply_that_was_cut_says_so(folder, monkeypatch):
    assert ranked(monkeypatch, says("<ranking>1,", finish_reason="length"), {"--rank-top-k": 2}) == 0
    row = rows_of(folder)[0]
    assert "cut at 64" in row["ranking_error"] and row["rank_status"] == "ok"
    assert row["haystack_session_gen_rankings"] == [2]


@pytest.mark.parametrize("env, served", [({"ENGINE_MAX_LEN": 800}, None), ({}, 800)])
def test_a_small_context_shows_the_most_similar_and_every_prompt_fits(folder, monkeypatch, env, served):
    chat = says("<ranking>0</ranking>", max_model_len=served)
    assert ranked(monkeypatch, chat, **env) == 0
    rows = rows_of(folder)
    assert all(2 in row["prefiltered_session_idx"] and len(row["prefiltered_session_idx"]) < 6 for row in rows)
    chats = [make_tokenizer().apply_chat_template(body["messages"], add_generation_prompt=True)["input_ids"]
             for body in chat.bodies]
    assert len(chats) == 10 and all(len(ids) + 64 <= 800 for ids in chats)


def test_a_special_token_in_a_session_is_no_token_for_the_server(folder, monkeypatch):
    end = make_tokenizer().eos_token
    rows = [embedded_row(history_question(0))]
    rows[0]["haystack_sessions"] = rows[0]["haystack_sessions"].replace("note 2", f"note 2{end}")
    write_rows(folder / "out" / "emb" / "set_test_embed.parquet", rows)
    chat = says("<ranking>0</ranking>")
    assert ranked(monkeypatch, chat) == 0
    assert end not in shown(chat)[0] and "note 2" in shown(chat)[0]


def test_failed_rows_are_asked_again_and_no_others(folder, monkeypatch, capsys):
    def some_fail(body, number):
        return 400 if NUMBER.search(body["messages"][0]["content"])[1] in "37" else "<ranking>0,1,2,3,4,5</ranking>"

    assert ranked(monkeypatch, FakeChat(some_fail)) == 3
    assert "2 failed" in capsys.readouterr().out
    assert [n for n, row in enumerate(rows_of(folder)) if row["rank_status"] != "ok"] == [3, 7]
    chat = says("<ranking>1,0,2,3,4,5</ranking>")
    assert ranked(monkeypatch, chat) == 0
    assert sorted(NUMBER.search(text)[1] for text in shown(chat)) == ["3", "7"]
    first = [row["haystack_session_gen_rankings"][0] for row in rows_of(folder)]
    assert first == [int(n in (3, 7)) for n in range(10)]
    chat = says("x")
    assert ranked(monkeypatch, chat) == 0 and not chat.bodies


def test_other_settings_are_refused(folder, monkeypatch, capsys):
    assert ranked(monkeypatch, says("<ranking>0</ranking>")) == 0
    assert ranked(monkeypatch, says("<ranking>0</ranking>"), TEMPERATURE=1) == 1
    assert re.search(r"set_test_ranking\.parquet.*eval_temperature 0\.6, now 1\.0", capsys.readouterr().err)


def test_a_server_with_a_key_ranks_in_chinese(folder, monkeypatch):
    write_rows(folder / "out" / "emb" / "zh_test_embed.parquet", [embedded_row(chinese_question(n)) for n in range(3)])
    key = "sk-secret-0123456789"  # repeated by the server in its replies
    chat = says(f"{key} <ranking>1,0,2</ranking>", key=key)
    own = {"--datasets": "zh", "--model-name": "mine", "--served-model": "served"}
    assert ranked(monkeypatch, chat, own, API_KEY=key) == 0
    assert len(shown(chat)) == 3 and all("我搬到了里昂" in text and "哪些会话" in text for text in shown(chat))
    rows = rows_of(folder, "zh", "mine")
    assert [row["haystack_session_gen_rankings"] for row in rows] == [[1, 0, 2]] * 3
    assert key not in json.dumps(rows) and all("***" in row["generated_text"] for row in rows)


@pytest.mark.parametrize("options,env,named", [
    ({}, {"ENGINE_MAX_LEN": "300"}, "MEM_MAX_FINAL"), ({"--embedding-model-name": "no"}, {}, "session-embedding"),
    ({"--model": ""}, {}, "--model"), ({}, {}, "http://127.0.0.1"), ({}, {"RAY_ADDRESS": "http://a:8265"}, "--ray"),
])
def test_one_line_for_what_is_missing_or_wrong(folder, monkeypatch, capsys, options, env, named, silent_port):
    for name, value in ({"BASE_URL": "" if env else f"http://127.0.0.1:{silent_port}"} | env).items():
        monkeypatch.setenv(name, value)
    assert rank.main(words(options)) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and named in line


@pytest.fixture
def engines(folder, monkeypatch):
    """The contexts that engines would be started with; a stub answers in their place."""
    lengths, chat = [], says("<ranking>2,0,1,5,4,3</ranking>", models=("policy",))

    @contextmanager
    def own_engines(model, length, logs, runs):
        if not any(run.wanted() for run in runs):
            yield NOWHERE
            return
        lengths.append(length)
        yield chat.url

    monkeypatch.setattr(rank, "own_engines", own_engines)
    with chat_server(chat):
        yield lengths, chat


def test_a_ranker_is_served_here_with_the_context_that_it_needs(folder, monkeypatch, engines):
    """Lengths are rounded up to 64; a few tokens of the chat template stand around a message."""
    lengths, chat = engines
    monkeypatch.setenv("MEM_MAX_QUESTION", "1000")
    assert rank.main(words()) == 0 and len(rows_of(folder)) == 10
    assert rank.main(words()) == 0 and len(chat.bodies) == 10
    (length,) = lengths  # nothing is started where nothing is left to ask
    assert length % 64 == 0 and 1000 + 64 < length < 1000 + 64 + 100


def test_a_model_that_the_pack_converted_brings_its_lengths(folder, monkeypatch, engines):
    lengths, chat = engines
    monkeypatch.delenv("MEM_MAX_FINAL")
    (folder / "ranker" / "mem_agent.yaml").write_text(
        "mem_agent: {AGENT: chat, MEM_MAX_QUESTION: 900, MEM_MAX_FINAL: 32}\n"
    )
    assert rank.main(words()) == 0
    assert 932 < lengths[0] < 1032 and {body["max_tokens"] for body in chat.bodies} == {32}


# --- the prompt -----------------------------------------------------------------------------------------------------

ASKED = history_question(0, sessions=4)
EMPTY = len(load_wording().ranking_prompt(ASKED.question, "", 0, ASKED.language, ASKED.date).split())


def prompt(tokens, limit, top_k=0):
    return ranking_prompt(ASKED, [0.5, 0.8, 0.1, 0.9], tokens, limit=limit, top_k=top_k, wording=load_wording(),
                          count=lambda text: len(text.split()))


@pytest.mark.parametrize("budget,top_k,positions", [
    (100, 0, (0, 1, 2, 3)), (100, 2, (1, 3)), (59, 0, (0, 1, 3)), (58, 0, (1, 3)), (20, 0, (3,)), (19, 0, (1,)),
])
def test_the_most_similar_sessions_that_fit_in_the_order_of_time(budget, top_k, positions):
    """Most similar first: 3, 1, 0, 2, of 20 tokens each, but 1 of 19 and 2 of 30; a larger one is passed over."""
    text, found = prompt([20, 19, 30, 20], EMPTY + budget, top_k)
    assert found == positions
    assert [f"note {n}." in text for n in range(4)] == [n in positions for n in range(4)]
    assert f"<session{len(found) - 1}>" in text and f"<session{len(found)}>" not in text


@pytest.mark.parametrize("limit", range(EMPTY + 25, EMPTY + 120, 7))
def test_a_prompt_never_exceeds_its_limit_whatever_stage_1_counted(limit):
    text, found = prompt([1, 1, 1, 1], limit)
    assert found and len(text.split()) <= limit


def test_no_session_fits():
    with pytest.raises(NoRoom, match="19"):
        prompt([20, 19, 20, 20], EMPTY + 5)
