"""Gated and parallel reading and MEM1: what each reply does to the memory and to the reading."""

import pytest

from mem_agent.agents.records import StopReason
from mem_agent.tests.helpers.scripted import QUESTION, VOCABULARY, read

BOX = "\\boxed{red}"
COUNTS = {
    "gated": ("chunks_read", "skipped", "exited", "format_fallbacks", "empty_updates"),
    "parallel": ("rounds", "useful_notes", "merges", "format_fallbacks"),
    "mem1": ("format_fallbacks",),
}
# replies to the memory turns of three sections | memory after each round but the last | the counts above
GATED = {
    "skips keep": (["update\na", "skip", "`SKIP`."], ["a", "a", "a"], (3, 2, 0, 0, 0)),
    "finish with a memory": (["skip", "finish\na"], ["", "a"], (2, 1, 1, 0, 0)),
    "finish as it is": (["\n **Update:**\na", "Finish!"], ["a", "a"], (2, 0, 1, 0, 0)),
    "finish without a memory": (["finish", "finish", "skip"], ["", "", ""], (3, 1, 0, 2, 0)),
    "an empty update overwrites": (["update\na", "update\n \n", "skip"], ["a", "", ""], (3, 1, 0, 0, 1)),
    "plain reading": (["a", "b", ""], ["a", "b", ""], (3, 0, 0, 3, 1)),
    "cut in its decision": ([("up", StopReason.LENGTH), "skip", "skip"], ["up"] * 3, (3, 2, 0, 1, 0)),
}
PARALLEL = {
    "several are merged": (["a", "b", "c", "abc"], ["", "abc"], (3, 3, 1, 0)),
    "one needs no merge": (["nothing", "b", "nothing"], ["b"], (2, 1, 0, 0)),
    "none keeps the memory": (["nothing", "Nothing.", "**NOTHING**"], [""], (2, 0, 0, 0)),
    "empty replies are nothing": (["", " \n", "nothing here"], ["nothing here"], (2, 1, 0, 2)),
    "an empty merge keeps the last": (["a", "b", "nothing", ""], ["", "b"], (3, 2, 1, 1)),
}
MEM1 = {
    "states": (["<IS>a</IS>", "<IS>a</IS> no, <IS>b</IS>", "<IS>b <IS>c</IS>"], ["a", "b", "c"], (0,)),
    "none": (["<IS>a</IS>", "<IS> </IS>", "<IS>b"], ["a", "a", "a"], (2,)),
}
TABLE = [("gated", "", *row) for row in GATED.values()] + [("parallel", "width=3", *row) for row in PARALLEL.values()]
TABLE += [("mem1", "", *row) for row in MEM1.values()]


@pytest.mark.parametrize("agent,args,replies,memories,counts", TABLE, ids=[*GATED, *PARALLEL, *MEM1])
def test_what_replies_do(agent, args, replies, memories, counts):
    run = read([*replies, BOX], agent=agent, args=args)
    assert run.memories == memories and run.kinds == "m" * len(replies) + "f"
    assert tuple(run.count(name) for name in COUNTS[agent]) == counts and run.trajectory.answer == BOX


def test_thinking_is_no_decision_of_a_gate_and_hidden_questions_leave_no_exit():
    think, close = VOCABULARY.encode_markup("<think>finish\na"), VOCABULARY.encode_markup("</think>\n\nupdate\nb")
    run = read([think + close, think, "skip", BOX], agent="gated")
    assert run.memories == ["b", "", ""] and run.count("format_fallbacks") == 1 and run.count("exited") == 0
    run = read(["finish\na", "update\nb", "skip", BOX], agent="gated", args="query_blind=1")
    assert run.kinds == "mmmf" and run.memories == ["finish\na", "b", "b"]
    assert not any("finish" in prompt for prompt in (run.prompts[0], run.prompts[2]))


def test_a_merge_turn_sees_question_memory_and_useful_replies_in_order():
    run = read(["a", "nothing", "old", "mmm", "fff", "nothing", "mmm", BOX, BOX], 6, "width=3", agent="parallel")
    merge = run.prompts[3]
    assert "<notes>" in merge and QUESTION in merge and "a\n\nold" in merge and "Nothing yet." in merge
    assert [("mmm" in p) for p in run.prompts[4:7]] == [True] * 3, "one round is read beside one memory"
    assert run.memories == ["", "mmm", "fff"], "a reply that repeats the memory is left out"


def test_mem1_drops_all_earlier_context_and_answers_in_its_tags():
    replies = [f"out{n} <IS>state{n}</IS>" for n in range(3)]
    run = read([*replies, "<IS>so</IS>\n<answer> red </answer>"], agent="mem1", mem_max_final=64)
    assert "Nothing yet." in run.prompts[0] and run.trajectory.answer == BOX
    for number, prompt in enumerate(run.prompts[1:]):
        assert QUESTION in prompt and f"<IS>\nstate{number}\n</IS>" in prompt and f"out{number}" not in prompt
        assert not any(f"state{earlier}" in prompt for earlier in range(number))
    for reply in ("it is \\boxed{red}", "\\boxed{red} <answer> </answer>"):
        assert read(["<IS>a</IS>", reply], 1, agent="mem1", mem_max_final=64).trajectory.answer == reply
