"""The client of a chat model: patience where it helps, one line where it does not, and a key that nobody sees."""

import asyncio
import json
import logging
import threading
import time
import traceback

import pytest

from mem_agent.agents.records import FailureKind
from mem_agent.client.chat_client import ChatClient
from mem_agent.client.chat_settings import ChatFailed, ChatSettings, key_from
from mem_agent.config import ConfigError
from mem_agent.tests.helpers.fake_chat import DRIP, HANG, FakeChat, Raw, chat_server, completion
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

KEY = "sk-secret-0123456789"
ASKED = [{"role": "user", "content": "Where?"}]


def settings(chat, **own):
    return ChatSettings(**{"url": chat.url, "model": "served", "backoff_s": 0.01, "timeout_s": HANGS_AFTER_S} | own)


def ask(chat, times=1, seed=None, **own):
    """The client, and what it gave: replies and failures."""
    client = ChatClient(settings(chat, **own))

    async def all_of_them():
        try:
            return await asyncio.gather(*(client.ask(ASKED, seed) for _ in range(times)), return_exceptions=True)
        finally:
            await client.close()

    return client, asyncio.run(all_of_them())


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_a_reply_and_what_was_sent_for_it(suffix):
    with chat_server(FakeChat(lambda body, number: "in Lyon")) as chat:
        client, replies = ask(chat, url=chat.url + suffix, seed=7, max_output_tokens=9, temperature=0.0)
    assert replies == ["in Lyon"]
    assert chat.bodies == [
        {"model": "served", "messages": ASKED, "temperature": 0.0, "max_tokens": 9, "seed": 7}
    ]
    assert "authorization" not in {name.lower() for name in chat.headers[0]}
    assert (client.counts.asked, client.counts.answered, client.counts.retries) == (1, 1, 0)


@pytest.mark.parametrize("faults,retries,good", [
    ([500], 1, True), ([429, 503], 2, True), ([500, 500], 1, False), ([502], 0, False),
])
def test_attempts_follow_what_may_pass(faults, retries, good):
    with chat_server(FakeChat(lambda body, number: faults[number] if number < len(faults) else "good")) as chat:
        client, (reply,) = ask(chat, retries=retries, timeout_s=HANGS_AFTER_S)
    assert (reply == "good") is good
    assert len(chat.bodies) == 1 + retries and client.counts.retries == retries
    if not good:
        assert isinstance(reply, ChatFailed) and reply.kind is FailureKind.SERVER_ERROR and client.counts.failed == 1


@pytest.mark.parametrize("fault", [HANG, DRIP])
def test_an_attempt_that_takes_too_long_is_followed_by_another(fault):
    """On a busy machine by more than one: the good answer has no longer than the one that hangs."""
    with chat_server(FakeChat(lambda body, number: "good" if number else fault)) as chat:
        client, (reply,) = ask(chat, retries=100, timeout_s=0.4)
    assert reply == "good" and client.counts.retries == len(chat.bodies) - 1 >= 1


@pytest.mark.parametrize("answer,kind,told", [
    (400, FailureKind.REJECTED, "HTTP 400: {\"error\": {\"message\": \"status 400\"}}"),
    (422, FailureKind.REJECTED, "HTTP 422"),
    (404, FailureKind.REJECTED, "no such route, or no model 'served'"),
    (401, FailureKind.REJECTED, "the key is refused"),
    (Raw(b"<html>busy</html>"), FailureKind.BAD_RESPONSE, "expected a chat completion, got: <html>busy</html>"),
    (Raw(b'{"choices": []}'), FailureKind.BAD_RESPONSE, "expected a chat completion"),
    (Raw(b'{"choices": [{"message": "no"}]}'), FailureKind.BAD_RESPONSE, "expected a chat completion"),
    (Raw(b"[1]"), FailureKind.BAD_RESPONSE, "expected a chat completion"),
])
def test_what_will_not_pass_is_asked_once(answer, kind, told):
    with chat_server(FakeChat(lambda body, number: answer)) as chat:
        _, (failure,) = ask(chat, retries=5)
    assert isinstance(failure, ChatFailed) and failure.kind is kind
    assert told in str(failure) and str(failure).startswith(chat.url) and "\n" not in str(failure)
    assert len(chat.bodies) == 1
    assert failure.holds_for_all is (answer in (401, 404))


def test_cut_and_empty_replies_are_replies():
    with chat_server(FakeChat(lambda body, number: ["half a", "", None][number], finish_reason="length")) as chat:
        client, replies = ask(chat, times=3, concurrency=1)
    assert replies == ["half a", "", ""]
    assert (client.counts.cut, client.counts.empty, client.counts.answered) == (3, 2, 3)


def test_content_in_parts_is_joined():
    parts = [{"type": "text", "text": "in "}, {"type": "text", "text": "Lyon"}]
    with chat_server(FakeChat(lambda body, number: Raw(json.dumps(completion(parts)).encode()))) as chat:
        assert ask(chat)[1] == ["in Lyon"]


def test_nothing_there_is_one_line_after_bounded_attempts(silent_port):
    client, (failure,) = ask(FakeChat(port=silent_port), retries=2)
    assert isinstance(failure, ChatFailed) and failure.kind is FailureKind.CONNECTION and client.counts.retries == 2
    assert "nothing answers there" in str(failure) and "\n" not in str(failure)


