"""Trajectories as a host has them: through the ``generate`` hook, against a router that a test scripts."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.hooks.sample import Sample
from mem_agent.rollout_client import close_clients
from mem_agent.tests.helpers.fake_router import running

SETTINGS = {"MEM_CHUNK_TOKENS": 4, "MEM_MAX_MEMORY": 8, "MEM_MAX_FINAL": 16}


@pytest.fixture
def run(model_folder):
    def generated(router, *samples, settings=(), evaluation=False, dialect="vllm", **host_args):
        """The samples, read all at once."""
        args = SimpleNamespace(hf_checkpoint=str(model_folder), mem_agent=SETTINGS | dict(settings))
        vars(args).update(host_args)

        async def main():
            async with running(router):
                vars(args).update({f"{dialect}_router_ip": "127.0.0.1", f"{dialect}_router_port": router.port})
                sampling = {"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 999}
                done = await asyncio.gather(*(rollout.generate(args, s, sampling, evaluation) for s in samples))
                await close_clients()
            return done

        done = asyncio.run(main())
        return done[0] if len(done) == 1 else done

    return generated


def sample(context="QWZRXYUJ", **fields):
    """Of two chunks."""
    metadata = {"context": context, "ground_truth": ["red"]}
    return Sample(**{"prompt": "who?", "index": 3, "group_index": 1, "metadata": metadata} | fields)


def rewarded(done, **settings):
    return asyncio.run(rollout.reward_func(SimpleNamespace(mem_agent=SETTINGS | settings), done))
