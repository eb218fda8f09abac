"""Headers of an answer are a stranger's as its body is: none ends the client, and none is kept."""

import asyncio
import warnings

import pytest
from aiohttp import web

from mem_agent.agents.records import FailureKind, TurnFailed
from mem_agent.client.chat_client import ChatClient
from mem_agent.client.chat_settings import ChatFailed, ChatSettings
from mem_agent.client.engine_api import Dialect, Endpoint
from mem_agent.client.rollout_client import GenerationClient, RetryPolicy
from mem_agent.client.token_stream import is_stream
from mem_agent.tests.helpers.endless import beside
from mem_agent.tests.helpers.fake_chat import completion
from mem_agent.tests.helpers.fake_router import FakeRouter, running, vllm_answer

CHARSETS = ["zlib", "bz2", "hex", "uu", "rot13", "idna", "punycode", "undefined", "nobody's", "utf-7", "a" * 5000]
KINDS = [*(f"text/plain; charset={name}" for name in CHARSETS), "(" * 1000, "text/event-stream" + "(" * 1000,
         ";" * 7000]


class Answering:
    """A server of two statuses, the first for the first request alone, with these headers."""

    def __init__(self, first: int, then: int, body: dict, headers: list[tuple[str, str]]) -> None:
        self.statuses, self.body, self.headers, self.cookies = [first, then], body, headers, []

    async def handle(self, request: web.Request) -> web.Response:
        self.cookies += request.headers.getall("Cookie", [])
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        answer = web.json_response(self.body, status=status)
        del answer.headers["Content-Type"]
        answer.headers.extend(self.headers)
        return answer


async def generated(url):
    client = GenerationClient(Endpoint(Dialect.VLLM, url), RetryPolicy(60, 1, 0.001), 2)
    try:
        return (await client.generate([5], 9, {}, "k", tell=lambda ids: None)).token_ids
    finally:
        await client.close()


async def chatted(url):
    client = ChatClient(ChatSettings(url=url, model="m", retries=1, backoff_s=0.001))
    try:
        return await client.ask([{"role": "user", "content": "Where?"}])
    finally:
        await client.close()


BOTH = pytest.mark.parametrize(("ask", "body", "reply"), [
    (generated, vllm_answer([8]), [8]), (chatted, completion("yes"), "yes"),
])


@BOTH
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[:40])
def test_a_kind_of_answer_that_is_none_changes_nothing(ask, body, reply, kind):
    headers = [("Content-Type", kind)]
    assert beside(Answering(200, 200, body, headers), ask) == reply
    assert beside(Answering(500, 200, body, headers), ask) == reply  # a status that may pass is tried again
    for status, failure in ((400, FailureKind.REJECTED), (500, FailureKind.SERVER_ERROR)):
        with pytest.raises((TurnFailed, ChatFailed), match=f"HTTP {status}: ") as failed:
            beside(Answering(status, status, body, headers), ask)
        assert failed.value.kind is failure and "\n" not in str(failed.value)


def test_a_chat_server_has_no_cookie_kept_whatever_it_is():
    """Python's own jar prints a traceback of one whose age is endless, and keeps any number of them."""
    cookies = [("Set-Cookie", f"a=b; max-age={'9' * 4000}"), ("Set-Cookie", "c=d"), ("Set-Cookie2", "e=f; version=1")]
    server = Answering(500, 200, completion("yes"), cookies)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert beside(server, chatted) == "yes" and server.cookies == []


@pytest.mark.parametrize(("kind", "streams"), [
    ("text/event-stream", True), ("text/event-stream; charset=utf-8", True), ("Text/Event-Stream ;x", True),
    ("application/json", False), ("", False), ("text/event-streams", False), ("(" * 10**6, False),
])
def test_a_stream_says_so(kind, streams):
    assert is_stream(kind) is streams


def test_a_stream_with_a_charset_is_read_as_one():
    told = []

    async def main():
        async with running(FakeRouter([[8, 9]], streams=True)) as router:
            endpoint = Endpoint(Dialect.VLLM, f"http://127.0.0.1:{router.port}")
            client = GenerationClient(endpoint, RetryPolicy(60, 0, 1.0), 2)
            try:
                return (await client.generate([5], 9, {}, "k", tell=lambda ids: told.append(len(ids)))).token_ids
            finally:
                await client.close()

    assert asyncio.run(main()) == [8, 9] and told
