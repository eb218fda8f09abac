"""What a job server's answers may not do: send the launcher elsewhere, or have them read in a way of their own."""

import asyncio
import functools

import pytest
from aiohttp import web

from mem_agent.config import ConfigError
from mem_agent.launch.machine import machines
from mem_agent.system.redirects import Redirected
from mem_agent.tests.helpers.endless import Endless
from mem_agent.tests.helpers.endless import beside as run_beside
from mem_agent.tests.helpers.fake_job_server import FakeJobServer, lead_astray, serving

pytest.importorskip("ray")
from mem_agent.launch.job_server import JobServer


@pytest.fixture
def server(monkeypatch):
    lead_astray(monkeypatch)
    with serving(FakeJobServer()) as fake:
        fake.headers = {"Location": "/elsewhere/" + "\x9b2J" * 500}
        yield fake


def test_a_submission_and_a_question_for_the_job_go_nowhere_else(server):
    client = JobServer(server.address)
    server.submissions, server.states = [(307, "")], [302]
    submit = functools.partial(client.submit_job, entrypoint="true", submission_id="mine")
    for ask in (submit, functools.partial(client.get_job_info, "mine")):
        with pytest.raises(OSError, match=r"HTTP 30[27], a redirect, which is not followed") as failed:
            ask()
        assert str(failed.value).isprintable() and len(str(failed.value)) < 300
    assert not [asked for asked in server.asked if "elsewhere" in asked] and len(server.asked) == 2


async def followed(client):
    return [lines async for lines in client.tail_job_logs("mine")]


def test_nor_does_the_stream_of_its_log(server):
    client, server.tail = JobServer(server.address), 302
    with pytest.raises(Redirected):
        asyncio.run(followed(client))
    assert server.asked == ["GET /api/jobs/mine/logs/tail"]


@pytest.mark.parametrize("breaks", [False, True])
def test_the_stream_of_a_log_is_followed_to_its_end(server, breaks):
    async def stream(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for lines in ("a\nb\n", "c\n"):
            await socket.send_str(lines)
        if breaks:
            request.transport.abort()
        return socket

    async def beside(url):
        client = JobServer(server.address)
        client._address, told = url, []
        try:
            async for lines in client.tail_job_logs("mine"):
                told.append(lines)
        except RuntimeError as error:
            told.append(str(error))
        return told

    logs = Endless("plain")
    logs.handle = stream
    told = run_beside(logs, beside)
    assert told[-1] == "the connection was lost" if breaks else told == ["a\nb\n", "c\n"]


def test_a_planner_that_is_led_elsewhere_is_told_at_once(server, monkeypatch):
    monkeypatch.setattr(server, "answer", lambda method, path, body: server.asked.append(path) or (301, ""))
    with pytest.raises(ConfigError, match=f"RAY_ADDRESS={server.address}: .*HTTP 301, a redirect, .*'s: /elsewhere/"):
        machines(server.address)
    assert len(server.asked) == 1


@pytest.mark.parametrize("kind", ["application/json; charset=punycode", "text/plain"])
def test_an_error_of_any_charset_is_read_as_utf_8(server, kind):
    """Of which the one takes a square of the answer's length, and none named a search for what it may be."""
    client = JobServer(server.address)
    server.headers, server.states = {"Content-Type": kind}, [500]
    answer = client._do_request("GET", "/api/jobs/mine")
    assert answer.encoding == "utf-8" and answer.text == '"no state here"'
