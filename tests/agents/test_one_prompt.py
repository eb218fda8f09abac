"""One prompt: AGENT=single through the hooks, and agents that read where a row has nothing to read."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.client.rollout_client import close_clients
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks.record import Record
from mem_agent.hooks.sample import Sample
from mem_agent.tests.helpers.evaluations import encode
from mem_agent.tests.helpers.fake_router import FakeRouter, running
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

SETTINGS = {"MEM_CHUNK_TOKENS": 4, "MEM_MAX_MEMORY": 8, "MEM_MAX_FINAL": 16, "MEM_MAX_RETRIES": 0}
TASK = """
from mem_agent.tasks.qa import QuestionAnswering

class ClosedBook(QuestionAnswering):
    needs_document = False
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(path)
    return str(path)


@pytest.fixture
def closed_book(tmp_path):
    (tmp_path / "own.py").write_text(TASK)
    return f"{tmp_path}/own.py:ClosedBook"


def run(router, checkpoint, *rows, **settings):
    """The rows' trajectories, scored, and the arguments that they were made with."""
    async def main():
        async with running(router):
            args = SimpleNamespace(hf_checkpoint=checkpoint, mem_agent=SETTINGS | settings,
                                   vllm_router_ip="127.0.0.1", vllm_router_port=router.port)
            try:
                done = await asyncio.gather(*(rollout.generate(args, row, {"temperature": 1.0}) for row in rows))
                for sample in done:
                    if sample.reward is None:
                        sample.reward = await rollout.reward_func(args, sample)
                return args, done
            finally:
                await close_clients()

    return asyncio.run(main())


def row(**metadata):
    return Sample(prompt="who?", index=0, group_index=0, metadata={"ground_truth": ["red"]} | metadata)


def right():
    return FakeRouter(default=encode("\\boxed{red}"))


def shown(router):
    return [make_tokenizer().decode(request["token_ids"]) for request in router.requests]


@pytest.mark.parametrize("metadata", [{}, {"context": "QWZRXYUJ"}, {"context_id": "nowhere"}], ids=str)
def test_single_asks_once_and_needs_no_document(checkpoint, metadata):
    router = right()
    _, (done,) = run(router, checkpoint, row(**metadata), AGENT="single")
    assert done.status is Sample.Status.COMPLETED and done.reward == 1.0
    assert [turn.kind for turn in Record.of(done).turns] == ["final"]
    (prompt,) = shown(router)
    assert "who?" in prompt and "Answer:" in prompt and "QW" not in prompt and "document" not in prompt
    assert router.requests[0]["sampling_params"]["max_tokens"] == 16
    counts = done.train_metadata["counts"]
    assert (counts["turns"], counts["rounds"], counts["chunks"], counts["document_tokens"]) == (1, 1, 0, 0)
    assert done.train_metadata["memories"] == []


def test_a_rollout_of_single_is_logged_and_trained(checkpoint):
    args, samples = run(right(), checkpoint, row(), Sample(prompt="who?", metadata={"ground_truth": ["blue"]}, index=1,
                                                           group_index=0), AGENT="single")
    extra = {}
    rollout.log_rollout(0, args, samples, extra, 1.0)
    assert (extra["rollout/memory/reward"], extra["rollout/memory/turns"], extra["rollout/memory/rows"]) == (0.5, 1, 2)
    assert "rollout/memory/memory_tokens" not in extra  # a number that nobody can tell
    assert custom_convert(args, samples)["rewards"] == [0.5, -0.5]


READING = ["memagent", "rememr1", "gated", "parallel"]


@pytest.mark.parametrize("agent", READING)
def test_an_agent_that_reads_answers_at_once_where_the_task_has_no_document(checkpoint, closed_book, agent):
    router = right()
    args, (done,) = run(router, checkpoint, row(task=closed_book), AGENT=agent, TASK=f"qa,{closed_book}")
    assert done.status is Sample.Status.COMPLETED and done.train_metadata["accuracy"] == 1.0
    assert [turn.kind for turn in Record.of(done).turns] == ["final"]
    assert done.train_metadata["task"] == closed_book and done.train_metadata["counts"]["chunks"] == 0
    extra = {}
    rollout.log_rollout(0, args, [done], extra, 1.0)
    assert extra["rollout/memory/chunks"] == 0
    custom_convert(args, [done])


@pytest.mark.parametrize("agent", READING)
def test_an_agent_that_reads_fails_where_the_task_wants_a_document(checkpoint, agent):
    router = right()
    _, (done,) = run(router, checkpoint, row(), AGENT=agent)
    assert done.status is Sample.Status.FAILED and done.train_metadata["failure"] == "no_context"
    assert router.requests == []


def test_a_document_that_is_there_is_read_whatever_the_task_needs(checkpoint, closed_book):
    _, (done,) = run(right(), checkpoint, row(task=closed_book, context="QWZRXYUJ"), TASK=f"qa,{closed_book}")
    assert [turn.kind for turn in Record.of(done).turns] == ["memory", "memory", "final"]


def test_rows_of_all_kinds_share_a_rollout(checkpoint, closed_book):
    rows = [row(context="QWZRXYUJ"), row(task="ClosedBook"), row()]
    for number, one in enumerate(rows):
        one.index = number
    args, done = run(right(), checkpoint, *rows, TASK=f"qa,{closed_book}")
    assert [len(Record.of(sample).turns) for sample in done] == [3, 1, 0]
    assert [sample.reward for sample in done] == [1.0, 1.0, 0.0]
    assert len(custom_convert(args, done)["tokens"]) == 3 + 1 + 1
