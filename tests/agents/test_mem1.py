"""MEM1: one internal state, rewritten each turn, all else dropped; the answer in its tags."""

import pytest

from mem_agent.tests.helpers.scripted import QUESTION, read

# reply to the second of two sections | the state after it | format_fallbacks
REPLIES = {
    "a state": ("<IS>b, so c</IS>", "b, so c", 0),
    "the last of two": ("<IS>b</IS> no, <IS>c</IS>", "c", 0),
    "a draft inside": ("<IS>b <IS>c</IS>", "c", 0),
    "a blank one": ("<IS> </IS>", "a", 1),
    "never closed": ("<IS>b", "a", 1),
    "no tags": ("b", "a", 1),
}


@pytest.mark.parametrize("reply,state,fallbacks", REPLIES.values(), ids=REPLIES)
def test_what_a_reply_makes_of_the_state(reply, state, fallbacks):
    run = read(["<IS>a</IS>", reply, "x"], 2, agent="mem1")
    assert run.memories == ["a", state] and run.count("format_fallbacks") == fallbacks
    assert f"<IS>\n{state}\n</IS>" in run.prompts[2] and run.kinds == "mmf" and run.read == ["QW", "ZR"]


def test_all_earlier_context_is_dropped():
    run = read([f"out{n} <IS>state{n}</IS>" for n in range(4)], agent="mem1")
    assert "Nothing yet." in run.prompts[0]
    for number, prompt in enumerate(run.prompts[1:], start=1):
        assert QUESTION in prompt and f"state{number - 1}" in prompt and "out" not in prompt.replace("about", "")
        assert not any(f"state{earlier}" in prompt for earlier in range(number - 1))


ANSWERS = {
    "boxed": ("<IS>so</IS> <answer>\\boxed{red}</answer>", "\\boxed{red}"),
    "as MEM1 writes it": ("<IS>so</IS>\n<answer> red </answer>", "\\boxed{red}"),
    "in no tags": ("it is \\boxed{red}", "it is \\boxed{red}"),
    "blank": ("\\boxed{red} <answer> </answer>", "\\boxed{red} <answer> </answer>"),
}


@pytest.mark.parametrize("reply,answer", ANSWERS.values(), ids=ANSWERS)
def test_the_answer_is_what_stands_in_its_tags(reply, answer):
    run = read(["<IS>a</IS>", reply], 1, agent="mem1", mem_max_final=64)
    assert run.trajectory.answer == answer
