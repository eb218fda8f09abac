"""MemAgent on the one loop: turns, carried memory, what turns show, how trajectories end, what every one counts."""


import pytest

from mem_agent.agents.records import FailureKind, Outcome, StopReason, TurnFailed
from mem_agent.config import Config, ConfigError
from mem_agent.tests.helpers.scripted import END, QUESTION, SECTIONS, VOCABULARY, build, read, spliced


def test_it_reads_every_chunk_then_answers():
    run = read(["m zero", "", "m two", "\\boxed{red}"])
    assert run.kinds == "mmmf" and run.read == ["QW", "ZR", "XY"]
    assert run.trajectory.outcome is Outcome.COMPLETED and run.trajectory.answer == "\\boxed{red}"
    assert run.memories == ["m zero", "", "m two"] and run.count("empty_updates") == 1
    shown = ["Nothing yet.", "m zero", "Nothing yet.", "m two"]
    assert all(text in prompt for text, prompt in zip(shown, run.prompts, strict=True))
    assert "m zero" not in run.prompts[2] + run.prompts[3] and "XY" not in run.prompts[3]


def test_a_memory_is_the_sampled_ids_capped():
    odd = [VOCABULARY.encode_text(letter)[0] for letter in "The"]
    assert VOCABULARY.encode_text("The") != odd
    run = read([odd + END, "a b c d", ("a b c d e f", StopReason.LENGTH), "x"], mem_max_memory=3)
    assert spliced(run.trajectory.turns[1].prompt_ids, odd)
    assert [len(ids) for ids in run.trajectory.memories] == [3, 3, 3]
    assert run.count("truncated_memories") == 1 and run.count("memory_tokens") == 3


def test_the_released_way_carries_unclosed_thinking_and_shows_an_empty_memory_as_nothing():
    run = read(["<think>a", "<think>b</think> c ", "", "x"], args="carry=reply")
    assert run.memories == ["<think>a", "c", ""] and "<memory>\n\n</memory>" in run.prompts[3]


@pytest.mark.parametrize("agent", ["memagent", "rememr1", "gated", "parallel", "mem1"])
def test_a_hidden_question_is_shown_in_the_final_turn_alone(agent):
    run = read(["<IS>m</IS>", "n", "o", "p", "x"], agent=agent, args="query_blind=1")
    assert [QUESTION in prompt for prompt in run.prompts] == [False] * (len(run.prompts) - 1) + [True]


ENDINGS = {
    "aborted": (("partial", StopReason.ABORT), Outcome.ABORTED, 2),
    "failed": (TurnFailed(FailureKind.TIMEOUT, "late"), Outcome.FAILED, 1),
}


@pytest.mark.parametrize("reply,outcome,turns", ENDINGS.values(), ids=ENDINGS)
def test_a_round_that_did_not_finish_leaves_no_memory(reply, outcome, turns):
    run = read(["m zero", reply])
    assert run.trajectory.outcome is outcome and run.memories == ["m zero"] and len(run.trajectory.turns) == turns
    assert (run.count("rounds"), run.count("chunks")) == (turns, 3)


def test_other_exceptions_propagate_and_a_cut_answer_keeps_its_text():
    with pytest.raises(ZeroDivisionError):
        read(["m", ZeroDivisionError()])
    run = read(["m", "m", "m", ("\\boxed{re", StopReason.LENGTH)])
    assert run.trajectory.outcome is Outcome.TRUNCATED and run.trajectory.answer == "\\boxed{re"


@pytest.mark.parametrize("settings,name", [
    ({"agent": "nope"}, "AGENT"), ({"agent_args": "carry=all"}, "AGENT_ARGS"), ({"agent_args": "width=2"}, "width"),
    ({"agent": "parallel", "agent_args": "width=17"}, "width"), ({"agent_args": "turn_cost=2"}, "turn_cost"),
    ({"agent": "rememr1", "agent_args": "recall=embedding"}, "recall_model"),
    ({"agent": "rememr1", "agent_args": "query_blind=1 recall_query=question"}, "recall_query"),
])
def test_settings_that_an_agent_cannot_have_are_refused_by_name(settings, name):
    with pytest.raises(ConfigError, match=name):
        build(Config(**settings))


def test_the_loop_counts_for_every_agent():
    """Two chunks side by side, a turn that merges them, and the answer."""
    run = read(["a", "b", "ab", "x"], 2, "width=2", agent="parallel")
    turns = run.trajectory.turns
    assert [turn.round for turn in turns] == [0, 0, 1, 2]
    expected = {
        "turns": 4, "rounds": 3, "chunks": 2, "document_tokens": 4, "dropped_tokens": 0,
        "prompt_tokens": sum(len(turn.prompt_ids) for turn in turns),
        "response_tokens": sum(len(turn.response_ids) for turn in turns),
        "memory_tokens": len(run.trajectory.memories[-1]),
    }
    assert {name: run.count(name) for name in expected} == expected


# --- what turns show ----------------------------------------------------------------------------------------------

TAGGED = "<update>{}</update><recall>{}</recall>"
SHOWN = {
    "memagent": (["a", "b", "c", "x"], "", [0, 1, 2, None], [""] * 4),
    "gated": (["update\na", "skip", "finish", "x"], "", [0, 1, 2, None], [""] * 4),
    "mem1": (["<IS>a</IS>"] * 4, "", [0, 1, 2, None], [""] * 4),
    "parallel": (["a", "b", "a b", "a b c", "x"], "width=2", [0, 1, None, 2, None], [""] * 5),
    "rememr1": ([TAGGED.format("red key", ""), TAGGED.format("b", "red"), TAGGED.format("c", "nobody"), "x"], "",
                [0, 1, 2, None], ["", "", "red key", ""]),
}


@pytest.mark.parametrize("agent", SHOWN)
def test_a_turn_says_which_section_it_shows_and_what_was_recalled(agent):
    replies, args, sections, recalled = SHOWN[agent]
    turns = read(replies, agent=agent, args=args, mem_max_memory=64).trajectory.turns
    assert [turn.section and turn.section.number for turn in turns] == sections
    assert [VOCABULARY.decode(turn.recalled) for turn in turns] == recalled and all(turn.told for turn in turns)
    for turn in (turn for turn in turns if turn.section):
        shown = VOCABULARY.decode(turn.prompt_ids[turn.section.start : turn.section.end])
        assert shown == SECTIONS[2 * turn.section.number :][:2]


def test_a_turn_in_words_of_its_own_does_not_say_that_nothing_else_is_shown():
    assert [(t.section, t.told) for t in read(["x"], 0, agent="single").trajectory.turns] == [(None, True)]
    assert [(t.section, t.told) for t in read(["x"], 0, agent="chat").trajectory.turns] == [(None, False)]
