"""Where requests wait for each other, whoever has most left to read is next, and answers come late."""

import pytest

from mem_agent.hooks.record import Record
from mem_agent.tests.helpers.fake_router import FakeRouter
from mem_agent.tests.hooks.test_rollout import checkpoint, encode, run, sample  # noqa: F401 - a fixture

DOCUMENTS = ["QWZR", "QWZRXYUJ", "QWZRXYUJQZWRYXUJ"]  # 1, 2 and 4 chunks


def order(checkpoint, **settings):  # noqa: F811
    """The kinds of turns, in the order in which they were sent."""
    router = FakeRouter(default=encode("x"), delay=0.02)
    samples = (sample(context=text, index=i, group_index=i) for i, text in enumerate(DOCUMENTS))
    done = run(router, checkpoint, *samples, settings={"MEM_CONCURRENCY": 1} | settings, n_samples_per_prompt=1)
    turns = {tuple(t.tokens[: t.prompt_tokens]): t.kind for s in done for t in Record.of(s).turns}
    assert [len(Record.of(s).turns) for s in done] == [2, 3, 5]
    return [turns[tuple(request["token_ids"])] for request in router.requests]


def test_answers_wait_for_those_who_still_read(checkpoint):  # noqa: F811
    kinds = order(checkpoint)
    assert kinds.index("final") >= 5  # in the order of asking it is the fourth request


@pytest.mark.parametrize("settings", [{"FULLY_ASYNC": "1"}, {"OVER_SAMPLING_BATCH_SIZE": "16"}])
def test_where_groups_are_sampled_ahead_the_oldest_request_is_next(checkpoint, settings):  # noqa: F811
    kinds = order(checkpoint, **settings)
    assert kinds.index("final") == 3
