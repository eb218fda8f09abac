"""Endpoints: which wording is chosen, what is sent and read, where the key goes, a server that dies and returns."""

import asyncio
import logging
import threading

import pytest

from mem_agent import eval_ruler_hqa as ev
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.client.engine_api import Dialect, Endpoint
from mem_agent.client.rollout_client import GenerationClient, RetryPolicy
from mem_agent.config import Config
from mem_agent.evaluation import outage
from mem_agent.evaluation.connect import KEYS, checked_url, connect, key_from
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
    vllm_answer,
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


def test_the_key_comes_from_either_variable():
    assert key_from({"OPENAI_API_KEY": "a", "BASE_URL_KEY": " b\n"}, KEYS) == "b"
    assert key_from({"OPENAI_API_KEY": "a", "BASE_URL_KEY": ""}, KEYS) == "a" and key_from({}, KEYS) == ""


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


def test_an_error_that_repeats_the_key_is_redacted(model, monkeypatch):
    monkeypatch.setenv("BASE_URL_KEY", "sk-secret")
    with pytest.raises(EvalError, match=r"generate -> HTTP 500.*status 500 for Bearer \*\*\*") as error:
        asked(model, FakeRouter(default=500, key="sk-secret"))
    assert "sk-" not in str(error.value)
    endpoint = asked(model, FakeRouter(default=RED, key="sk-secret"))
    assert endpoint.headers() == {"Authorization": "Bearer sk-secret"} and "sk-" not in repr(endpoint)


@pytest.mark.parametrize("missing", [missing for missing, _ in WORDINGS])
@pytest.mark.parametrize("place", ["the reason", "the reply", "a long reason"])
def test_a_reply_that_repeats_the_key_leaves_no_trace_of_it(tmp_path, model, monkeypatch, place, missing):
    """As a mirror does; cut to the length of a message, half of a key would be left."""
    key = "sk-secret-0123456789"
    monkeypatch.setenv("BASE_URL_KEY", key)
    write_data(tmp_path, count=1)
    ids = Vocabulary(make_tokenizer()).encode_text(f"\\boxed{{{key}}}")
    reason = {"the reply": "stop", "the reason": key}.get(place, f"{'x' * 230}{key}")
    text = f"\\boxed{{{key}}}" if place == "the reply" else "red"

    def mirror(body):
        if body.get("sampling_params", body)["max_tokens"] == 1:  # the probe
            return RED if "token_ids" in body else "red"
        if "token_ids" in body:
            return vllm_answer(ids if place == "the reply" else RED, finish=reason)
        return {"choices": [{"finish_reason": reason, "text": text, "message": {"content": text}}]}

    output = evaluate_at(tmp_path, model, FakeRouter(key=key, missing=missing, default=mirror))
    written = "".join(path.read_text(errors="replace") for path in output.rglob("*") if path.is_file())
    assert "sk-sec" not in written and ("repeats the key" in written or "***" in written or "finish reason" in written)


def test_a_model_that_is_called_like_the_key_is_not_shown(model, monkeypatch):
    monkeypatch.setenv("BASE_URL_KEY", "sk-secret")
    for extra in ((), ({"id": "z\x1b[2J" + "x" * 900},)):
        router = FakeRouter(default=RED, key="sk-secret", models=({"id": "Bearer sk-secret"}, *extra))
        try:
            seen = asked(model, router).model
        except EvalError as error:
            seen = str(error)
        assert "***" in seen and "sk-" not in seen and seen.isprintable() and len(seen) < 400


def test_a_refused_key_is_told_without_it(tmp_path, model, monkeypatch):
    monkeypatch.setenv("BASE_URL_KEY", "sk-wrong")
    write_data(tmp_path)
    with pytest.raises(EvalError, match="the key is refused; set BASE_URL_KEY or OPENAI_API_KEY") as error:
        evaluate_at(tmp_path, model, FakeRouter(default=RED, key="sk-right"))
    assert "sk-" not in str(error.value)


