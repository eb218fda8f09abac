"""A server that leads elsewhere, or whose address is none, is one line before anything is asked of it."""

import asyncio

import pytest
from aiohttp import web

from mem_agent.client.engine_api import Dialect
from mem_agent.client.server_session import server_session
from mem_agent.config import Config
from mem_agent.evaluation.connect import connect
from mem_agent.evaluation.endpoint import Api, EvalEndpoint, Frame
from mem_agent.evaluation.outage import Outage, Probe, probe
from mem_agent.evaluation.questions import EvalError
from mem_agent.tests.helpers.evaluations import CONFIG, make_model
from mem_agent.tests.helpers.fake_chat import Raw
from mem_agent.tests.helpers.fake_router import FakeRouter, chat_message, running, running_beside

KEY = "sk-secret-0123456789"


class Words:
    """As much of a vocabulary as a probe asks for."""

    def encode_text(self, text):
        return [1]


def endpoint_at(url, key=""):
    return EvalEndpoint(dialect=Dialect.VLLM, base_url=url, vocabulary=Words(), frame=Frame("", ""), key=key)


def leading(location, status=307):
    return FakeRouter(default=Raw(status=status, headers={"Location": location}))


def probed(router, key=""):
    async def main():
        async with running(router), server_session() as session:
            endpoint = endpoint_at(f"http://127.0.0.1:{router.port}", key)
            found = await probe(session, endpoint)
            return found, await Outage().over_before(0.0, endpoint)

    return asyncio.run(main())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("location", [
    "/finish_session?session_id=x", "http://a..b/", f"http://{'a' * 64}.example/", "http://u%3ap:x@127.0.0.1/",
    "http://[::1", "\x9b2J" * 1000, f"http://evil.example/?{'x' * 50}{KEY}",
])
def test_a_probe_goes_nowhere_else(location, status):
    router = leading(location, status)
    found, over = probed(router, KEY)
    assert found.status == status and not found.is_up and not over
    assert found.text.startswith(f"HTTP {status}, a redirect, which is not followed; if you mean")
    assert found.text.isprintable() and len(found.text) <= 200 and KEY[:10] not in found.text
    assert not router.finished and len(router.requests) == 2


@pytest.mark.parametrize("url", ["http://a..b", f"http://{'a' * 64}.example", "http://u%3ap:x@127.0.0.1"])
def test_an_address_that_is_none_is_no_answer(url):
    async def main():
        async with server_session() as session:
            return await probe(session, endpoint_at(url)), await Outage().over_before(0.0, endpoint_at(url))

    found, over = asyncio.run(main())
    assert isinstance(found, Probe) and found.status == 0 and not over


def asked(tmp_path, router, **settings):
    model = make_model(tmp_path / "model")
    with running_beside(router):
        config = Config(**{**vars(CONFIG), "base_url": f"http://127.0.0.1:{router.port}", **settings})
        return asyncio.run(connect("", model, config))


@pytest.mark.parametrize("api", ["auto", "chat", "generate"])
def test_who_gave_the_address_that_leads_to_another_is_told_that_one(tmp_path, api):
    router = leading("https://host/v1/x")
    with pytest.raises(EvalError) as error:
        asked(tmp_path, router, eval_api=api, eval_server_wait=900.0)
    line = str(error.value)
    assert line.startswith(f"http://127.0.0.1:{router.port}/") and line.endswith(
        ": HTTP 307, a redirect, which is not followed; if you mean the server that it leads to, set the address to "
        "that one's: https://host/v1/x"
    )


def test_a_wording_that_leads_elsewhere_is_passed_over(tmp_path):
    """As of a gateway that sends whatever it does not know to a page."""
    elsewhere = Raw(status=302, headers={"Location": "/login"})
    router = FakeRouter(default=lambda body: chat_message("red") if "messages" in body else elsewhere)
    assert asked(tmp_path, router).api is Api.CHAT


def test_a_list_of_models_that_leads_elsewhere_is_none(tmp_path, monkeypatch):
    async def leads(self, request):
        return web.Response(status=307, headers={"Location": "/workers"})

    monkeypatch.setattr(FakeRouter, "list_models", leads)
    endpoint = asked(tmp_path, FakeRouter(default=lambda body: chat_message("red")), eval_api="chat")
    assert (endpoint.api, endpoint.model) == (Api.CHAT, "")


@pytest.mark.parametrize("length", [True, False, 0, -5, 1.5, "4096", None])
def test_a_length_that_no_model_has_is_unknown(tmp_path, length):
    models = ({"id": "served", "max_model_len": length},)
    endpoint = asked(tmp_path, FakeRouter(default=chat_message("x"), models=models), eval_api="chat")
    assert endpoint.max_tokens == 0
