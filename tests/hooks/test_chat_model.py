"""The client of a chat model: patience where it helps, one line where it does not, and a key that nobody sees."""

import asyncio
import json
import logging

import pytest

from mem_agent.agents.records import FailureKind
from mem_agent.hooks.chat_model import ChatClient, ChatFailed, ChatSettings
from mem_agent.rollout_client import NEUTRAL
from mem_agent.tests.helpers.fake_router import Raw, chat_model, running_beside
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


def test_a_reply_and_what_was_sent_for_it():
    with running_beside(chat_model("in Lyon")) as chat:
        assert ask(chat, url=f"{chat.url}/v1/", seed=7, max_output_tokens=9, temperature=0.0) == ["in Lyon"]
    sent = {"model": "served", "messages": ASKED, "temperature": 0.0, "max_tokens": 9, "seed": 7, "top_p": 1.0}
    assert chat.requests == [sent | NEUTRAL]


def test_a_strict_server_gets_standard_fields():
    """All four requests are there before the first is refused, for its fields and then for the limit's name."""
    def strict(body):
        if NEUTRAL.keys() & body.keys():
            return 422
        refusal = {"error": {"message": "use 'max_completion_tokens'"}}
        return Raw(json.dumps(refusal).encode(), 400) if "max_tokens" in body else "in Lyon"

    with running_beside(chat_model(strict, together=4)) as chat:
        assert ask(chat, times=4) == ["in Lyon"] * 4
    assert [bool(NEUTRAL.keys() & body.keys()) for body in chat.requests].count(True) == 8


@pytest.mark.parametrize("answer,kind,requests", [
    (500, FailureKind.SERVER_ERROR, 2), (400, FailureKind.REJECTED, 4), (401, FailureKind.REJECTED, 1),
    (Raw(b'{"choices": []}'), FailureKind.BAD_RESPONSE, 1), (Raw(b"not JSON"), FailureKind.BAD_RESPONSE, 1),
])
def test_only_what_may_pass_is_asked_again_and_the_key_is_in_no_error_or_log(answer, kind, requests, caplog):
    caplog.set_level(logging.DEBUG)
    with running_beside(chat_model(answer, key=KEY)) as chat:
        (failure,) = ask(chat, key=f" {KEY}\n", retries=1)
    assert isinstance(failure, ChatFailed) and failure.kind is kind and str(failure).startswith(chat.url)
    assert len(chat.requests) == requests and failure.holds_for_all is (answer == 401)
    assert chat.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in f"{ChatSettings(url=chat.url, model='m', key=KEY)} {failure} {caplog.text}"


def test_requests_at_once_are_bounded_and_a_model_may_know_the_other_name_of_the_limit():
    def newer(body):
        refusal = {"error": {"message": "max_tokens is not supported here. Use 'max_completion_tokens' instead."}}
        return Raw(json.dumps(refusal).encode(), 400) if "max_tokens" in body else "good"

    with running_beside(chat_model(newer, delay=0.02, together=4)) as chat:
        assert ask(chat, times=20, concurrency=4) == ["good"] * 20 and chat.peak == 4
    assert all("max_completion_tokens" in body for body in chat.requests[-16:])


def test_a_server_elsewhere_is_asked_through_the_proxy_of_the_environment(monkeypatch):
    """The proxy here is the chat server itself, which sees the whole address."""
    monkeypatch.setenv("NO_PROXY", "")
    with running_beside(chat_model()) as chat:
        monkeypatch.setenv("HTTP_PROXY", chat.url)
        monkeypatch.setenv("http_proxy", chat.url)
        assert ask(chat, url="http://chat.invalid/v1", retries=0) == ["yes"]
