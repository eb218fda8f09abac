"""Stage 3: what is shown and asked, what is kept of replies and failures, and that nothing is asked twice."""

import re
from contextlib import contextmanager

import pytest

from mem_agent.memsifter import answer
from mem_agent.memsifter.endpoint import NOWHERE
from mem_agent.tests.helpers.fake_chat import HANG, FakeChat, chat_server
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.tests.helpers.stage_rows import chinese_question, embedded_row, history_question, read_rows, write_rows
from mem_agent.tests.helpers.stages_here import without_ray

KEY = "sk-secret-0123456789"
OPTIONS = {"--top-k": 2, "--max-input-tokens": 1000, "--chat-retries": 0, "--model-name": "served",
           "--embedding-model-name": "emb"}
NUMBER = re.compile(r"number 10(\d+)")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Stage 1's file of ten questions; the environment of the stage."""
    without_ray(monkeypatch)
    for name in ("API_KEY", "OPENAI_API_KEY", "TEMPERATURE", "METHODS", "DATASETS", "MODEL_NAME", "OUTPUT_DIR",
                 "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "emb" / "set_test_embed.parquet", [embedded_row(history_question(n)) for n in range(10)])
    return tmp_path


def words(options):
    return [str(word) for pair in ({"--output-dir": "."} | OPTIONS | options).items() for word in pair]


def infer(monkeypatch, chat, options=(), **env):
    for name, value in {"BASE_URL": chat.url, **env}.items():
        monkeypatch.setenv(name, str(value))
    return answer.main(words(dict(options)))


def rows_of(folder, method="emb", model="served", dataset="set"):
    return read_rows(folder / model / method / f"{dataset}_test_chat.parquet")


def asked(chat):
    return [body["messages"][0]["content"] for body in chat.bodies]


def numbers(chat):
    return sorted(int(NUMBER.search(text)[1]) for text in asked(chat))


def test_the_best_sessions_are_shown_in_the_order_of_time(folder, monkeypatch, capsys):
    with chat_server(FakeChat(lambda body, number: "<think>so</think>Sure. <answer>Turin</answer>")) as chat:
        assert infer(monkeypatch, chat, {"--max-output-token": 7}, TEMPERATURE=0, SEED=3) == 0
    rows = rows_of(folder)
    assert [row["question_id"] for row in rows] == [f"q{n}" for n in range(10)]
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


@pytest.mark.parametrize("options,shown", [
    ({"--methods": "emb"}, [0, 2]), ({"--methods": "bm25", "--top-k": 1}, [2]),
    ({"--methods": "full"}, [0, 1, 2, 3, 4, 5]), ({"--methods": "full", "--full-input-tokens": 30}, [4, 5]),
    ({"--methods": "emb", "--max-input-tokens": 20}, [2]), ({"--methods": "emb", "--max-input-tokens": 1}, []),
    ({"--methods": "emb", "--top-k": 4}, [0, 1, 2, 3]),
])
def test_methods_and_budgets(folder, monkeypatch, options, shown):
    with chat_server(FakeChat()) as chat:
        assert infer(monkeypatch, chat, options) == 0
    assert [row["shown_session_idx"] for row in rows_of(folder, options["--methods"])] == [shown] * 10


def test_an_option_has_the_variable_of_its_name_as_default(folder, monkeypatch):
    monkeypatch.setenv("METHODS", "full")
    with chat_server(FakeChat()) as chat:
        assert infer(monkeypatch, chat) == 0
        assert infer(monkeypatch, chat, {"--methods": "emb"}) == 0
    assert rows_of(folder, "full") and rows_of(folder, "emb")


def test_a_ranking_is_completed_by_similarity(folder, monkeypatch):
    rows = [embedded_row(history_question(0)) | {"haystack_session_gen_rankings": [5]},
            embedded_row(history_question(1)) | {"haystack_session_gen_rankings": [4, 3, 1]},
            embedded_row(history_question(2)) | {"haystack_session_gen_rankings": []}]
    write_rows(folder / "rankers" / "mine" / "set_test_ranking.parquet", rows)
    with chat_server(FakeChat()) as chat:
        assert infer(monkeypatch, chat, {"--methods": "rankers/mine"}) == 0
    assert [row["shown_session_idx"] for row in rows_of(folder, "rankers/mine")] == [[2, 5], [3, 4], [0, 2]]


def test_a_memory_from_elsewhere_is_shown_as_it_is(folder, monkeypatch):
    rows = [embedded_row(history_question(0)) | {"retrieved_memory": "The user lives in {question} Turin."},
            embedded_row(history_question(1)) | {"retrieved_memory": None}]
    write_rows(folder / "a_mem" / "set_test_retrieved_memory.parquet", rows)
    with chat_server(FakeChat()) as chat:
        assert infer(monkeypatch, chat, {"--methods": "a_mem"}) == 3
    (text,) = asked(chat)
    assert "The user lives in {question} Turin." in text
    found = rows_of(folder, "a_mem")
    assert found[0]["shown_session_idx"] == [] and "retrieved_memory" in found[1]["api_status"]


def test_a_chinese_history_is_asked_and_answered_in_chinese(folder, monkeypatch):
    write_rows(folder / "emb" / "zh_test_embed.parquet", [embedded_row(chinese_question(n)) for n in range(3)])
    with chat_server(FakeChat(lambda body, number: "<think>他说过。</think><answer>里昂</answer>")) as chat:
        assert infer(monkeypatch, chat, {"--datasets": "zh"}) == 0
    assert len(asked(chat)) == 3
    for text in asked(chat):
        assert "我搬到了里昂" in text and "请根据这些记录" in text and "提问时间：2023年6月1日" in text
    assert [row["predicted_answer"] for row in rows_of(folder, dataset="zh")] == ["里昂"] * 3


def test_another_wording_is_asked_and_keeps_its_own_rows(folder, monkeypatch, capsys):
    (folder / "own.yaml").write_text("en: {chat: 'Look: {history} Now say: {question}'}")
    with chat_server(FakeChat()) as chat:
        assert infer(monkeypatch, chat, {"--prompts": "own.yaml"}) == 0
        assert all(text.startswith("Look: ") for text in asked(chat))
        assert infer(monkeypatch, chat) == 1
    assert "set_test_chat.parquet" in capsys.readouterr().err


def test_failed_rows_are_counted_and_only_they_are_asked_again(folder, monkeypatch, capsys):
    def some_fail(body, number):
        return 500 if NUMBER.search(body["messages"][0]["content"])[1] in "37" else "first"

    with chat_server(FakeChat(some_fail)) as chat:
        assert infer(monkeypatch, chat) == 3
    assert "2 failed" in capsys.readouterr().out
    rows = rows_of(folder)
    assert [n for n, row in enumerate(rows) if row["api_status"] != "ok"] == [3, 7]
    assert "500" in rows[3]["api_status"] and rows[3]["generated_text"] == ""
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
        assert infer(monkeypatch, chat, {"--methods": "mine"}) == 0
    rows[3]["haystack_session_gen_rankings"] = [4]
    write_rows(folder / "mine" / "set_test_ranking.parquet", rows)
    with chat_server(FakeChat(lambda body, number: "second")) as chat:
        assert infer(monkeypatch, chat, {"--methods": "mine"}) == 0
    assert numbers(chat) == [3]
    found = rows_of(folder, "mine")
    assert [row["generated_text"] for row in found] == ["second" if n == 3 else "first" for n in range(10)]
    assert [row["shown_session_idx"] for row in found] == [[2, 4] if n == 3 else [2, 5] for n in range(10)]


@pytest.mark.parametrize("given", [401, HANG])
def test_what_no_row_could_pass_ends_it_in_one_line(folder, monkeypatch, capsys, given):
    timeout = 0.2 if given is HANG else HANGS_AFTER_S
    with chat_server(FakeChat(lambda body, number: given)) as chat:
        assert infer(monkeypatch, chat, {"--chat-timeout": timeout}) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"error: {chat.url}/v1: ")
    assert not (folder / "served" / "emb" / "set_test_chat.parquet").exists()


