"""State rewards by hand, component by component, and each published defect that must not come back."""

import pytest

from mem_agent.rewards.memory_state import Step, recall_of, state_rewards, supporting_titles

GOLD = ["Ann Lee"]


def memory_turn(golds=GOLD, titles=(), **step):
    given = {"good": True, "before": "", "after": ""} | step
    return state_rewards([Step(**given)], "", golds, titles)[0]


@pytest.mark.parametrize(
    "text,golds,expected",
    [
        ("Ann paints", ["Ann Lee"], 1 / 2),  # Ann of Ann, Lee
        ("lee, ann!", ["Ann Lee"], 1.0),  # any case, order and punctuation
        ("“Ann Lee”—painter", ["Ann Lee"], 1.0),  # punctuation that SQuAD's form does not know
        ("Annette Leeds", ["Ann Lee"], 0.0),  # whole words
        ("I know", ["no"], 0.0),
        ("no previous memory", ["no"], 0.0),  # texts hold a yes or no by chance
        ("yes", ["yes", "Ann"], 0.0),
        ("the river", ["the"], 1.0),  # a gold that is an article is a word
        ("a river", ["the river"], 1.0),  # articles of other golds do not count
        ("Ann", ["Bo Diddley Jr", "Ann Lee"], 1 / 2),  # the best gold, not the mean of 0 and 1/2
        ("New New York", ["New York New Jersey"], 3 / 4),  # New, York, New of four
        ("Ann", [], 0.0),
        ("Ann", ["..."], 0.0),
        ("", ["Ann"], 0.0),
    ],
)
def test_word_recall(text, golds, expected):
    assert recall_of(text, golds) == expected


def test_the_worked_example():
    turn = memory_turn(before="a painter", after="the painter is Ann", recalled="Lee was born in Rome",
                       prompt=lambda: ("Who painted it?", "a painter"))
    # gain: rec(m_t) = 1/2, rec(m_(t-1)) = 0; recall: rec(r and p) = 1/2 (Lee), rec(p) = 0
    assert turn == {"format": 1.0, "gain": 1 / 2, "recall": 1 / 2}


@pytest.mark.parametrize(
    "before,after,gain",
    [
        ("", "Ann", 1 / 2),
        ("", "first line\nAnn\nLee", 1.0),  # of several lines
        ("x\nAnn Lee", "Ann Lee", 0.0),  # the previous memory counts, also of several lines
        ("Ann Lee", "Ann", -1 / 2),  # losing costs
        ("Ann Lee", "", -1.0),
        ("Ann", "Ann", 0.0),
    ],
)
def test_memory_gain(before, after, gain):
    assert memory_turn(before=before, after=after)["gain"] == gain


@pytest.mark.parametrize(
    "recalled,prompt,bonus",
    [
        ("Ann Lee", "nothing of it", 1.0),
        ("Ann Lee", "Ann stands here", 1 / 2),  # 1 - 1/2
        ("Ann Lee", "Lee, Ann", 0.0),  # the prompt had it
        ("Ann", "Lee", 1 / 2),  # together 1, the prompt alone 1/2
        ("nothing", "Ann Lee", 0.0),  # never below 0
        ("", "Ann Lee", 0.0),
    ],
)
def test_recall_bonus(recalled, prompt, bonus):
    assert memory_turn(recalled=recalled, prompt=lambda: prompt.split(" "))["recall"] == bonus


def test_a_prompt_that_cannot_matter_is_not_decoded():
    assert memory_turn(recalled="nothing", prompt=lambda: 1 / 0)["recall"] == 0.0
    with pytest.raises(ZeroDivisionError):
        memory_turn(recalled="Ann", prompt=lambda: 1 / 0)


def test_an_ill_formed_turn_earns_no_format():
    assert memory_turn(good=False, after="Ann Lee") == {"format": 0.0, "gain": 1.0, "recall": 0.0}


@pytest.mark.parametrize(
    "answer,earned",
    [
        ("so \\boxed{Ann}", 1.0),
        ("\\boxed{f(\\{1\\}) = {3}}", 1.0),
        ("\\boxed{Ann\nLee}", 1.0),
        ("\\boxed{Ann} or \\boxed{Bo}", 0.0),
        ("\\boxed{Ann", 0.0),
        ("\\boxed{}", 0.0),  # what the prompt itself shows
        ("\\boxed{ }", 0.0),
        ("\\boxed Ann", 0.0),
        ("Ann", 0.0),
        ("", 0.0),
    ],
)
def test_final_turn_format(answer, earned):
    assert state_rewards([], answer, GOLD) == [{"format": earned}]


def test_evidence_is_the_gain_over_the_titles():
    turn = memory_turn(titles=["Ann Lee", "The River"], before="a river", after="Ann near the river")
    # before: 0 and 1 of two titles, 1/2; after: 1/2 and 1, 3/4
    assert turn["evidence"] == 1 / 4
    assert "evidence" not in memory_turn(titles=[])


def test_turns_stay_in_order_and_the_final_one_is_last():
    rewards = state_rewards([Step(True, "", "Ann"), Step(False, "Ann", "Ann Lee")], "\\boxed{x}", GOLD)
    assert rewards == [
        {"format": 1.0, "gain": 1 / 2, "recall": 0.0}, {"format": 0.0, "gain": 1 / 2, "recall": 0.0}, {"format": 1.0},
    ]


@pytest.mark.parametrize(
    "metadata,titles",
    [
        ({"supporting": ["Ann", "Bo"]}, ["Ann", "Bo"]),
        ({"supporting_facts": [["Ann", 0], ["Ann", 1], ["Bo", 0]]}, ["Ann", "Bo"]),
        ({"supporting_facts": {"title": ["Ann", "Bo"], "sent_id": [0, 1]}}, ["Ann", "Bo"]),
        ({"supporting_facts": None}, []),
        ({"supporting": "Ann"}, []),
        ({"supporting_facts": [[], 7, [3]]}, []),
        ({}, []),
    ],
)
def test_titles_from_either_form_of_row(metadata, titles):
    assert supporting_titles(metadata) == titles
