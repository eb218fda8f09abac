"""Parallel reading: which replies reach the memory, when a merge turn is due, and how many rounds it can take."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.agents.records import StopReason
from mem_agent.tests.helpers.scripted import QUESTION, SECTIONS, VOCABULARY, read, spliced

BOX = "\\boxed{red}"
COUNTS = ("rounds", "useful_notes", "merges", "format_fallbacks")
BLIND_MERGE = "one memory: keep, once"


def most_rounds(chunks, parallel):
    """Rounds before the final turn if every reply is useful: two for each group of chunks, one for a single chunk."""
    groups, rest = divmod(chunks, parallel)
    return groups * (1 if parallel == 1 else 2) + min(rest, 2)


def is_merge(prompt):
    return "<notes>" in prompt


# replies in order of the turns, three sections side by side | memory after each round but the last | the counts above
TABLE = {
    "several are merged": (["a", "b", "c", "abc", BOX], ["", "abc"], (3, 3, 1, 0)),
    "two of three": (["a", "nothing", "c", "ac", BOX], ["", "ac"], (3, 2, 1, 0)),
    "one needs no merge": (["nothing", "b", "nothing", BOX], ["b"], (2, 1, 0, 0)),
    "none keeps the memory": (["nothing", "Nothing.", "**NOTHING**", BOX], [""], (2, 0, 0, 0)),
    "the empty marker is nothing": (["Nothing yet.", "nothing yet", "b", BOX], ["b"], (2, 1, 0, 0)),
    "empty replies are nothing": (["", " \n", "b", BOX], ["b"], (2, 1, 0, 2)),
    "a word more is a reply": (["nothing here", "nothing", "", BOX], ["nothing here"], (2, 1, 0, 1)),
    "an empty merge keeps the last": (["a", "b", "nothing", "", BOX], ["", "b"], (3, 2, 1, 1)),
    "a merge that says nothing is a memory": (["a", "b", "", "nothing", BOX], ["", "nothing"], (3, 2, 1, 1)),
}


@pytest.mark.parametrize("replies,memories,counts", TABLE.values(), ids=TABLE)
def test_what_replies_do(replies, memories, counts):
    run = read(replies, agent="parallel", mem_parallel=3)
    assert run.memories == memories and tuple(run.count(name) for name in COUNTS) == counts
    assert run.trajectory.answer == BOX and run.read == ["QW", "ZR", "XY"]
    assert run.kinds == "m" * (3 + counts[2]) + "f"


def test_a_merge_turn_sees_question_memory_and_useful_replies_in_order():
    run = read(["a", "nothing", "old", "mmm", "fff", "nothing", "mmm", BOX, BOX], 6, agent="parallel", mem_parallel=3)
    merge = run.prompts[3]
    assert is_merge(merge) and QUESTION in merge and "a\n\nold" in merge and "Nothing yet." in merge
    assert [("mmm" in p) for p in run.prompts[4:7]] == [True] * 3, "one round is read beside one memory"
    assert run.memories == ["", "mmm", "fff"], "a reply that repeats the memory is left out"
    assert "fff" in run.prompts[7] and run.count("merges") == 1


def test_cut_replies_are_counted():
    run = read([("a", StopReason.LENGTH), "b", ("c", StopReason.LENGTH), ("m", StopReason.LENGTH), BOX],
               agent="parallel", mem_parallel=3)
    assert run.count("truncated_memories") == 3


def test_ids_are_spliced_as_sampled():
    odd, end = [VOCABULARY.encode_text(c)[0] for c in "The"], VOCABULARY.encode_markup("<|im_end|>")
    run = read([odd + end, "b", odd[::-1] + end, BOX], 2, agent="parallel", mem_parallel=2)
    merge, final = run.trajectory.turns[2].prompt_ids, run.trajectory.turns[3].prompt_ids
    assert spliced(merge, odd) and spliced(final, odd[::-1])
    assert run.trajectory.memories[-1] == tuple(odd[::-1])


def test_tags_in_a_reply_stay_text():
    run = read(["</notes><|im_end|>", "b", "m", BOX], 2, agent="parallel", mem_parallel=2)
    assert run.trajectory.turns[2].prompt_ids.count(VOCABULARY.encode_markup("<|im_end|>")[0]) == 1


def test_thinking_is_left_out_of_replies_and_merges():
    think = VOCABULARY.encode_markup("<think>") + VOCABULARY.encode_text("nothing ") * 5000
    closed = [*think, *VOCABULARY.encode_markup("</think>"), *VOCABULARY.encode_text("red")]
    run = read([closed, think, "b", closed, BOX], agent="parallel", mem_parallel=3)
    assert run.count("useful_notes") == 2 and run.memories == ["", "red"]


def test_one_at_a_time_is_plain_reading():
    replies = ["a", "b", "c", BOX]
    run, plain = read(replies, agent="parallel", mem_parallel=1), read(replies)
    assert run.memories == plain.memories and run.kinds == plain.kinds and run.count("merges") == 0


@given(st.lists(st.sampled_from(["nothing", "a", "b", "", "longer text"]), min_size=24, max_size=24),
       st.integers(1, 10), st.integers(1, 6))
@settings(max_examples=60)
def test_every_section_is_read_once_and_in_order(replies, chunks, width):
    run = read(lambda prompt, n: replies[n] if "<section>" in prompt or is_merge(prompt) else BOX, chunks,
               agent="parallel", mem_parallel=width)
    assert run.read == [SECTIONS[i : i + 2] for i in range(0, 2 * chunks, 2)]
    assert run.count("rounds") - 1 <= most_rounds(chunks, width)
    assert len(run.trajectory.memories) == run.count("rounds") - 1
    assert spliced(run.trajectory.turns[-1].prompt_ids, run.trajectory.memories[-1])


@pytest.mark.parametrize("width", range(1, 8))
def test_the_bound_is_met_when_every_reply_is_useful(width):
    for chunks in range(1, 11):
        run = read(lambda prompt, n: f"m {n}" if "<section>" in prompt or is_merge(prompt) else BOX, chunks,
                   agent="parallel", mem_parallel=width)
        assert run.count("rounds") - 1 == most_rounds(chunks, width)


def test_the_bound_is_below_plain_reading():
    for width in range(1, 17):
        for chunks in range(1, 600):
            assert most_rounds(chunks, width) <= chunks
            assert most_rounds(chunks, width) < chunks or width < 3 or chunks < 3
            assert width == 1 or most_rounds(chunks, width) <= 2 * -(-chunks // width)


def test_hidden_questions_reach_the_final_turn_alone():
    run = read(["a", "b", "c", "m", BOX], agent="parallel", mem_parallel=3, mem_query_blind=True)
    assert [QUESTION in prompt for prompt in run.prompts] == [False] * 4 + [True]
    assert BLIND_MERGE in run.prompts[3]
