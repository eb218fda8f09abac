"""The client of a chat model: patience where it helps, one line where it does not, and a key that nobody sees."""

import asyncio
import json
import logging

import pytest

from mem_agent.agents.records import FailureKind
from mem_agent.hooks.chat_model import ChatClient, ChatFailed, ChatSettings
from mem_agent.tests.helpers.fake_chat import FakeChat, Raw, chat_server
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

KEY = "sk-secret-0123456789"
ASKED = [{"role": "user", "content": "Where?"}]


def ask(chat, times=1, seed=None, **own):
    """What a client gave: replies and failures."""
    client = ChatClient(ChatSettings(**{"url": chat.url, "model": "served", "timeout_s": HANGS_AFTER_S} | own))

    async def all_of_them():
        try:
            return await asyncio.gather(*(client.ask(ASKED, seed) for _ in range(times)), return_exceptions=True)
        finally:
            await client.close()

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("suffix", ["", "/v1/"])
def test_a_reply_and_what_was_sent_for_it(suffix):
    with chat_server(FakeChat(lambda body, number: "in Lyon")) as chat:
        assert ask(chat, url=chat.url + suffix, seed=7, max_output_tokens=9, temperature=0.0) == ["in Lyon"]
    assert chat.bodies == [{"model": "served", "messages": ASKED, "temperature": 0.0, "max_tokens": 9, "seed": 7}]


@pytest.mark.parametrize("answer,kind,requests", [
    (500, FailureKind.SERVER_ERROR, 2), (400, FailureKind.REJECTED, 1), (401, FailureKind.REJECTED, 1),
    (Raw(b'{"choices": []}'), FailureKind.BAD_RESPONSE, 1),
])
def test_only_what_may_pass_is_asked_again(answer, kind, requests):
    with chat_server(FakeChat(lambda body, number: answer)) as chat:
        (failure,) = ask(chat, retries=1)
    assert isinstance(failure, ChatFailed) and failure.kind is kind and str(failure).startswith(chat.url)
    assert len(chat.bodies) == requests and failure.holds_for_all is (answer == 401)


def test_requests_at_once_are_bounded():
    with chat_server(FakeChat(delay=0.02, together=4)) as chat:
        assert ask(chat, times=20, concurrency=4) == ["yes"] * 20 and chat.peak == 4


def test_a_model_that_knows_the_other_name_of_the_limit():
    def newer(body, number):
        refusal = {"error": {"message": "max_tokens is not supported here. Use 'max_completion_tokens' instead."}}
        return Raw(json.dumps(refusal).encode(), 400) if "max_tokens" in body else "good"

    with chat_server(FakeChat(newer)) as chat:
        assert ask(chat, times=2, concurrency=1) == ["good", "good"]
    assert ["max_tokens" in body for body in chat.bodies] == [True, False, False]


@pytest.mark.parametrize("answer", [400, Raw(b"not JSON")])
def test_the_key_is_in_the_header_and_in_no_error_or_log(answer, caplog):
    caplog.set_level(logging.DEBUG)
    with chat_server(FakeChat(lambda body, number: answer, key=KEY)) as chat:
        (failure,) = ask(chat, key=f" {KEY}\n", retries=0)
        shown = (repr(ChatSettings(url=chat.url, model="m", key=KEY)), str(failure), caplog.text)
    assert chat.headers[0]["Authorization"] == f"Bearer {KEY}" and not [text for text in shown if KEY in text]


def test_a_server_elsewhere_is_asked_through_the_proxy_of_the_environment(monkeypatch):
    """The proxy here is the chat server itself, which sees the whole address."""
    monkeypatch.setenv("NO_PROXY", "")
    with chat_server(FakeChat()) as chat:
        monkeypatch.setenv("HTTP_PROXY", chat.url)
        monkeypatch.setenv("http_proxy", chat.url)
        assert ask(chat, url="http://chat.invalid/v1", retries=0) == ["yes"]
