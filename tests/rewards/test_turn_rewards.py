"""What turns earn by themselves, by hand, with each published defect that must not come back; what length is worth."""

import asyncio
from math import cos, pi

import pytest

from mem_agent.rewards.reward import Answered, CosineLength, CosineSettings, overlong_cost
from mem_agent.rewards.turn_rewards import Step, published_state_rewards, state_rewards
from mem_agent.system.plugins import parse_settings

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


def test_word_recall():
    assert [(text, golds, memory_turn(golds, after=text)["gain"]) for text, golds, _ in RECALL] == RECALL


# memory before and after, recalled, prompt, gain, bonus
TURNS = [
    # gain: rec(m_t) = 1/2, rec(m_(t-1)) = 0; recall: rec(r and p) = 1/2 (Lee), rec(p) = 0
    ("a painter", "the painter is Ann", "Lee was born in Rome", "Who painted it? a painter", 1 / 2, 1 / 2),
    ("", "first line\nAnn\nLee", "Ann Lee", "Lee, Ann", 1.0, 0.0), ("x\nAnn Lee", "Ann Lee", "", "", 0.0, 0.0),
    ("Ann Lee", "Ann", "Ann Lee", "Ann stands here", -1 / 2, 1 / 2), ("", "", "nothing", "Ann Lee", 0.0, 0.0),
]


@pytest.mark.parametrize(("before", "after", "recalled", "prompt", "gain", "bonus"), TURNS)
def test_a_turn(before, after, recalled, prompt, gain, bonus):
    turn = memory_turn(before=before, after=after, recalled=recalled, prompt=lambda: prompt.split(" "))
    assert turn == {"format": 1.0, "gain": gain, "recall": bonus}


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


# --- length ---------------------------------------------------------------------------------------------------------

# tokens of 200 -> right, wrong; 50 tokens: .5 + .25 * (1 + cos(pi / 4)) = .9268
LENGTHS = [
    (0, 1.0, -1.0), (50, 0.5 + 0.25 * (1 + cos(pi / 4)), -0.5 - 0.25 * (1 + cos(pi / 4))), (100, 0.75, -0.75),
    (200, 0.5, -0.5), (400, 0.5, -0.5),  # twice the limit is worth what none is where nothing is clamped
]


@pytest.mark.parametrize(("tokens", "right", "wrong"), LENGTHS)
@pytest.mark.parametrize(("args", "most"), [("", 200), ("max_tokens=200", 100)])
def test_length_along_a_cosine(args, most, tokens, right, wrong):
    reward = CosineLength(parse_settings(CosineSettings, args, "REWARD_ARGS"))
    for accuracy, worth in ((1.0, right), (0.0, wrong)):
        answer = Answered("q?", ("18",), {}, "", {"correct": accuracy}, accuracy,
                          counts={"response_tokens": tokens, "max_final_tokens": most})
        assert asyncio.run(reward.parts(answer)) == {"correct": accuracy, "length": pytest.approx(worth)}


@pytest.mark.parametrize(("tokens", "cost"), [(12288, 0.0), (12289, 2 / 4096), (14336, 1.0), (20000, 2.0)])
def test_a_long_reply_pays_before_it_is_cut(tokens, cost):
    """DAPO's equation 13 with its 16,384 tokens and buffer of 4,096, here with a penalty of 2."""
    settings = parse_settings(CosineSettings, "overlong_buffer=4096 overlong_penalty=2", "REWARD_ARGS")
    assert overlong_cost(settings, tokens, 16384) == cost and overlong_cost(object(), tokens, 16384) == 0.0
