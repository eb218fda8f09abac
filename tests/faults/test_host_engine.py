"""The engine of a host's drill: it answers alike whoever asks, and each order is the failure that it names."""

import asyncio
import socket
import threading

import pytest
from aiohttp.test_utils import TestServer

from mem_agent.agents.records import FailureKind, TurnFailed
from mem_agent.client.engine_api import Dialect, Endpoint
from mem_agent.client.rollout_client import GenerationClient, RetryPolicy
from mem_agent.tests.faults.host_engine import EVALUATION_TEMPERATURE, HostEngine
from mem_agent.tests.faults.moments import MARK, Hub, Moment, go
from mem_agent.tests.faults.odd_answers import GENERATE, ORDERS
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

SEEDED = {Dialect.SGLANG: "sampling_seed", Dialect.VLLM: "seed"}


@pytest.fixture
def orders(tmp_path, monkeypatch):
    monkeypatch.setenv(MARK, str(tmp_path / "hub"))
    monkeypatch.setenv(ORDERS, str(tmp_path / "orders"))
    (tmp_path / "orders").mkdir()
    return tmp_path / "orders"


@pytest.fixture
def told(orders, tmp_path):
    """What the engine tells; each request is let go at once."""
    hub, seen = Hub(tmp_path / "hub"), []

    def let_go():
        while True:
            line, _ = hub._listener.accept()
            with line.makefile("rb") as file:
                said = file.readline()
            if not said:
                return
            seen.append(said)
            go(line)

    thread = threading.Thread(target=let_go)
    thread.start()
    yield seen
    with socket.socket(socket.AF_UNIX) as last:
        last.connect(str(tmp_path / "hub"))
    thread.join(HANGS_AFTER_S)
    hub.close()


def ask(dialect, seeds, temperature=1.0, timeout=HANGS_AFTER_S, retries=0):
    """Replies of one engine to one prompt, with each of these seeds; the kind of failure where there is none."""
    async def asked():
        async with TestServer(HostEngine().app()) as server:
            client = GenerationClient(Endpoint(dialect, str(server.make_url("")).rstrip("/")),
                                      RetryPolicy(timeout, retries, 0.0), 4)
            try:
                return [(await client.generate([1, 2, 3], 8, {SEEDED[dialect]: seed, "temperature": temperature}, "g"))
                        .token_ids for seed in seeds]
            except TurnFailed as failure:
                return failure.kind
            finally:
                await client.close()

    return asyncio.run(asked())


@pytest.mark.parametrize("dialect", list(Dialect))
def test_replies_are_a_function_of_prompt_and_seed(told, dialect):
    first, other, again = ask(dialect, [1, 2, 1])
    assert first == again != other and len(told) == 3


@pytest.mark.parametrize("order,kind,timeout", [
    ("error", FailureKind.SERVER_ERROR, HANGS_AFTER_S), ("garbage", FailureKind.BAD_RESPONSE, HANGS_AFTER_S),
    ("endless", FailureKind.TIMEOUT, 1.0), ("cut", FailureKind.CONNECTION, HANGS_AFTER_S),
    ("reset", FailureKind.CONNECTION, HANGS_AFTER_S), ("late", FailureKind.TIMEOUT, 1.0),
])
def test_an_order_is_carried_out_once(orders, told, order, kind, timeout):
    (orders / f"{GENERATE}.{order}.0").touch()
    assert ask(Dialect.SGLANG, [1], timeout=timeout) is kind
    assert isinstance(ask(Dialect.SGLANG, [1]), list)


def test_a_request_that_is_sent_again_is_answered_as_it_would_have_been(orders, told):
    whole = ask(Dialect.SGLANG, [1])
    for kind in ("error", "cut", "reset"):
        (orders / f"{GENERATE}.{kind}.0").touch()
    assert ask(Dialect.SGLANG, [1], retries=3) == whole


def test_evaluations_are_told_from_rollouts(told):
    ask(Dialect.VLLM, [1], temperature=EVALUATION_TEMPERATURE)
    ask(Dialect.VLLM, [1])
    assert [Moment.EVALUATION.value.encode() in told[0], Moment.SAMPLING.value.encode() in told[1]] == [True, True]
