"""ReMemR1: what is kept, what is recalled and when it is shown, how replies are read, and what turns earn."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent import rollout
from mem_agent.agents.prompts import TEXTS
from mem_agent.agents.records import Outcome
from mem_agent.agents.rememr1 import read_reply
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks.metrics import rollout_metrics
from mem_agent.hooks.sample import Sample
from mem_agent.rollout_client import close_clients
from mem_agent.tests.helpers.fake_router import FakeRouter, running
from mem_agent.tests.helpers.scripted import END, VOCABULARY, read

NONE = "Nothing was recalled."


def reply(update, recall=""):
    return f"<thinking>so</thinking>\n<update>{update}</update>" + (f"\n<recall>{recall}</recall>" if recall else "")


def run(replies, args="", chunks=4, **settings):
    return read(replies, chunks, args, agent="rememr1", **{"mem_max_memory": 200, "question": "who?"} | settings)


def shown(run, name="recalled"):
    return [prompt.split(f"<{name}>\n")[-1].split(f"\n</{name}>")[0] for prompt in run.prompts]


def test_a_recalled_memory_is_shown_in_the_next_turn_only():
    one = run([reply("Anna has it"), reply("Ben sleeps", "Anna"), reply("Ben eats", "sleeps"), reply("x"), "y"])
    assert one.memories == ["Anna has it", "Ben sleeps", "Ben eats", "x"] and one.kinds == "mmmmf"
    assert shown(one, "memory") == ["Nothing yet.", *one.memories]
    assert shown(one) == [NONE, NONE, "Anna has it", "Ben sleeps", NONE]
    assert [one.count(name) for name in ("updates", "recalls", "recall_hits", "format_failures")] == [4, 2, 2, 0]
    final = run([reply("Anna has it"), reply("b", "Anna"), "x"], chunks=2)
    assert shown(final)[2] == "Anna has it" and shown(final, "memory")[2] == "b"
    kept = run([reply("red key"), "no tags", TEXTS["revisit"], reply("d"), "x"])  # no update, and the prompt's example
    assert kept.memories == ["red key", "red key", "red key", "d"]
    assert [kept.count(name) for name in ("empty_updates", "updates", "format_failures")] == [2, 2, 2]


RECALLS = {
    "before its memory joins": ([reply("red key"), reply("red key red key", "red key")], "", "red key"),
    "not the memory that is shown": ([reply("red key"), "<recall>red key</recall>"], "", NONE),
    "released evaluation": ([reply("x"), reply("red key", "red key")], "recall_order=add_first", "red key"),
    "by rule the question": ([reply("who has it"), reply("b", "nobody")], "recall_query=question", NONE),  # stop words
    "by nobody": ([reply("red"), reply("b", "red")], "recall_query=none", NONE),
    "by bm25": ([reply("red"), reply("b", "red")], "recall=bm25", "red"),
    "always something": ([reply("red"), reply("b", "blue")], "recall=tfidf_tokens", "red"),
}


@pytest.mark.parametrize("replies,args,found", RECALLS.values(), ids=RECALLS)
def test_what_a_query_finds(replies, args, found):
    assert shown(run([*replies, "x"], args, chunks=2))[2] == found


TAGS = [f"<{c}{name}>" for c in ("", "/") for name in ("thinking", "update", "recall")]
REPLY = st.lists(st.sampled_from([*TAGS, "Anna", "é", "中", "😀", " ", "..."]), max_size=9).map("".join)


@settings(max_examples=40)
@given(st.lists(REPLY, min_size=5, max_size=5), st.sampled_from(["recall=tfidf", "recall=bm25", "carry=reply"]))
def test_no_reply_ends_a_trajectory(replies, args):
    one = run(replies, args)
    assert one.kinds == "mmmmf" and one.trajectory.outcome is Outcome.COMPLETED
    assert one.count("recall_hits") <= one.count("recalls")
    assert not any(VOCABULARY.control_ids & set(memory) for memory in one.trajectory.memories)


# --- how replies are read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text,update,recall,good", [
    ("<update>a</update>", "a", None, True),
    ("<recall>q r</recall> <thinking>t</thinking><update>\n a\nb </update> end", "a\nb", "q r", True),
    ("<update>a</update><recall>q", "a", None, False),
    ("<thinking>t <update>a</update>", None, None, False),
    ("<update>a<recall>q</recall></update>", None, None, False),
    ("<update>a</update><recall><recall>q</recall></recall>", "a", None, False),
    ("<thinking>I write <update>x</update> now</thinking><update>a</update>", "a", None, True),
    ("<update>a</update><update>b</update><recall>q</recall>", None, "q", False),
    ("<update>a</update><recall>q</recall><recall>r</recall>", "a", None, False),
    ("<update>...</update>", None, None, False),
])
def test_readings(text, update, recall, good):
    assert read_reply(text) == (update, recall, good)


# reply | memory | query, as released
RELEASED = [
    ("<thinking>t</thinking><update>a</update>", "<thinking>t</thinking><update>a</update>", False),
    ("<update>a</update> <recall>q</recall>", "<update>a</update>", True),
    ("<recall>q</recall> b <recall>r</recall>", "b", True),
    ("<update>a</update><recall>q1\nq2</recall>", "<update>a</update>", False),
    ("<update>a</update><recall>q", "<update>a</update><recall>q", False),
    ("a <recall></recall> b", "a  b", False),
    ("<recall> </recall>", "", True),
]


@pytest.mark.parametrize("text,memory,asks", RELEASED)
def test_the_release_carries_all_but_recalls(text, memory, asks):
    one = run([text, "x"], "carry=reply recall=tfidf_tokens", 1)
    assert one.memories == [memory] and one.count("recalls") == asks
    assert shown(one, "memory")[1] == memory  # one that was written empty is shown as nothing


# --- what turns earn ----------------------------------------------------------------------------------------------


def generate(checkpoint, replies, metadata=(), args=""):
    """One Sample through ``rollout.generate``, chunks of 4 letters."""
    carried = {"AGENT": "rememr1", "MEM_CHUNK_TOKENS": 4, "MEM_MAX_MEMORY": 200, "AGENT_ARGS": args}

    async def main():
        async with running(FakeRouter([VOCABULARY.encode_text(text) + END for text in replies])) as router:
            host = SimpleNamespace(hf_checkpoint=checkpoint, vllm_router_ip="127.0.0.1",
                                   vllm_router_port=router.port, mem_agent=carried)
            data = {"context": "QWZRXYUJ", "ground_truth": ["red key"]} | dict(metadata)
            sample = Sample(prompt="who?", index=0, group_index=0, metadata=data)
            try:
                return await rollout.generate(host, sample, {"temperature": 1.0, "top_p": 1.0})
            finally:
                await close_clients()

    return asyncio.run(main())


def states(sample):
    return [turn["state_rewards"] for turn in sample.train_metadata["turns"]]


def test_every_turn_has_its_state_rewards(checkpoint):
    sample = generate(checkpoint, [reply("it is red"), reply("it is gone", "red"), "so \\boxed{red key}"])
    assert states(sample) == [
        {"format": 1.0, "gain": 1 / 2, "recall": 0.0},  # red of red, key
        # The memory loses red; the query finds it, but the prompt still showed it.
        {"format": 1.0, "gain": -1 / 2, "recall": 0.0},
        {"format": 1.0},
    ]
    sample.reward = 1.0
    metrics = rollout_metrics([sample])
    assert (metrics["updates"], metrics["recall_hits"], metrics["state_reward/gain"]) == (2, 1, 0.0)


def test_the_loop_to_training_rows(checkpoint):
    """Two siblings by hand: outcome 1 and 0, alpha 0.8."""
    good = generate(checkpoint, [reply("red key"), reply("red key"), "\\boxed{red key}"])
    poor = generate(checkpoint, ["nothing", reply("red"), "\\boxed{x}"])
    good.reward, poor.reward, poor.index = 1.0, 0.0, 1
    data = custom_convert(SimpleNamespace(mem_agent={"AGENT": "rememr1"}), [good, poor])
    # state rewards, good: 1 + 1, 1 + 0, 1; poor: 0 + 0, 1 + 1/2, 1; halves of their differences are 1, -1/4, 0
    assert data["rewards"] == pytest.approx([
        0.8 * 0.5 + 0.2 * 1, 0.8 * 0.5 - 0.2 / 4, 0.8 * 0.5, -0.8 * 0.5 - 0.2 * 1, -0.8 * 0.5 + 0.2 / 4, -0.8 * 0.5,
    ])


def test_the_released_state_rewards(checkpoint):
    """The prompt of the second turn shows the memory, so it has one of the two words of the gold."""
    replies = [reply("it is zed"), "<update>it is\na zed KEY</update>", "\\boxed{zed}, \\boxed{KEY}"]
    sample = generate(checkpoint, replies, {"ground_truth": ["zed KEY"]},
                      "state_reward=published state_weight=2")
    assert states(sample) == [
        {"format": 1.0, "gain": 1 / 2, "recall": 0.0}, {"format": 0.0, "gain": 0.0, "recall": 0.0}, {"format": 1.0},
    ]
