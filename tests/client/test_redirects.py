"""No server makes its client ask another address: whoever asks is told one line, once, and nothing else is asked."""

import ast
import asyncio

import aiohttp
import pytest
from aiohttp import web

from mem_agent.agents.records import FailureKind, TurnFailed
from mem_agent.asking.engines import _answers
from mem_agent.client.chat_client import ChatClient
from mem_agent.client.chat_settings import ChatFailed, ChatSettings
from mem_agent.client.engine_api import Dialect, Endpoint
from mem_agent.client.rollout_client import GenerationClient, RetryPolicy
from mem_agent.client.server_session import server_session
from mem_agent.rehearsal import rehearse
from mem_agent.serving.engine import EngineClient
from mem_agent.serving.router import RouterAdmin
from mem_agent.system.processes import FleetError
from mem_agent.system.redirects import REDIRECTS, Redirected
from mem_agent.tests.helpers.endless import beside
from mem_agent.tests.helpers.sources import ROOT, SOURCES

VICTIM, KEY = "/add_worker?url=http://evil.example", "sk-secret-0123456789"
PLACES = [
    VICTIM, f"//127.0.0.1:1{VICTIM}", "http://a..b/", f"http://{'a' * 64}.example/", "http://u%3ap:x@127.0.0.1/",
    "http://[::1", "https://\x9b2Jhost/" + "x" * 7000, f"http://evil.example/?{'x' * 20}{KEY}", "", None,
]
"""Where a server may lead: its own other routes, other servers, addresses that are none, and nowhere."""


class Leading:
    """A server that leads elsewhere, whatever it is asked; but for its ``VICTIM``, which it counts."""

    def __init__(self, location: str | None = VICTIM, status: int = 307) -> None:
        self.headers = {} if location is None else {"Location": location}
        self.status, self.asked, self.reached = status, 0, 0

    async def handle(self, request: web.Request) -> web.Response:
        await request.read()
        if request.path == "/add_worker":
            self.reached += 1
            return web.json_response({})
        self.asked += 1
        return web.Response(status=self.status, headers=self.headers)


async def generating(url):
    client = GenerationClient(Endpoint(Dialect.VLLM, url), RetryPolicy(60, 5, 60.0), 2)
    try:
        await client.generate([5], 9, {}, "k", tell=lambda ids: None)
    finally:
        await client.close()


def chat(url):
    return ChatClient(ChatSettings(url=url, model="m", key=KEY, retries=5, backoff_s=60.0))


async def chatting(url):
    client = chat(url)
    try:
        await client.ask([{"role": "user", "content": "Where?"}])
    finally:
        await client.close()


async def listing(url):
    client = chat(url)
    try:
        await client.served()
    finally:
        await client.close()


async def of_engine(url):
    async with server_session() as session:
        await EngineClient(url, session).weight_info()


async def of_router(url):
    async with server_session() as session:
        await RouterAdmin(url, session).workers()


@pytest.mark.parametrize("ask", [generating, chatting, listing, of_engine, of_router])
@pytest.mark.parametrize("location", PLACES, ids=lambda place: str(place)[:12])
def test_a_redirect_is_a_refusal_in_one_line_wherever_it_leads(ask, location):
    server = Leading(location)
    with pytest.raises((TurnFailed, ChatFailed, FleetError)) as failed:
        beside(server, ask)
    line = str(failed.value)
    assert (server.asked, server.reached) == (1, 0)
    assert "http://127.0.0.1:" in line and "HTTP 307, a redirect, which is not followed; if you mean" in line
    assert line.isprintable() and len(line) < 500
    if not isinstance(failed.value, FleetError):
        assert failed.value.kind is FailureKind.REJECTED
    if ask in (chatting, listing):
        assert failed.value.status == 307 and failed.value.holds_for_all and KEY[:12] not in line


