"""Real processes that die or hang inside a rollout: it is sampled again and gives what an unbroken one gives.

The hooks, the client, the router and the fleet are the real ones; stub engines sample by prompt and seed.
"""

import os
import signal
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

from safetensors.torch import load_file

from mem_agent import rollout_client
from mem_agent.rollout_client import Endpoint
from mem_agent.serving import fleet, servers
from mem_agent.tests.helpers.stub_fleet import SYNC, port_of, stubs
from mem_agent.tests.system.test_processes import group_members
from mem_agent.tests.training.test_rollouts import POCKET, pocket_config
from mem_agent.training import rollouts
from mem_agent.training.rollouts import Rollouts

__all__ = ["stubs"]


@contextmanager
def serving(folder, **settings):
    """The rollouts of a run whose engines serve the weights of rollout 0."""
    source = Rollouts(pocket_config(folder, **settings))
    try:
        source.begin(0)
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


def check_repeated(source, at_most=1):
    broken = source.rollout(0, 0)
    assert 1 <= broken.metrics["repeated"] == source.fleet.restarts <= at_most
    source.journal.forget(0)
    assert replace(broken, metrics=broken.metrics | {"repeated": 0}) == source.rollout(0, 0)


def test_the_only_engine_dies(stubs, tmp_path, monkeypatch):
    with serving(tmp_path) as source:
        at_answer(monkeypatch, 16, lambda _: os.killpg(source.fleet.engine_pids[0], signal.SIGKILL))
        check_repeated(source)


def test_the_router_dies_and_the_engine_starts_over(stubs, tmp_path, monkeypatch):
    with serving(tmp_path) as source:
        at_answer(monkeypatch, 16, lambda _: os.killpg(source.fleet._router.pid, signal.SIGKILL))
        check_repeated(source)
        assert stubs.calls() == {port_of(source.fleet.engine_urls[0]): ["update_weight_version", *SYNC, *SYNC]}


def test_one_of_two_engines_hangs(stubs, tmp_path, monkeypatch):
    monkeypatch.setattr(fleet, "REPLACE_GRACE_S", 0.5)
    monkeypatch.setattr(servers, "REQUEST_TIMEOUT_S", 3)
    monkeypatch.setattr(rollouts, "REQUEST_TIMEOUT_S", 3)
    monkeypatch.setattr(rollout_client, "TIMEOUT_S", 3.0)
    # With retries the router's health check could move every request before the first timeout.
    # On a busy machine a request to a healthy engine may take too long too, and one more attempt is made.
    most = 20
    monkeypatch.setattr(fleet, "MOST_RESTARTS", most)
    with serving(tmp_path, num_engines=2) as source:

        def freeze(answer):
            [group] = [pid for pid, url in zip(source.fleet.engine_pids, source.fleet.engine_urls, strict=True)
                       if port_of(url) == str(answer["port"])]
            for pid in set(group_members(group)) - {group}:
                os.kill(pid, signal.SIGSTOP)

        at_answer(monkeypatch, 8, freeze)
        check_repeated(source, most)
