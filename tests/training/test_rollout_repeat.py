"""Real processes that die inside a rollout: it is sampled again and gives what an unbroken one gives.

The hooks, the client, the router and the fleet are the real ones; stub engines sample by prompt and seed.
"""

import os
import signal
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

from safetensors.torch import load_file

from mem_agent.rollout_client import Endpoint
from mem_agent.tests.helpers.stub_fleet import SYNC, port_of, stubs
from mem_agent.tests.training.test_rollouts import POCKET, pocket_config
from mem_agent.training.rollouts import Rollouts

__all__ = ["stubs"]


@contextmanager
def serving(folder, **settings):
    """The rollouts of a run whose engines serve the weights of rollout 0."""
    source = Rollouts(pocket_config(folder, **settings))
    try:
        source.begin()
        source.sync(load_file(POCKET / "start" / "model.safetensors"), 0)
        yield source
    finally:
        source.close()


def at_answer(monkeypatch, number, act):
    """Call ``act`` with this answer of an engine; the rollout below has 32 of them."""
    numbers, parsed = count(1), Endpoint.parse_response

    def parse_and_act(self, answer):
        if next(numbers) == number:
            act(answer)
        return parsed(self, answer)

    monkeypatch.setattr(Endpoint, "parse_response", parse_and_act)


def check_repeated(source):
    before = source.fleet.restarts
    broken = source.rollout(0, 0)
    assert broken.metrics["repeated"] == source.fleet.restarts - before == 1
    source.journal.forget(0)
    assert replace(broken, metrics=broken.metrics | {"repeated": 0}) == source.rollout(0, 0)


def test_the_router_dies_and_then_the_only_engine(stubs, tmp_path, monkeypatch):
    with serving(tmp_path) as source:
        at_answer(monkeypatch, 16, lambda _: os.killpg(source.fleet._router.pid, signal.SIGKILL))
        check_repeated(source)
        [engine] = source.fleet.engines
        assert stubs.calls() == {port_of(engine.client.url): ["update_weight_version", *SYNC, *SYNC]}
        source.journal.forget(0)
        at_answer(monkeypatch, 16, lambda _: os.killpg(engine.process.pid, signal.SIGKILL))
        check_repeated(source)
