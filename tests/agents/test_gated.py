"""Gated reading: what each reply does to the memory and to the reading, and what no reply can do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.agents.records import StopReason
from mem_agent.tests.helpers.scripted import VOCABULARY, read

BOX = "\\boxed{red}"
COUNTS = ("chunks_read", "skipped", "exited", "format_fallbacks", "empty_updates")

# replies to the memory turns of three sections | turns | memory after each | the counts above
TABLE = {
    "skips keep": (["update\na", "skip", "`SKIP`."], "mmmf", ["a", "a", "a"], (3, 2, 0, 0, 0)),
    "finish with a memory": (["skip", "finish\na"], "mmf", ["", "a"], (2, 1, 1, 0, 0)),
    "finish as it is": (["\n **Update:**\na", "Finish!"], "mmf", ["a", "a"], (2, 0, 1, 0, 0)),
    "finish without a memory": (["finish", "finish", "skip"], "mmmf", ["", "", ""], (3, 1, 0, 2, 0)),
    "an empty update overwrites": (["update\na", "update\n \n", "skip"], "mmmf", ["a", "", ""], (3, 1, 0, 0, 1)),
    "plain reading": (["a", "b", "c"], "mmmf", ["a", "b", "c"], (3, 0, 0, 3, 0)),
    "an empty reply": (["update\na", "", "skip"], "mmmf", ["a", "", ""], (3, 1, 0, 1, 1)),
    "text behind skip": (["skip\na", "skip", "skip"], "mmmf", ["skip\na"] * 3, (3, 2, 0, 1, 0)),
    "several lines": (["update\n\na\n\nskip", "skip", "skip"], "mmmf", ["a\n\nskip"] * 3, (3, 2, 0, 0, 0)),
    "cut in its decision": ([("up", StopReason.LENGTH), "skip", "skip"], "mmmf", ["up"] * 3, (3, 2, 0, 1, 0)),
}


@pytest.mark.parametrize("replies,kinds,memories,counts", TABLE.values(), ids=TABLE)
def test_what_a_reply_does(replies, kinds, memories, counts):
    run = read([*replies, BOX], agent="gated")
    assert (run.kinds, run.memories) == (kinds, memories)
    assert tuple(run.count(name) for name in COUNTS) == counts
    assert run.trajectory.answer == BOX and run.count("rounds") == run.count("turns") == len(kinds)


def test_thinking_is_no_decision():
    think, close = VOCABULARY.encode_markup("<think>finish\na"), VOCABULARY.encode_markup("</think>\n\nupdate\nb")
    run = read([think + close, think, "skip", BOX], agent="gated")
    assert run.memories == ["b", "", ""] and run.count("format_fallbacks") == 1 and run.count("exited") == 0


replies = st.sampled_from(["skip", "update\na", "finish", "finish\nb", "", "plain", "skip\nx", "update", "Finish:\n"])


@given(st.lists(replies, min_size=10, max_size=10), st.integers(1, 10))
@settings(max_examples=40)
def test_sections_are_read_in_order_and_once_up_to_the_exit(replies, chunks):
    run = read(lambda prompt, number: replies[number] if "<section>" in prompt else BOX, chunks, agent="gated")
    plain = read(lambda prompt, number: "m", chunks)
    assert run.read == plain.read[: int(run.count("chunks_read"))]
    assert len(run.trajectory.turns) == len(run.read) + 1 == len(run.memories) + 1
    assert bool(run.count("exited")) >= (run.count("chunks_read") < chunks)


def test_hidden_questions_leave_no_exit():
    run = read(["finish\na", "update\nb", "skip", BOX], agent="gated", args="query_blind=1")
    assert run.kinds == "mmmf" and run.memories == ["finish\na", "b", "b"]
    assert not any("finish" in prompt for prompt in (run.prompts[0], run.prompts[2]))
