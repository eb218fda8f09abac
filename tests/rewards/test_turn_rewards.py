"""State rewards by hand, component by component, and each published defect that must not come back."""

import pytest

from mem_agent.rewards.turn_rewards import Step, published_state_rewards, state_rewards

GOLD = ["Ann Lee"]


def memory_turn(golds=GOLD, prompt=tuple, **step):
    given = {"good": True, "before": "", "after": ""} | step
    return state_rewards([Step(**given)], [prompt], "", golds)[0]


RECALL = [
    ("Ann paints", ["Ann Lee"], 1 / 2),  # Ann of Ann, Lee
    ("“lee, Ann!”—painter", ["Ann Lee"], 1.0),  # any case, order and punctuation
    ("Annette Leeds", ["Ann Lee"], 0.0),  # whole words
    ("no previous memory", ["no"], 0.0),  # texts hold a yes or no by chance
    ("the river", ["the"], 1.0),  # a gold that is an article is a word
    ("Ann", ["Bo Diddley Jr", "Ann Lee"], 1 / 2),  # the best gold, not the mean of 0 and 1/2
    ("New New York", ["New York New Jersey"], 3 / 4),  # New, York, New of four
]


@pytest.mark.parametrize(("text", "golds", "expected"), RECALL)
def test_word_recall(text, golds, expected):
    assert memory_turn(golds, after=text)["gain"] == expected


def test_the_worked_example():
    turn = memory_turn(before="a painter", after="the painter is Ann", recalled="Lee was born in Rome",
                       prompt=lambda: ("Who painted it?", "a painter"))
    # gain: rec(m_t) = 1/2, rec(m_(t-1)) = 0; recall: rec(r and p) = 1/2 (Lee), rec(p) = 0
    assert turn == {"format": 1.0, "gain": 1 / 2, "recall": 1 / 2}


GAINS = [("", "first line\nAnn\nLee", 1.0), ("x\nAnn Lee", "Ann Lee", 0.0), ("Ann Lee", "Ann", -1 / 2)]


@pytest.mark.parametrize(("before", "after", "gain"), GAINS)
def test_memory_gain(before, after, gain):
    assert memory_turn(before=before, after=after)["gain"] == gain


BONUSES = [("Ann Lee", "Ann stands here", 1 / 2), ("Ann Lee", "Lee, Ann", 0.0), ("Ann", "Lee", 1 / 2),
           ("nothing", "Ann Lee", 0.0)]


@pytest.mark.parametrize(("recalled", "prompt", "bonus"), BONUSES)
def test_recall_bonus(recalled, prompt, bonus):
    assert memory_turn(recalled=recalled, prompt=lambda: prompt.split(" "))["recall"] == bonus


def test_a_prompt_that_cannot_matter_is_not_decoded():
    assert memory_turn(recalled="nothing", prompt=lambda: 1 / 0)["recall"] == 0.0


def test_turns_stay_in_order_and_the_final_one_needs_its_box():
    steps = [Step(True, "", "Ann"), Step(False, "Ann", "Ann Lee")]
    turns = [{"format": 1.0, "gain": 1 / 2, "recall": 0.0}, {"format": 0.0, "gain": 1 / 2, "recall": 0.0}]
    assert state_rewards(steps, [tuple] * 2, "\\boxed{x}", GOLD) == [*turns, {"format": 1.0}]
    assert state_rewards(steps, [tuple] * 2, "\\boxed{x", GOLD) == [*turns, {"format": 0.0}]


def test_the_worked_example_of_the_release():
    texts = ("I know Ann", "<update>Ann Lee</update>")
    step = Step(True, "", "", shown_recall="Lee")
    first, final = published_state_rewards([step], [texts], "\\boxed{x}", ["Ann Lee", "no"])
    assert sum(first.values()) == 1.75 and final == {"format": 1.0}
