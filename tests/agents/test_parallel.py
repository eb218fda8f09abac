"""Parallel reading: which replies reach the memory, when a merge turn is due, and how many rounds it can take."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.tests.helpers.scripted import QUESTION, SECTIONS, read

BOX = "\\boxed{red}"
COUNTS = ("rounds", "useful_notes", "merges", "format_fallbacks")

# replies in order of the turns, three sections side by side | memory after each round but the last | the counts above
TABLE = {
    "several are merged": (["a", "b", "c", "abc", BOX], ["", "abc"], (3, 3, 1, 0)),
    "two of three": (["a", "nothing", "c", "ac", BOX], ["", "ac"], (3, 2, 1, 0)),
    "one needs no merge": (["nothing", "b", "nothing", BOX], ["b"], (2, 1, 0, 0)),
    "none keeps the memory": (["nothing", "Nothing.", "**NOTHING**", BOX], [""], (2, 0, 0, 0)),
    "empty replies are nothing": (["", " \n", "b", BOX], ["b"], (2, 1, 0, 2)),
    "a word more is a reply": (["nothing here", "nothing", "", BOX], ["nothing here"], (2, 1, 0, 1)),
    "an empty merge keeps the last": (["a", "b", "nothing", "", BOX], ["", "b"], (3, 2, 1, 1)),
}


@pytest.mark.parametrize("replies,memories,counts", TABLE.values(), ids=TABLE)
def test_what_replies_do(replies, memories, counts):
    run = read(replies, agent="parallel", args="width=3")
    assert run.memories == memories and tuple(run.count(name) for name in COUNTS) == counts
    assert run.trajectory.answer == BOX and run.read == ["QW", "ZR", "XY"]
    assert run.kinds == "m" * (3 + counts[2]) + "f"


def test_a_merge_turn_sees_question_memory_and_useful_replies_in_order():
    run = read(["a", "nothing", "old", "mmm", "fff", "nothing", "mmm", BOX, BOX], 6, "width=3", agent="parallel")
    merge = run.prompts[3]
    assert "<notes>" in merge and QUESTION in merge and "a\n\nold" in merge and "Nothing yet." in merge
    assert [("mmm" in p) for p in run.prompts[4:7]] == [True] * 3, "one round is read beside one memory"
    assert run.memories == ["", "mmm", "fff"], "a reply that repeats the memory is left out"


def most_rounds(chunks, width):
    """Rounds before the final turn if every reply is useful: two for each group of chunks, one for a single chunk."""
    groups, rest = divmod(chunks, width)
    return groups * (1 if width == 1 else 2) + min(rest, 2)


@given(st.lists(st.sampled_from(["nothing", "a", "b", "", "longer text"]), min_size=24, max_size=24),
       st.integers(1, 10), st.integers(1, 6))
@settings(max_examples=40)
def test_every_section_is_read_once_and_in_order(replies, chunks, width):
    run = read(lambda prompt, n: replies[n] if "Answer:" not in prompt else BOX, chunks, f"width={width}",
               agent="parallel")
    assert run.read == [SECTIONS[i : i + 2] for i in range(0, 2 * chunks, 2)]
    assert len(run.memories) == run.count("rounds") - 1 <= most_rounds(chunks, width)
    assert width == 1 or most_rounds(chunks, width) <= chunks
