"""What engines and router answer to control calls: read within a bound, one line where it is no answer."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from mem_agent.client.answer_body import most_bytes
from mem_agent.serving import engine
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


async def of_prefixes(url):
    async with aiohttp.ClientSession() as session:
        await EngineClient(url, session).reset_prefix_cache()


@pytest.mark.parametrize("ask", [of_engine, of_router, of_prefixes])
@pytest.mark.parametrize("body", ["[]", '"well"', "null", "[" * 1000 + "]" * 1000, '{"urls": 3}', '{"urls": [3]}'])
def test_an_answer_of_another_shape_is_one_line(ask, body):
    async def other(request):
        return web.Response(text=body, content_type="application/json")

    server = Endless("plain")
    server.handle = other
    if ask is of_engine and body.startswith("{"):
        return  # the version that it does not tell is another than is looked for
    with pytest.raises(FleetError) as error:
        beside(server, ask)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_weights_that_are_loaded_are_loaded_though_the_engine_was_slow_to_say_that_it_is_well(monkeypatch):
    monkeypatch.setattr(engine, "LOOK_EVERY_S", 0.01)
    looked = asyncio.Event()

    async def slow(request):
        if request.path == "/health":
            looked.set()
            await asyncio.sleep(0.2)  # the weights are there meanwhile
            return web.Response(status=503)
        await looked.wait()
        return web.json_response({"results": [None]})

    async def load(url):
        async with aiohttp.ClientSession() as session:
            await EngineClient(url, session).reload_weights(Path("/weights"))

    server = Endless("plain")
    server.handle = slow
    beside(server, load)
