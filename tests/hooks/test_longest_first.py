"""Where requests wait for each other, whoever has most left to read is next, and answers come late."""

import asyncio
from collections import Counter

import pytest

from mem_agent.client import rollout_client
from mem_agent.hooks.record import Record
from mem_agent.tests.helpers.fake_router import FakeRouter
from mem_agent.tests.hooks.test_rollout import checkpoint, encode, run, sample  # noqa: F401 - a fixture

DOCUMENTS = ["QWZR", "QWZRXYUJ", "QWZRXYUJQZWRYXUJ"]  # 1, 2 and 4 chunks
TURNS = {"group-0": 2, "group-1": 3, "group-2": 5}


class AfterAllHaveAsked(FakeRouter):
    """Answers a request once all others that are not done wait for theirs, however long they take to ask."""

    async def handle(self, request):
        [client] = rollout_client._clients[asyncio.get_running_loop()].values()
        sent = Counter(headers["x-session-id"].partition("/")[0] for headers in self.headers)
        others = sum(sent[group] < turns for group, turns in TURNS.items()) - 1
        while client._slots.waiting < others:
            await asyncio.sleep(0.001)
        return await super().handle(request)


def order(checkpoint, **settings):  # noqa: F811
    """The kinds of turns, in the order in which they were sent."""
    router = AfterAllHaveAsked(default=encode("x"))
    samples = (sample(context=text, index=i, group_index=i) for i, text in enumerate(DOCUMENTS))
    done = run(router, checkpoint, *samples, settings={"MEM_CONCURRENCY": 1} | settings, n_samples_per_prompt=1)
    turns = {tuple(t.tokens[: t.prompt_tokens]): t.kind for s in done for t in Record.of(s).turns}
    assert [len(Record.of(s).turns) for s in done] == list(TURNS.values())
    return [turns[tuple(request["token_ids"])] for request in router.requests]


def test_answers_wait_for_those_who_still_read(checkpoint):  # noqa: F811
    kinds = order(checkpoint)
    assert kinds.index("final") >= 5  # in the order of asking it is the fourth request


@pytest.mark.parametrize("settings", [{"FULLY_ASYNC": "1"}, {"OVER_SAMPLING_BATCH_SIZE": "16"}])
def test_where_groups_are_sampled_ahead_the_oldest_request_is_next(checkpoint, settings):  # noqa: F811
    kinds = order(checkpoint, **settings)
    assert kinds.index("final") == 3