def test_an_own_router_never_sees_the_key(tmp_path, model, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    write_data(tmp_path, count=1)
    router = FakeRouter(default=RED)
    with running_beside(router):
        ev.run(tmp_path, ["50"], model, f"http://127.0.0.1:{router.port}", CONFIG, tmp_path / "out", True)
    assert router.headers and all("Authorization" not in h for h in router.headers)


# --- wrong endpoints ----------------------------------------------------------------------------------------------

WRONG_URLS = [
    ("localhost:8000", "allowed: http://HOST:PORT or https://HOST/v1"),
    ("http://", "allowed: http://HOST:PORT or https://HOST/v1"),
    ("http://user:sk-secret@host/v1", "holds credentials"),
    ("https://host/v1?key=sk-secret", "holds credentials"),
    ("http://host:port", "not an address"),
]


@pytest.mark.parametrize("url,message", WRONG_URLS)
def test_a_wrong_url_is_one_line_without_secrets(url, message):
    with pytest.raises(EvalError, match=message) as error:
        checked_url("BASE_URL", url)
    assert "secret" not in str(error.value)


def test_a_url_may_end_in_v1():
    assert checked_url("BASE_URL", "https://host/api/v1/") == "https://host/api"


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


# --- a server that dies -------------------------------------------------------------------------------------------


def test_a_server_that_dies_and_returns_costs_nothing(tmp_path, model, monkeypatch, quick, silent_port):
    """It is away until it was asked for in vain."""
    write_data(tmp_path)
    first = FakeRouter(script=[RED, RED, RED, "hang"], default="hang", port=silent_port)
    second = FakeRouter(default=RED, port=silent_port)
    missed, stopped, probe = threading.Event(), threading.Event(), outage.probe

    async def watched(session, endpoint):
        found = await probe(session, endpoint)
        if not found.is_up:
            missed.set()
        return found

    def restart():
        while len(first.requests) < 4 and not stopped.wait(0.01):
            pass
        runner.__exit__(None, None, None)
        missed.wait(HANGS_AFTER_S)
        with running_beside(second):
            stopped.wait(HANGS_AFTER_S)

    monkeypatch.setattr(outage, "probe", watched)
    runner = running_beside(first)
    runner.__enter__()
    thread = threading.Thread(target=restart)
    thread.start()
    config = Config(**{**vars(CONFIG), "eval_server_wait": HANGS_AFTER_S, "mem_concurrency": 1})
    try:
        ev.run(tmp_path, ["50"], model, f"http://127.0.0.1:{silent_port}", config, tmp_path / "out", True)
    finally:
        missed.set()
        stopped.set()
        thread.join()
    assert counted(summary_of(tmp_path / "out")) == (3, 0, 0) and second.requests


def test_a_server_that_stays_away_ends_the_run_and_keeps_what_is_there(tmp_path, model):
    write_data(tmp_path, count=4)
    router = FakeRouter(script=[RED, RED, RED], default="drop")
    with pytest.raises(EvalError, match="did not come back within EVAL_SERVER_WAIT=0 s; the same command continues"):
        evaluate_at(tmp_path, model, router, mem_concurrency=1)
    assert counted(summary_of(tmp_path / "out")) == (2, 1, 2)
    assert failures(tmp_path / "out", ["50"])[0].split(": ")[1] == "connection"


def test_a_request_that_breaks_a_healthy_server_is_tried_twice_not_for_ever(tmp_path, model):
    write_data(tmp_path, count=1)
    router = FakeRouter(default=lambda body: 500 if body["sampling_params"]["max_tokens"] > 1 else vllm_answer(RED))
    output = evaluate_at(tmp_path, model, router, eval_server_wait=HANGS_AFTER_S)
    sent = [body for body in router.requests if body["sampling_params"]["max_tokens"] > 1]
    assert len(sent) == 2 and failures(output, ["50"])[0].startswith("50/0: server_error: ")


# --- what answers, and does not reply -----------------------------------------------------------------------------


def asked_without_patience(model, router, **settings):
    with running_beside(router):
        config = Config(**{**vars(CONFIG), "base_url": f"http://127.0.0.1:{router.port}/v1", **settings})
        return asyncio.run(connect("", model, config))


PAGE = Raw(b"<html>It works!</html>")
NO_REPLIES = [
    PAGE, Raw(b""), Raw(b"[1]"), Raw(b"null"), Raw(b"[" * 10**6), Raw(b'{"choices": []}'), Raw(b'{"choices": [null]}'),
    Raw(b'{"choices": [{"message": null, "text": null, "finish_reason": "stop"}]}'), Raw(b" " * 2**22),
]


@pytest.mark.parametrize("answer", NO_REPLIES)
def test_an_api_that_answers_without_a_reply_is_passed_over(tmp_path, model, answer):
    write_data(tmp_path)
    router = FakeRouter(default=lambda body: chat_message(BOXED) if "messages" in body else answer)
    output = evaluate_at(tmp_path, model, router)
    assert {r.scores["em"] for r in read_rows(output, "50")} == {1.0}
    assert read_run(output).model.endswith(" chat served")


def test_a_server_of_pages_is_told_by_its_page(model):
    wrong = r"no usable API \(generate -> HTTP 200, but no reply, completions -> .*<html>It works!</html>\)"
    with pytest.raises(EvalError, match=wrong):
        asked_without_patience(model, FakeRouter(default=PAGE))


@pytest.mark.parametrize("parts,boxed", [([{"type": "text", "text": "it is "}, {"text": "\\boxed{red}"}], True),
                                         ([{"type": "image"}], False), (7, False), ({"text": "x"}, False)])
def test_a_message_in_parts_is_their_texts_and_any_other_shape_a_bad_response(tmp_path, model, parts, boxed):
    write_data(tmp_path, count=1)
    router = FakeRouter(default=lambda body: chat_message(parts if body["max_tokens"] > 1 else "red"))
    output = evaluate_at(tmp_path, model, router, eval_api="chat")
    if boxed:
        assert {r.scores["em"] for r in read_rows(output, "50")} == {1.0}
    else:
        assert failures(output, ["50"])[0].startswith("50/0: bad_response: ")


def test_a_server_that_counts_oddly_is_evaluated_all_the_same(tmp_path, model):
    write_data(tmp_path, count=1)
    odd = {"usage": {"prompt_tokens_details": {"cached_tokens": 1e30}}}
    router = FakeRouter(default=lambda body: chat_message(BOXED) | odd)
    output = evaluate_at(tmp_path, model, router, eval_api="chat")
    [row] = read_rows(output, "50")
    assert row.scores["em"] == 1.0 and "cached_tokens" not in row.counts


# --- a server that turns requests away ----------------------------------------------------------------------------

BUSY = Raw(b"slow down", 429, {"Retry-After": "1"})


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(outage, "POLL_S", 0.01)
    monkeypatch.setattr("mem_agent.evaluation.connect.POLL_S", 0.01)


def test_a_server_that_is_busy_for_a_while_costs_nothing(tmp_path, model, quick):
    write_data(tmp_path)
    router = FakeRouter(script=[429, RED, 429, 429, RED, 429], default=RED)
    output = evaluate_at(tmp_path, model, router, eval_server_wait=HANGS_AFTER_S, mem_max_retries=0,
                         eval_api="generate")
    assert counted(summary_of(output)) == (3, 0, 0)


def test_a_server_that_is_always_busy_ends_the_run_with_a_line_of_its_own(tmp_path, model, quick):
    write_data(tmp_path, count=4)
    router = FakeRouter(script=[RED, RED, RED], default=BUSY)
    with pytest.raises(EvalError, match="nothing but HTTP 429, too many requests, within EVAL_SERVER_WAIT=0 s"):
        evaluate_at(tmp_path, model, router, mem_concurrency=1, mem_max_retries=0)
    assert failures(tmp_path / "out", ["50"])[0].split(": ")[1] == "rate_limited"
    with pytest.raises(EvalError, match=r"HTTP 429, too many requests \(slow down\); run it again later"):
        asked_without_patience(model, FakeRouter(default=BUSY))


def test_a_request_that_alone_is_turned_away_fails_alone(tmp_path, model, quick):
    write_data(tmp_path, count=2)

    def answer(body):
        alone = body["sampling_params"]["max_tokens"] > 1 and body["token_ids"] == first[0]
        return 429 if alone else RED

    first = [None]
    probe = FakeRouter(default=RED)
    evaluate_at(tmp_path, model, probe, mem_concurrency=1)
    first[0] = probe.requests[1]["token_ids"]
    for path in (tmp_path / "out").glob("50.jsonl"):
        path.unlink()
    output = evaluate_at(tmp_path, model, FakeRouter(default=answer), eval_server_wait=2.0, mem_max_retries=0)
    assert [line.split(": ")[1] for line in failures(output, ["50"])] == ["rate_limited"]


def test_retry_after_is_waited_for(monkeypatch):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr("mem_agent.client.rollout_client.asyncio.sleep", sleep)
    router = FakeRouter([Raw(b"", 429, {"Retry-After": "17"}), Raw(b"", 503, {"Retry-After": "900"}), 429, [8]])
    with running_beside(router):
        async def main():
            endpoint = Endpoint(Dialect.VLLM, f"http://127.0.0.1:{router.port}")
            client = GenerationClient(endpoint, RetryPolicy(HANGS_AFTER_S, 3, 0.01), 1)
            await client.generate([5], 9, {}, "k")
            await client.close()

        asyncio.run(main())
    assert [wait for wait in waits if wait >= 1.0] == [17.0, 60.0]
