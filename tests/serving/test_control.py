"""What engines and router answer to control calls: read within a bound, one line where it is no answer."""

import aiohttp
import pytest
from aiohttp import web

from mem_agent.client.answer_body import most_bytes
from mem_agent.serving.engine import EngineClient
from mem_agent.serving.router import RouterAdmin
from mem_agent.system.processes import FleetError
from mem_agent.tests.helpers.endless import PIECE, Endless, beside


async def of_engine(url):
    async with aiohttp.ClientSession() as session:
        await EngineClient(url, session).weight_info()


async def of_router(url):
    async with aiohttp.ClientSession() as session:
        await RouterAdmin(url, session).workers()


@pytest.mark.parametrize("ask", [of_engine, of_router])
@pytest.mark.parametrize(("kind", "status", "says"), [
    ("plain", 200, "failed: BodyTooLong the answer is longer than"), ("bomb", 200, "failed: BodyTooLong"),
    ("plain", 500, "answered 500: : nothing"), ("bomb", 500, "answered 500: "),
])
def test_an_answer_without_end_is_one_line_before_it_takes_memory(ask, kind, status, says):
    server = Endless(kind, status)
    with pytest.raises(FleetError) as error:
        beside(server, ask)
    assert says in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 500
    assert server.pieces * PIECE < most_bytes(0) + 2**26


def test_an_engine_that_answers_no_json_is_one_line():
    async def words(request):
        return web.Response(text="up and well")

    server = Endless("plain")
    server.handle = words
    with pytest.raises(FleetError, match=r"GET /weight_info failed: JSONDecodeError"):
        beside(server, of_engine)