def test_a_server_that_never_answers_is_left_in_time():
    with chat_server(FakeChat(lambda body, number: HANG)) as chat:
        began = time.monotonic()
        _, (failure,) = ask(chat, retries=1, timeout_s=0.2)
    assert failure.kind is FailureKind.TIMEOUT and "no answer within 0.2 s" in str(failure)
    assert len(chat.bodies) == 2 and time.monotonic() - began < HANGS_AFTER_S


def test_retry_after_is_waited_for():
    busy = Raw(status=429, headers={"Retry-After": "1"})
    with chat_server(FakeChat(lambda body, number: "good" if number else busy)) as chat:
        began = time.monotonic()
        assert ask(chat)[1] == ["good"]
    assert 1.0 <= time.monotonic() - began


def test_requests_at_once_are_bounded():
    with chat_server(FakeChat(delay=0.02, together=4)) as chat:
        _, replies = ask(chat, times=20, concurrency=4)
    assert replies == ["yes"] * 20 and chat.peak == 4


def test_one_client_serves_loops_one_after_the_other_and_side_by_side():
    with chat_server(FakeChat(delay=0.05)) as chat:
        client = ChatClient(settings(chat))
        got = []

        def in_a_loop():
            got.append(asyncio.run(client.ask(ASKED)))

        in_a_loop()
        threads = [threading.Thread(target=in_a_loop) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANGS_AFTER_S)
    assert got == ["yes"] * 4


def test_loops_that_have_ended_are_let_go():
    """Of a loop in which somebody had to wait, what belongs to it leads back to it."""
    with chat_server(FakeChat(delay=0.01)) as chat:
        client = ChatClient(settings(chat, concurrency=1))

        async def three():
            await asyncio.gather(*(client.ask(ASKED) for _ in range(3)))

        for _ in range(5):
            asyncio.run(three())
    assert len(client._loops) == 1


def test_a_model_that_knows_the_other_name_of_the_limit():
    def newer(body, number):
        refusal = {"error": {"message": "max_tokens is not supported here. Use 'max_completion_tokens' instead."}}
        return Raw(json.dumps(refusal).encode(), 400) if "max_tokens" in body else "good"

    with chat_server(FakeChat(newer)) as chat:
        assert ask(chat, times=2, concurrency=1)[1] == ["good", "good"]
    assert [("max_tokens" in body, "max_completion_tokens" in body) for body in chat.bodies] == [
        (True, False), (False, True), (False, True)
    ]


@pytest.mark.parametrize("echo", [
    f"you are {KEY}", 400, Raw(f"bad request of {KEY}".encode(), 400), Raw(f"{'x' * 190}{KEY}".encode(), 400),
    Raw(f"busy {KEY}".encode(), 503, {"X-Echo": KEY}), Raw(f"not JSON {KEY}".encode()),
])
def test_the_key_is_seen_nowhere(echo, caplog):
    caplog.set_level(logging.DEBUG)
    with chat_server(FakeChat(lambda body, number: echo, key=KEY)) as chat:
        client, (told,) = ask(chat, key=f" {KEY}\n", retries=1)
    assert chat.headers[0]["Authorization"] == f"Bearer {KEY}"
    failure = told if isinstance(told, ChatFailed) else None
    lines = traceback.format_exception(failure) if failure else []
    seen = [repr(client), repr(client.settings), str(told), repr(told), *lines, repr(vars(failure) if failure else ""),
            repr(failure and failure.__cause__), caplog.text]
    assert not [text for text in seen if KEY[:12] in text]


def test_a_wrong_key_is_refused_without_being_shown():
    with chat_server(FakeChat(key="another-key")) as chat:
        _, (failure,) = ask(chat, key=KEY)
    assert failure.status == 401 and "***" in str(failure) and KEY not in str(failure)


def test_the_environment_brings_no_proxy_and_no_credentials(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    with chat_server(FakeChat()) as chat:
        assert ask(chat)[1] == ["yes"]
    assert KEY not in str(chat.headers)


@pytest.mark.parametrize("own,told", [
    ({"url": ""}, "allowed: http://HOST:PORT"), ({"url": "ftp://h"}, "allowed: http://HOST:PORT"),
    ({"url": f"http://u:{KEY}@h"}, "holds credentials"), ({"url": "http://h:x"}, "not an address"),
    ({"key": f"{KEY}é"}, "holds letters that no request header takes"),
    ({"key": f"{KEY}\r\nX: y"}, "holds letters that no request header takes"),
])
def test_settings_that_cannot_be_used(own, told):
    with pytest.raises(ConfigError) as raised:
        ChatSettings(**{"url": "http://h", "model": "m"} | own)
    assert told in str(raised.value) and KEY not in str(raised.value)


def test_the_first_key_that_is_there():
    env = {"API_KEY": " ", "OPENAI_API_KEY": "o", "ANSWER_KEY": "a"}
    assert key_from(env) == "o" and key_from(env, ("ANSWER_KEY", "API_KEY")) == "a" and key_from({}) == ""
