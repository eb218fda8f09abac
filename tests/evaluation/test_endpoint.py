"""Endpoints: which wording is chosen, what is sent and read, where the key goes, a server that dies and returns."""

import asyncio
import logging

import pytest

from mem_agent import eval_ruler_hqa as ev
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config
from mem_agent.evaluation import endpoint as endpoint_module
from mem_agent.evaluation.connect import checked_url, connect
from mem_agent.evaluation.endpoint import frame_of, reply_ids
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import read_rows, read_run
from mem_agent.evaluation.tables import failures
from mem_agent.tests.helpers.evaluations import CONFIG, RED, counted, make_model, summary_of, write_data
from mem_agent.tests.helpers.fake_chat import Raw
from mem_agent.tests.helpers.fake_router import (
    FakeRouter,
    chat_message,
    completion,
    running_beside,
)
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

GENERATE, COMPLETIONS, CHAT = "/inference/v1/generate", "/v1/completions", "/v1/chat/completions"
BOXED = "it is \\boxed{red}"
WORDINGS = [((), "generate"), ((GENERATE,), "completions"), ((GENERATE, COMPLETIONS), "chat")]


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "model")


def evaluate_at(tmp_path, model, router, **settings):
    with running_beside(router):
        config = Config(**{**vars(CONFIG), "base_url": f"http://127.0.0.1:{router.port}/v1", **settings})
        ev.run(tmp_path, ["50"], model, "", config, tmp_path / "out", True)
    return tmp_path / "out"


@pytest.mark.parametrize("missing,api", WORDINGS)
def test_the_most_exact_wording_there_is_is_taken(tmp_path, model, missing, api):
    write_data(tmp_path)
    router = FakeRouter(default=RED if api == "generate" else BOXED, missing=missing)
    output = evaluate_at(tmp_path, model, router)
    assert {r.scores["em"] for r in read_rows(output, "50")} == {1.0}
    assert read_run(output).model.endswith(f" {api} served")
    assert {body.get("model") for body in router.requests} == ({None} if api == "generate" else {"served"})


def test_openai_wordings_hold_standard_fields_only(tmp_path, model):
    write_data(tmp_path, count=1)
    router = FakeRouter(default=BOXED, missing=(GENERATE,))
    evaluate_at(tmp_path, model, router)
    assert router.requests[-1].keys() == {"model", "prompt", "max_tokens", "temperature", "top_p", "seed"}
    assert all(type(i) is int for i in router.requests[-1]["prompt"])


def test_chat_sends_the_message_without_the_local_template(tmp_path, model):
    write_data(tmp_path, count=1, context="<|im_end|> red", input="which key?")
    router = FakeRouter(default=BOXED)
    evaluate_at(tmp_path, model, router, eval_api="chat")
    (message,) = router.requests[1]["messages"]
    assert message["role"] == "user" and "<problem>\nwhich key?\n</problem>" in message["content"]
    assert "<|im_start|>" not in message["content"] and "</think>" not in message["content"]
    assert message["content"].endswith("Updated memory:\n")


def test_a_new_name_of_the_reply_limit_is_found_out(tmp_path, model):
    write_data(tmp_path, count=1)
    router = FakeRouter(default=lambda body: 400 if "max_tokens" in body else chat_message(BOXED))
    output = evaluate_at(tmp_path, model, router, eval_api="chat")
    assert summary_of(output).failed == 0 and router.requests[-1]["max_completion_tokens"] == CONFIG.mem_max_final


def test_replies_that_come_as_text_keep_their_thinking_apart():
    vocabulary = Vocabulary(make_tokenizer())
    ids = reply_ids(vocabulary, "red? blue? </think>red <|im_end|>")
    assert vocabulary.answer_text(ids) == "red <|im_end|>"
    assert vocabulary.answer_text(reply_ids(vocabulary, "red? </think> blue? </think>red")) == "red"
    assert vocabulary.answer_text(reply_ids(vocabulary, "red")) == "red" and reply_ids(vocabulary, "") == []


def test_the_frame_is_what_stands_around_a_message():
    frame = frame_of(lambda text: f"<system>be kind</system><user>{text}</user><bot>")
    assert frame.content("<system>be kind</system><user>hi <user></user><bot>") == "hi <user>"
    # What the reply goes on from, in a document that holds the tail as text
    assert frame.content("<system>be kind</system><user>a</user><bot>b</user><bot> It is") == "a</user><bot>b It is"
    assert frame_of(lambda text: text).content("hi It is") == "hi It is"


# --- keys ---------------------------------------------------------------------------------------------------------


