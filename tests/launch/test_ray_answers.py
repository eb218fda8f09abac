"""What a job server's answers may not do: send the launcher elsewhere, or have them read in a way of their own."""

import asyncio
import contextlib
import functools
import itertools
import socket
import threading
import time
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web

from mem_agent.config import ConfigError
from mem_agent.launch.machine import machines
from mem_agent.system.redirects import Redirected
from mem_agent.tests.helpers.endless import Endless
from mem_agent.tests.helpers.endless import beside as run_beside
from mem_agent.tests.helpers.fake_job_server import FakeJobServer, lead_astray, serving

pytest.importorskip("ray")
from mem_agent.launch import job_server, ray_jobs
from mem_agent.launch.job_server import JobServer
from mem_agent.tests.helpers.patience import HANGS_AFTER_S


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


@pytest.mark.parametrize("ends,said", [
    ("well", "c\n"), ("lost", "the connection was lost"), ("long", "a line of more than 4 MB"),
    ("early", "closed with code 1011"),
])
def test_the_stream_of_a_log_is_followed_to_its_end(server, ends, said):
    async def stream(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for lines in ("a\nb\n", "c\n"):
            await socket.send_str(lines)
        if ends == "lost":
            request.transport.abort()
        if ends == "long":
            await socket.send_str("x" * (2**22 + 1))
        if ends == "early":
            await socket.close(code=aiohttp.WSCloseCode.INTERNAL_ERROR)
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
    assert told[:2] == ["a\nb\n", "c\n"][: len(told)] and told[-1] == said


@pytest.mark.parametrize("states", [["RUNNING", "SUCCEEDED"], [503, "FAILED"], [503]], ids=["ended", "failed", "lost"])
def test_a_log_that_stands_still_is_followed_while_its_job_runs(server, states, monkeypatch, tmp_path, caplog):
    """Ray's server answers no ping: nothing but the job's state tells a silent job from a connection that is gone."""
    monkeypatch.setattr(ray_jobs, "_LOOK_S", 0.01)
    monkeypatch.setattr(ray_jobs, "_LAST_WORDS_S", 0.01)
    monkeypatch.setattr(ray_jobs, "_LOST_AFTER_S", 0.05 if states == [503] else HANGS_AFTER_S)
    server.states, shown = states, []

    async def handle(request):
        if not request.path.endswith("/logs/tail"):
            code, answer = server.answer(request.method, request.path, {})
            return web.json_response(answer, status=code)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("began\n")
        await socket.receive()
        return socket

    async def beside(url):
        client = JobServer(server.address)
        client._address = url
        await ray_jobs._follow_log_to_end(client, "mine", tmp_path / "log", shown.append)

    silent = Endless("plain")
    silent.handle = handle
    run_beside(silent, beside)
    assert set(shown) <= {"began\n"} and "the log of job mine stands still" in caplog.text


def test_the_log_of_a_run_that_was_copied_by_links_goes_on_in_it_alone(tmp_path):
    """``cp -al run backup``."""
    async def tail(job):
        yield "new\n"

    (tmp_path / "job.log").write_text("old\n")
    (tmp_path / "backup.log").hardlink_to(tmp_path / "job.log")
    shown, streaming = [], SimpleNamespace(tail_job_logs=tail)
    asyncio.run(ray_jobs._follow_log(streaming, "mine", tmp_path / "job.log", shown.append))
    assert shown == ["new\n"] and (tmp_path / "job.log").read_text() == "old\nnew\n"
    assert (tmp_path / "backup.log").read_text() == "old\n"


def test_an_answer_that_drips_is_lost_after_the_time_that_all_of_it_has(monkeypatch):
    """A limit between two pieces is none for the whole."""
    lead_astray(monkeypatch)
    clock = itertools.count(step=10)
    monkeypatch.setattr(job_server, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def drip():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(2**16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
                while True:
                    connection.sendall(b" ")
                    time.sleep(0.001)

        threading.Thread(target=drip, daemon=True).start()
        with pytest.raises(ConfigError, match="its answer has no end after 60 s"):
            machines(f"http://127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize("begins,piece", [
    (b"HTTP/1.1 200 OK\r\nA: ", b"a"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n"), (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
], ids=["headers", "continue", "body"])
def test_no_request_lasts_longer_than_its_time_whatever_comes(begins, piece, monkeypatch):
    lead_astray(monkeypatch)
    monkeypatch.setattr(job_server, "_TIMEOUT_S", 0.5)
    given_up = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def drip():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(2**16)
                connection.sendall(begins)
                for _ in range(2**14):  # some 20 s
                    connection.sendall(piece)
                    if given_up.wait(0.001):
                        break

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        with pytest.raises(ConfigError, match=r"its answer has no end after|timed out"):
            machines(f"http://127.0.0.1:{listener.getsockname()[1]}")
        given_up.set()
        thread.join()


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