@pytest.mark.parametrize("ask", [generating, chatting])
@pytest.mark.parametrize("status", REDIRECTS)
def test_so_is_each_status_that_libraries_follow(ask, status):
    server = Leading(status=status)
    with pytest.raises((TurnFailed, ChatFailed), match=f"HTTP {status}, a redirect") as failed:
        beside(server, ask)
    assert failed.value.kind is FailureKind.REJECTED and (server.asked, server.reached) == (1, 0)
    assert VICTIM in str(failed.value)  # which says what to set, if it is the user's


@pytest.mark.parametrize("location", PLACES, ids=lambda place: str(place)[:12])
def test_who_asks_whether_a_server_is_well_goes_nowhere_either(location):
    async def well(url):
        async with server_session() as session:
            return (await EngineClient(url, session).healthy(), await RouterAdmin(url, session).alive(),
                    await rehearse._answers(f"{url}/health"), await _answers(url))

    server = Leading(location)
    assert beside(server, well) == (False, False, False, True)  # somebody else's server need not have a /health
    assert (server.asked, server.reached) == (4, 0)


@pytest.mark.parametrize("url", ["http://a..b", f"http://{'a' * 64}.example", "http://u%3ap:x@127.0.0.1"])
def test_nobody_is_well_at_an_address_that_is_none(url):
    async def well():
        async with server_session() as session:
            return await EngineClient(url, session).healthy(), await _answers(url), await rehearse._answers(url)

    assert asyncio.run(well()) == (False, False, False)


def test_a_server_that_is_no_router_is_told_once_of_keys_that_have_ended():
    async def told(url):
        client = GenerationClient(Endpoint(Dialect.VLLM, url), RetryPolicy(60, 0, 1.0), 2)
        for key in ("a", "b"):
            await client._tell_finished(key) if client._counts_sessions else None
        await client.close()

    server = Leading()
    beside(server, told)
    assert (server.asked, server.reached) == (1, 0)


def test_a_refused_redirect_leaves_no_connection_open():
    async def connections(url):
        async with server_session() as session:
            for _ in range(3):
                with pytest.raises(Redirected):
                    await session.get(url)
            return len(session.connector._acquired)

    assert beside(Leading(), connections) == 0


# --- nobody forgets -----------------------------------------------------------------------------------------------

SESSIONS = ("aiohttp.ClientSession", "ClientSession")
OTHERS = ("requests.", "urllib.request.", "http.client.", "httpx.", "aiohttp.request")
HARMLESS = ("requests.RequestException", "httpx.Proxy")
ALLOWED = {"launch/job_server.py", "rehearsal/rehearse.py", "client/server_session.py"}


def asking(source: str) -> list[str]:
    """What in ``source`` asks servers, by the call that does; a session that refuses redirects is "refusing"."""
    found = []
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        name = ast.unparse(call.func)
        if name in SESSIONS:
            refuses = "refusing_redirects(" in source and any(k.arg == "trace_configs" for k in call.keywords)
            found.append("refusing" if refuses else name)
        elif name.startswith(OTHERS) and name not in HARMLESS:
            found.append(name)
    return found


@pytest.mark.parametrize("source", ["aiohttp.ClientSession()", "requests.get(u)", "urllib.request.urlopen(u)"])
def test_the_search_finds(source):
    assert asking(source) not in ([], ["refusing"])


def test_no_source_asks_in_another_way():
    """A developer's benchmarks apart, which ask what they have started."""
    found = {path.relative_to(ROOT).as_posix(): names for path in SOURCES
             if path.relative_to(ROOT).parts[0] != "benchmarks" and (names := asking(path.read_text()))}
    assert found == {path: ["refusing"] for path in ALLOWED}


def test_an_answer_that_leads_nowhere_is_an_answer():
    async def plain(request):
        return web.Response(text="well", headers={"Location": VICTIM})

    async def read(url):
        async with server_session() as session, session.get(url) as answer:
            return answer.status, await answer.text()

    server = Leading()
    server.handle = plain
    assert beside(server, read) == (200, "well") and issubclass(Redirected, ValueError)
    assert not issubclass(Redirected, aiohttp.ClientError)  # which is retried