def test_the_name_is_that_of_the_only_model_there(folder, monkeypatch, capsys):
    with chat_server(FakeChat(models=("org/only",))) as chat:
        assert infer(monkeypatch, chat, {"--model-name": ""}) == 0
    assert rows_of(folder, model="org/only")
    with chat_server(FakeChat(models=("b", "a"))) as chat:
        assert infer(monkeypatch, chat, {"--model-name": ""}) == 1
    assert "--model-name" in capsys.readouterr().err


@pytest.mark.parametrize("options,env,named", [
    ({"--methods": "never"}, {}, "session-ranking"), ({"--datasets": "none"}, {}, "session-embedding"),
    ({}, {"BASE_URL": ""}, "BASE_URL"), ({"--model": "chat"}, {}, "BASE_URL"),
])
def test_one_line_for_what_is_missing_or_wrong(folder, monkeypatch, capsys, options, env, named, silent_port):
    for name, value in ({"BASE_URL": f"http://127.0.0.1:{silent_port}"} | env).items():
        monkeypatch.setenv(name, value)
    assert answer.main(words(options)) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("error: ") and named in line


def test_the_key_is_in_no_file_and_no_line(folder, monkeypatch, capsys):
    with chat_server(FakeChat(lambda body, number: 400 if number % 2 else "so", key=KEY)) as chat:
        assert infer(monkeypatch, chat, {"--chat-concurrency": 1}, API_KEY=KEY) == 3
    told = capsys.readouterr()
    assert len(chat.bodies) == 10 and KEY not in told.out + told.err
    assert not [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_bad_rows_have_a_status_and_the_others_their_answers(folder, monkeypatch):
    rows = [embedded_row(history_question(n)) for n in range(3)]
    rows[0]["question"], rows[1]["session_tokens"] = " ", [1, 2]
    write_rows(folder / "emb" / "bad_test_embed.parquet", rows)
    with chat_server(FakeChat()) as chat:
        assert infer(monkeypatch, chat, {"--datasets": "bad"}) == 3
    assert [row["api_status"] == "ok" for row in rows_of(folder, dataset="bad")] == [False, False, True]


@pytest.fixture
def served_here(folder, monkeypatch):
    """A model's folder, and what its engines were started with; a stub answers in their place."""
    started = []

    @contextmanager
    def engines(model, length, logs, runs):
        if not any(run.wanted() for run in runs):
            yield NOWHERE
            return
        started.append((model.name, length))
        yield chat.url
        started.append("stopped")

    monkeypatch.setattr(answer, "own_engines", engines)
    monkeypatch.delenv("BASE_URL", raising=False)
    (folder / "my-chat").mkdir()
    (folder / "my-chat" / "config.json").write_text('{"max_position_embeddings": 4096}')
    with chat_server(FakeChat(models=("policy",))) as chat:
        yield started, chat


OWN = {"--model": "my-chat", "--model-name": "", "--max-output-token": 100}


def test_a_model_is_served_here_for_as_long_as_it_is_asked_and_gets_no_key(folder, monkeypatch, served_here):
    started, chat = served_here
    monkeypatch.setenv("API_KEY", KEY)
    assert answer.main(words(OWN)) == 0
    assert started == [("my-chat", 1000 + 100 + 1024), "stopped"]
    assert {body["model"] for body in chat.bodies} == {"policy"} and len(rows_of(folder, model="my-chat")) == 10
    assert KEY not in str(chat.headers)
    assert answer.main(words(OWN)) == 0 and len(started) == 2, "nothing is left to ask, so nothing is started"


def test_a_context_that_holds_no_question_is_refused_before_anything_starts(served_here, capsys):
    started, _ = served_here
    assert answer.main(words(OWN | {"--max-input-tokens": 8192})) == 1
    assert "--max-input-tokens" in capsys.readouterr().err and not started
