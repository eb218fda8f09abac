"""Gated reading: what each reply does to the memory and to the reading, and what no reply can do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.agents.records import StopReason
from mem_agent.tests.helpers.scripted import QUESTION, VOCABULARY, read, spliced

BOX = "\\boxed{red}"
COUNTS = ("chunks_read", "skipped", "exited", "format_fallbacks", "empty_updates")

# replies to the memory turns of three sections | turns | memory after each | the counts above
TABLE = {
    "plain updates": (["update\na", "update\nb", "update\nc"], "mmmf", ["a", "b", "c"], (3, 0, 0, 0, 0)),
    "skips keep": (["update\na", "skip", "skip"], "mmmf", ["a", "a", "a"], (3, 2, 0, 0, 0)),
    "nothing at all": (["skip", "skip", "skip"], "mmmf", ["", "", ""], (3, 3, 0, 0, 0)),
    "finish with the memory": (["skip", "finish\na"], "mmf", ["", "a"], (2, 1, 1, 0, 0)),
    "finish as it is": (["update\na", "finish"], "mmf", ["a", "a"], (2, 0, 1, 0, 0)),
    "finish at once": (["finish\na"], "mf", ["a"], (1, 0, 1, 0, 0)),
    "finish at the end": (["skip", "skip", "finish\na"], "mmmf", ["", "", "a"], (3, 2, 1, 0, 0)),
    "finish without a memory": (["finish", "finish", "skip"], "mmmf", ["", "", ""], (3, 1, 0, 2, 0)),
    "an empty update overwrites": (["update\na", "update", "skip"], "mmmf", ["a", "", ""], (3, 1, 0, 0, 1)),
    "the same, with blanks": (["update\na", "update\n \n", "skip"], "mmmf", ["a", "", ""], (3, 1, 0, 0, 1)),
    "plain reading": (["a", "b", "c"], "mmmf", ["a", "b", "c"], (3, 0, 0, 3, 0)),
    "an empty reply": (["update\na", "", "skip"], "mmmf", ["a", "", ""], (3, 1, 0, 1, 1)),
    "text behind skip": (["skip\na", "skip", "skip"], "mmmf", ["skip\na", "skip\na", "skip\na"], (3, 2, 0, 1, 0)),
    "text on the line": (["update a", "skip", "skip"], "mmmf", ["update a"] * 3, (3, 2, 0, 1, 0)),
    "words around": (["I will skip", "skip", "skip"], "mmmf", ["I will skip"] * 3, (3, 2, 0, 1, 0)),
    "a tag of the prompt": (["</memory>\nskip", "skip", "skip"], "mmmf", ["</memory>\nskip"] * 3, (3, 2, 0, 1, 0)),
    "decision twice": (["update\nskip", "skip", "skip"], "mmmf", ["skip", "skip", "skip"], (3, 2, 0, 0, 0)),
    "case and marks": (["\n **Update:**\na", "`SKIP`.", "Finish!"], "mmmf", ["a", "a", "a"], (3, 1, 1, 0, 0)),
}


@pytest.mark.parametrize("replies,kinds,memories,counts", TABLE.values(), ids=TABLE)
def test_what_a_reply_does(replies, kinds, memories, counts):
    run = read([*replies, BOX], agent="gated")
    assert (run.kinds, run.memories) == (kinds, memories)
    assert tuple(run.count(name) for name in COUNTS) == counts
    assert run.trajectory.answer == BOX and run.count("rounds") == run.count("turns") == len(kinds)


def test_a_memory_of_several_lines_is_carried_whole():
    run = read(["update\n\na\n\nb", "finish", BOX], agent="gated")
    assert run.memories[0].strip() == "a\n\nb" and run.kinds == "mmf"


def test_a_cut_memory_is_counted_and_reading_goes_on():
    line = len(VOCABULARY.encode_text("update\n"))
    run = read([("update\na b c d e f", StopReason.LENGTH), "skip", "skip", BOX], agent="gated",
               mem_max_memory=line + 3)
    assert run.count("truncated_memories") == 1 and run.count("format_fallbacks") == 0 and run.kinds == "mmmf"
    assert len(run.trajectory.memories[0]) == 3 and run.memories[0].startswith("a")


def test_a_reply_cut_inside_its_decision_is_a_plain_memory():
    run = read([("up", StopReason.LENGTH), "skip", "skip", BOX], agent="gated")
    assert run.memories == ["up"] * 3 and run.count("format_fallbacks") == 1


def test_thinking_is_no_decision():
    """10,000 tokens of it, closed or not; a decision inside of it does nothing."""
    think = VOCABULARY.encode_markup("<think>") + VOCABULARY.encode_text("finish\na ") * 2500
    close, end = VOCABULARY.encode_markup("</think>"), VOCABULARY.encode_markup("<|im_end|>")
    closed = think + close + VOCABULARY.encode_text("\n\nupdate\nb") + end
    run = read([closed, think, "skip", BOX], agent="gated")
    assert run.memories[0] == "b" and run.memories[1] == "" and run.kinds == "mmmf"
    assert run.count("format_fallbacks") == 1 and run.count("exited") == 0


def test_the_memory_is_the_run_of_ids_behind_the_line():
    odd = [VOCABULARY.encode_text(c)[0] for c in "The"]  # no encoder would write this word so
    reply = [*VOCABULARY.encode_text("update\n"), *odd, *VOCABULARY.encode_markup("<|im_end|>")]
    run = read([reply, "skip", "finish", BOX], agent="gated")
    assert run.trajectory.memories == (tuple(odd),) * 3
    assert all(spliced(turn.prompt_ids, odd) for turn in run.trajectory.turns[1:])


texts = st.lists(
    st.sampled_from(["skip", "update\na", "finish", "finish\nb", "", "plain", "skip\nx", "update", "Finish:\n"]),
    min_size=10, max_size=10,
)


@given(texts, st.integers(1, 10))
@settings(max_examples=60)
def test_sections_are_read_in_order_and_once_up_to_the_exit(replies, chunks):
    run = read(lambda prompt, number: replies[number] if "<section>" in prompt else BOX, chunks, agent="gated")
    plain = read(lambda prompt, number: "m", chunks)
    assert run.read == plain.read[: int(run.count("chunks_read"))]
    assert len(run.trajectory.turns) == len(run.read) + 1 <= len(plain.trajectory.turns)
    assert bool(run.count("exited")) >= (run.count("chunks_read") < chunks)
    for memory, turn in zip(run.trajectory.memories, run.trajectory.turns[1:], strict=True):
        assert spliced(turn.prompt_ids, memory)
    assert len(run.trajectory.memories) == len(run.read)


def test_hidden_questions_leave_no_exit():
    run = read(["finish\na", "update\nb", "skip", BOX], agent="gated", mem_query_blind=True)
    assert run.kinds == "mmmf" and run.memories == ["finish\na", "b", "b"]
    assert run.count("format_fallbacks") == 1 and run.count("exited") == 0
    assert not any("finish" in prompt for prompt in (run.prompts[0], run.prompts[2]))
    assert [QUESTION in prompt for prompt in run.prompts] == [False, False, False, True]


def test_own_wording_is_shown(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("gated: 'GATE {problem} {section} {memory}'\n")
    run = read(["finish\na", BOX], agent="gated", mem_prompts=str(path))
    assert "GATE" in run.prompts[0] and run.kinds == "mf"
