"""Reading step by step against a router that plays a script: every agent, failures, limits, cancellation."""

import asyncio

import pytest

from mem_agent.agents.records import TurnFailed
from mem_agent.asking.steps import Growing, TurnDone
from mem_agent.rollout_client import close_clients
from mem_agent.tests.helpers.asking import DOCUMENT, VOCABULARY, reader_of, router_of
from mem_agent.tests.helpers.fake_router import running

ASKED = [{"role": "user", "content": "Who, then?"}]


def read(folder, replies, messages=ASKED, document=DOCUMENT, config=None, streams=False, **options):
    """The steps, how it ended, and what the router was asked; ``replies`` are texts or the router's faults."""
    router, steps = router_of(replies, streams), []

    async def main():
        async with running(router):
            reader = reader_of(folder, router, **config or {})
            try:
                return await reader.read(messages, document, steps.append, **options)
            except TurnFailed as error:
                return error
            finally:
                await close_clients()

    return steps, asyncio.run(main()), router.requests


def test_requests_are_those_of_evaluation_where_nothing_else_is_asked(model_folder):
    def params(**options):
        return [body["sampling_params"] for body in read(model_folder, [], **options)[2]]

    first = params(seed=7)
    assert {(one["temperature"], one["top_p"]) for one in first} == {(0.7, 0.95)} and first == params(seed=7)
    assert len({one["seed"] for one in first}) == 4 and [one["max_tokens"] for one in first] == [32, 32, 32, 16]
    other = params(sampling={"temperature": 0.0}, answer_tokens=3)
    assert [(one["temperature"], one["max_tokens"]) for one in other] == [(0.0, 32)] * 3 + [(0.0, 3)]


def test_turns_side_by_side_and_recalled_memories_are_told(model_folder):
    config = {"agent": "parallel", "agent_args": "width=2"}
    replies = ["red", DOCUMENT, f"red, {DOCUMENT}", "nothing", f"\\boxed{{{DOCUMENT}}}"]
    steps, answered, _ = read(model_folder, replies, config=config)
    turns = [step for step in steps if isinstance(step, TurnDone)]
    assert [(t.round, t.sections) for t in turns] == [(0, (0,)), (0, (1,)), (1, ()), (2, (2,)), (3, ())]
    assert [t.memory for t in turns] == ["", "", *[f"red, {DOCUMENT}"] * 3] and answered.sources == (1,)
    replies = ["<update>red key</update>", "<update>blue</update><recall>red</recall>", "<update>blue</update>", "x"]
    steps, _, _ = read(model_folder, replies, config={"agent": "rememr1", "mem_max_memory": 64})
    assert [step.recalled for step in steps if isinstance(step, TurnDone)] == ["", "", "red key", ""]


def test_a_memory_is_told_while_it_is_written_and_a_section_without_the_answers_words_is_no_source(model_folder):
    steps, answered, _ = read(model_folder, ["red", "red key", "red key", "\\boxed{key}"], streams=True, growing=True)
    grown = [(step.section, step.memory) for step in steps if isinstance(step, Growing)]
    assert (0, "red") in grown and (1, "red") in grown and (answered.answer, answered.sources) == ("key", ())
    assert not any(isinstance(step, Growing) for step in read(model_folder, ["red"], streams=True)[0])


def test_an_agent_without_documents_is_shown_it_before_the_question(model_folder):
    messages = [{"role": "system", "content": "Be brief."}, *ASKED]
    _, _, (asked,) = read(model_folder, [], messages, config={"agent": "chat"})
    prompt = VOCABULARY.tokenizer.decode(asked["token_ids"])
    assert f"{DOCUMENT}\n\nWho, then?" in prompt and "Be brief." in prompt


@pytest.mark.parametrize("options,kind,asked", [
    ({"messages": [{"role": "user", "content": " "}]}, "no_question", 0),
    ({"messages": [{"role": "user", "content": "who? " * 50}], "config": {"mem_max_question": 9}}, "long_question", 0),
    ({"document_tokens": 5}, "long_prompt", 0),
    ({"replies": ["red", 400]}, "rejected", 2),
    ({"replies": ["red", "abort"]}, "server_error", 2),
    ({"replies": ["x", "x", "x", [5, -1]], "streams": True}, "connection", 4),  # sampled again, it would be another
])  # fmt: skip
def test_what_cannot_be_answered_is_a_failure_of_its_kind(model_folder, options, kind, asked):
    _, failed, requests = read(model_folder, **{"replies": [], **options})
    assert failed.kind == kind and str(failed) and len(requests) == asked
