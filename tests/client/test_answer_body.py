"""Answers without end: every client of a server reads no more than what was asked for can take."""

import asyncio

import pytest
from aiohttp.http import HttpProcessingError

from mem_agent.agents.records import FailureKind, TurnFailed
from mem_agent.client.answer_body import BodyTooLong, beginning, most_bytes, whole_body
from mem_agent.client.chat_client import ChatClient
from mem_agent.client.chat_settings import ChatFailed, ChatSettings
from mem_agent.client.engine_api import Dialect, Endpoint
from mem_agent.client.retry_after import LONGEST_WAIT_S, seconds_asked
from mem_agent.client.rollout_client import GenerationClient, RetryPolicy
from mem_agent.client.server_session import NO_ANSWER
from mem_agent.tests.helpers.endless import PIECE, Endless, beside
from mem_agent.tests.helpers.fake_chat import Raw
from mem_agent.tests.helpers.fake_router import FakeRouter


def failure(server, ask):
    with pytest.raises((TurnFailed, ChatFailed)) as failed:
        beside(server, ask)
    return failed.value


async def of_engine(url):
    client = GenerationClient(Endpoint(Dialect.VLLM, url), RetryPolicy(60, 0, 0.001), 2)
    try:
        return (await client.generate([5], 9, {}, "k", tell=lambda ids: None)).token_ids
    finally:
        await client.close()


async def of_chat(url):
    settings = ChatSettings(url=url, model="m", retries=0, timeout_s=60.0, max_output_tokens=9)
    client = ChatClient(settings)
    try:
        return await client.ask([{"role": "user", "content": "Where?"}])
    finally:
        await client.close()


BOTH = pytest.mark.parametrize("ask", [of_engine, of_chat])


@BOTH
@pytest.mark.parametrize("kind", ["plain", "events", "bomb"])
def test_an_answer_without_end_is_refused_while_it_is_read(ask, kind):
    server = Endless(kind)
    failed = failure(server, ask)
    assert failed.kind is FailureKind.BAD_RESPONSE and "longer than" in str(failed) and "\n" not in str(failed)
    assert server.pieces * PIECE < most_bytes(9) + 2**26  # what lies in sockets besides


@pytest.mark.parametrize("length", [2**19 + 1, 900_000])
def test_a_line_of_a_stream_that_is_longer_than_lines_are_is_no_answer(length):
    events = Raw(b"data: " + b"x" * length + b"\n\n", headers={"Content-Type": "text/event-stream"})
    failed = failure(FakeRouter(default=events), of_engine)
    assert failed.kind is FailureKind.BAD_RESPONSE and str(failed).isprintable() and len(str(failed)) < 400
    assert issubclass(HttpProcessingError, NO_ANSWER)  # for those who read no lines, and get it without aiohttp's C


@BOTH
@pytest.mark.parametrize("kind", ["plain", "bomb"])
def test_of_an_error_without_end_the_beginning_is_read(ask, kind):
    server = Endless(kind, status=500)
    failed = failure(server, ask)
    assert failed.kind is FailureKind.SERVER_ERROR and "HTTP 500" in str(failed) and len(str(failed)) < 1000
    assert server.pieces * PIECE < 2**26


@BOTH
def test_a_compressed_answer_within_the_bound_is_read(ask):
    assert beside(Endless("small"), ask) in ([8], "yes")


def test_the_bound_is_on_what_was_unpacked_and_grows_with_what_was_asked():
    async def parts(count, size):
        for _ in range(count):
            yield b"x" * size

    assert most_bytes(1000) - most_bytes(0) == 4096 * 1000
    assert asyncio.run(whole_body(parts(4, 25), 100)) == b"x" * 100
    with pytest.raises(BodyTooLong, match="longer than 99 bytes"):
        asyncio.run(whole_body(parts(4, 25), 99))
    assert asyncio.run(beginning(parts(2, 3))) == b"x" * 6 and len(asyncio.run(beginning(parts(99, 100)))) == 4096


@pytest.mark.parametrize("header,seconds", [
    (None, 0), ("", 0), ("7", 7), (" 7 ", 7), ("86400", LONGEST_WAIT_S), ("9" * 400, LONGEST_WAIT_S), ("-3", 0),
    ("\u00b2", 0), ("soon", 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 20), ("Wed, 21 Oct 2015 07:27:00 GMT", 0),
    ("Wed, 21 Oct 2099 07:28:00 GMT", LONGEST_WAIT_S), ("Wed, 99 Oct 2015 99:99:99 GMT", None),
    ("1 Jan 10000 0:0", 0), ("Wed, 00 Xxx 0000 00:00:00 GMT", 0), ("Wed, 00 Jan 0000 00:00:00 GMT", None),
])
def test_retry_after_is_read_within_limits(header, seconds):
    waits = seconds_asked(header, now=1445412460.0)
    assert waits == seconds if seconds is not None else 0 <= waits <= LONGEST_WAIT_S
