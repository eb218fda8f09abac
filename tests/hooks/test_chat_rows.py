"""Rows that are conversations, through the hooks: what is asked, trained and seen by the task, and rows that fail."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from mem_agent import rollout
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks.reader import messages_before, question_of, reply_form
from mem_agent.hooks.sample import Sample
from mem_agent.rollout_client import close_clients
from mem_agent.tests.helpers.fake_router import FakeRouter, running
from mem_agent.tests.helpers.tiny_tokenizer import encode, make_tokenizer

SETTINGS = {"AGENT": "chat", "MEM_MAX_FINAL": 16}
ROW = [
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "<answer>2</answer>"},
    {"role": "user", "content": [{"type": "text", "text": " 2+2? "}]},
]
PREFIX = {"role": "assistant", "content": "So "}
TASK = """
from mem_agent.tasks import Task

class Sums(Task):
    needs_document = False
    headline = "correct"
    def read_answer(self, reply): return reply.rpartition("<answer>")[2].partition("</answer>")[0]
    def reward(self, reply, row):
        return {"correct": float(self.read_answer(reply) in row.golds),
                "led": 0.1 * (row.metadata.get("reply_prefix") == "So ")}
    def metrics(self, answer, reply, row): return {"correct": float(answer in row.golds)}
"""
RIGHT = "it is <answer>4</answer>"


@pytest.fixture
def task(tmp_path):
    (tmp_path / "own.py").write_text(TASK)
    return f"{tmp_path}/own.py:Sums"


def sample(prompt, **fields):
    return Sample(**{"prompt": prompt, "label": "4", "index": 0, "group_index": 0, "metadata": {"n": 1}} | fields)


def run(checkpoint, *samples, evaluation=False, **settings):
    """The samples, scored, with the router that was asked and the arguments."""
    router = FakeRouter(default=encode(RIGHT))

    async def main():
        async with running(router):
            args = SimpleNamespace(hf_checkpoint=checkpoint, mem_agent=SETTINGS | settings,
                                   vllm_router_ip="127.0.0.1", vllm_router_port=router.port)
            try:
                await asyncio.gather(*(rollout.generate(args, s, {"temperature": 1.0}, evaluation) for s in samples))
                for one in samples:
                    if one.reward is None:
                        one.reward = await rollout.reward_func(args, one)
            finally:
                await close_clients()
            return args

    return router, asyncio.run(main())


CHAT = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    "<answer>2</answer><|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


@pytest.mark.parametrize("evaluation", [False, True])
@pytest.mark.parametrize("prefix", [[], [PREFIX]], ids=["plain", "led"])
def test_a_conversation_is_asked_and_scored(checkpoint, task, prefix, evaluation):
    done = sample([*ROW, *prefix])
    before = [dict(message) for message in done.prompt]
    router, args = run(checkpoint, done, TASK=task, evaluation=evaluation)
    (request,) = router.requests
    assert make_tokenizer().decode(request["token_ids"]) == CHAT + "So " * bool(prefix) and done.response == RIGHT
    assert done.reward == pytest.approx(1.0 + 0.1 * bool(prefix)) and done.prompt == before
    data = custom_convert(args, [done])
    (tokens,), (length,) = data["tokens"], data["response_lengths"]
    assert tokens == [*router.requests[0]["token_ids"], *encode(RIGHT)] and length == len(encode(RIGHT))


@pytest.mark.parametrize("prompt,failure", [
    (ROW[:1], "no_question"), ([ROW[1], ROW[0], ROW[3]], "bad_messages"),
    ([{"role": "user", "content": "why " * 600}], "long_question"),
    ([{"role": "boss", "content": "x"}], "bad_messages"),
])
def test_rows_that_are_no_conversation_or_too_long_fail_alone(checkpoint, prompt, failure):
    bad, good = sample(prompt), sample(ROW, index=1)
    router, _ = run(checkpoint, bad, good)
    assert (bad.status, bad.train_metadata["failure"], bad.reward) == (Sample.Status.FAILED, failure, 0.0)
    assert good.status is Sample.Status.COMPLETED and len(router.requests) == 1


@pytest.mark.parametrize("kind", [lambda messages: np.array(messages, dtype=object), tuple, list])
def test_messages_out_of_parquet_are_those_of_json_lines(kind):
    """pandas gives an array of dicts, the hosts' reader a list, others a tuple."""
    read = Sample(prompt=kind([{"role": "user", "content": "Rank."}, {"role": "assistant", "content": "<think>"}]))
    assert (question_of(read), reply_form(read), messages_before(read)) == ("Rank.", ("<think>", 0), ())