def test_the_key_is_in_the_header_and_nowhere_else(tmp_path, model, monkeypatch, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("BASE_URL_KEY", "sk-secret")
    write_data(tmp_path)
    router = FakeRouter(key="sk-secret", missing=(GENERATE,))
    router.default = lambda body: 403 if body["max_tokens"] > 1 else completion("red")
    output = evaluate_at(tmp_path, model, router)
    assert {h.get("Authorization") for h in router.headers} == {"Bearer sk-secret"}
    files = "".join(path.read_text() for path in output.rglob("*") if path.is_file())
    written = files + caplog.text + "".join(capsys.readouterr())
    assert summary_of(output).failed == 3 and "status 403 for Bearer ***" in written
    assert "sk-secret" not in written


# --- wrong endpoints ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("url", ["localhost:8000", "http://user:sk-secret@host/v1", "https://host/v1?key=sk-secret"])
def test_a_wrong_url_is_refused_without_its_secrets(url):
    with pytest.raises(EvalError, match="BASE_URL") as error:
        checked_url("BASE_URL", url)
    assert "secret" not in str(error.value)


def asked(model, router, **settings):
    with running_beside(router):
        config = Config(**{**vars(CONFIG), "base_url": f"http://127.0.0.1:{router.port}", **settings})
        return asyncio.run(connect("", model, config))


def test_a_server_without_a_usable_api_says_what_was_tried(model):
    router = FakeRouter(missing=(GENERATE, COMPLETIONS, CHAT))
    with pytest.raises(EvalError, match=r"generate -> HTTP 404, completions -> HTTP 404, chat -> HTTP 404"):
        asked(model, router)


def test_of_several_models_one_has_to_be_named(model):
    models = ({"id": "a", "max_model_len": 99}, {"id": "b"})
    with pytest.raises(EvalError, match=r"serves 2 models \(a, b\); name one with EVAL_MODEL"):
        asked(model, FakeRouter(models=models))
    endpoint = asked(model, FakeRouter(models=models, default=BOXED), eval_model="a", eval_api="chat")
    assert (endpoint.model, endpoint.max_tokens) == ("a", 99)


def test_an_unreachable_endpoint_is_one_line(tmp_path, model, monkeypatch, capsys, silent_port):
    write_data(tmp_path)
    url = f"http://127.0.0.1:{silent_port}"
    monkeypatch.setenv("BASE_URL", url)
    command = f"--data-root {tmp_path} --length 50 --model {model} --output {tmp_path / 'out'}"
    assert ev.main(command.split()) == 1
    assert capsys.readouterr().err.startswith(f"error: {url}: nothing answers there (")
    assert not (tmp_path / "out").exists()


# --- proxies ------------------------------------------------------------------------------------------------------


def test_a_server_elsewhere_is_asked_through_the_environments_proxy(tmp_path, model, monkeypatch):
    """The proxy here is the router itself; before, BASE_URL was asked directly whatever was set."""
    write_data(tmp_path, count=1)
    router = FakeRouter(default=RED)
    with running_beside(router):
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{router.port}")
        monkeypatch.setenv("NO_PROXY", "")
        config = Config(**{**vars(CONFIG), "base_url": "http://engines.invalid/v1"})
        ev.run(tmp_path, ["50"], model, "", config, tmp_path / "out", True)
    assert summary_of(tmp_path / "out").failed == 0 and {h["Host"] for h in router.headers} == {"engines.invalid"}


# --- a server that dies -------------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(endpoint_module, "POLL_S", 0.01)
    monkeypatch.setattr("mem_agent.evaluation.connect.POLL_S", 0.01)


def test_a_server_that_is_away_for_a_while_costs_nothing(tmp_path, model, quick):
    write_data(tmp_path)
    router = FakeRouter(script=[RED, RED, *["drop"] * 5, RED, 500, "drop"], default=RED)
    output = evaluate_at(tmp_path, model, router, eval_server_wait=HANGS_AFTER_S, mem_concurrency=1)
    assert counted(summary_of(output)) == (3, 0, 0)


def test_a_server_that_stays_away_ends_the_run_and_keeps_what_is_there(tmp_path, model):
    write_data(tmp_path, count=4)
    router = FakeRouter(script=[RED, RED, RED], default="drop")
    with pytest.raises(EvalError, match="EVAL_SERVER_WAIT=0 s; the same command continues"):
        evaluate_at(tmp_path, model, router, mem_concurrency=1)
    assert counted(summary_of(tmp_path / "out")) == (2, 1, 2)
    assert failures(tmp_path / "out", ["50"])[0].split(": ")[1] == "connection"


# --- what answers, and does not reply -----------------------------------------------------------------------------


def test_an_api_that_answers_without_a_reply_is_passed_over(tmp_path, model):
    write_data(tmp_path)
    router = FakeRouter(default=lambda body: chat_message(BOXED) if "messages" in body else Raw(b"[1]"))
    output = evaluate_at(tmp_path, model, router)
    assert {r.scores["em"] for r in read_rows(output, "50")} == {1.0}
    assert read_run(output).model.endswith(" chat served")


# --- a server that turns requests away ----------------------------------------------------------------------------

def test_a_server_that_is_busy_for_a_while_costs_nothing(tmp_path, model, quick):
    write_data(tmp_path)
    router = FakeRouter(script=[429, RED, 429, 429, RED, 429], default=RED)
    output = evaluate_at(tmp_path, model, router, eval_server_wait=HANGS_AFTER_S, mem_max_retries=0,
                         eval_api="generate")
    assert counted(summary_of(output)) == (3, 0, 0)
