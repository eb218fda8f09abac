"""The published rewards are those that the settings choose, on fuzzed replies and turns.

    REMEMR1_ROOT=... MEMAGENT_ROOT=... python -m pytest tests/rewards/test_published_rewards.py
"""

import contextlib
import io
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mem_agent.custom_convert import group_advantages, turn_advantages
from mem_agent.rewards.answers import the_answer_is
from mem_agent.rewards.turn_rewards import Step, published_state_rewards
from mem_agent.tasks.qa import boxed_exact_match
from mem_agent.tests.helpers import published
from mem_agent.tests.helpers.published import MEMAGENT, REMEMR1

REPLIES = 5_000
PIECES = (
    "\\boxed{", "\\boxed {", "\\boxed ", "\\boxed", "\\fbox{", "}", "{", "\\{", "\\}", "$", "\n", " ", ".", " .5",
    "{.", "\\%", "\\$", "%", "\\!", "\\\\", "\\text{", "\\frac", "\\tfrac", "\\left(", "\\right)", "^\\circ", "the ",
    "The ", "Beatles", "beatles", "Ann Lee", "ann", "yes", "no", "35", "</think>", "<think>", "İ", "ß",
    "東京", "x" * 40,
)
"""Boxes whole and broken, what the release deletes, letters that grow when they are made small, and length."""
GOLDS = ("The Beatles", "Ann Lee", "35", "35%", "0.5", ".5", "yes", "no", "東京", "", " ", "x", "\\frac12", "İ", "{a}")


def fuzzed_reply(rng):
    gold = rng.choice(GOLDS)
    parts = rng.choices(PIECES, k=rng.randint(0, 9))
    if rng.random() < 0.6:
        written = rng.choice((str.lower, str.upper, str.strip))(gold)
        parts.insert(rng.randint(0, len(parts)), "\\boxed{" + written + "}")
    return "".join(parts), [gold, *rng.choices(GOLDS, k=rng.randint(0, 2))]


@pytest.mark.parametrize("root,style,options", [
    (MEMAGENT, "published", {}), (REMEMR1, "published", {}), (REMEMR1, "published_f1", {"reward_metric": "f1"}),
])
def test_outcome_rewards(root, style, options):
    theirs = published.load(published.checkout(root) / "verl" / "utils" / "reward_score", "hotpotqa").compute_score
    rng = random.Random(5)
    cases = [fuzzed_reply(rng) for _ in range(REPLIES)]
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it could not read
        wanted = [theirs(reply, golds, **options) for reply, golds in cases]
    given = [boxed_exact_match(reply, golds, style) for reply, golds in cases]
    assert given == pytest.approx(wanted) and 0.2 < sum(map(bool, wanted)) / REPLIES < 0.8


WORDS = ("Ann", "Lee", "Annette", "no", "know", "the", "River", "river", "東京", "painter", "yes,")
TAGS = ("<update>", "</update>", "<memory>", "</memory>", "<recall>", "</recall>", "\\boxed{", "}", "\n", "")


def fuzzed_text(rng, most=14):
    pieces = [rng.choice(rng.choice((WORDS, WORDS, TAGS))) for _ in range(rng.randint(0, most))]
    return "".join(piece + rng.choice(("", " ")) for piece in pieces)


def fuzzed_turn(rng):
    update = f"<update>{fuzzed_text(rng, 5)}</update>" if rng.random() < 0.7 else ""
    memory = f"<memory>{fuzzed_text(rng, 5)}</memory>" if rng.random() < 0.5 else ""
    recalled = rng.choice(("Nothing recalled, no.", fuzzed_text(rng, 6)))
    golds = rng.choices(("Ann Lee", "no", "the River", "東京", "", "painter Ann No"), k=rng.randint(1, 3))
    return fuzzed_text(rng) + memory + fuzzed_text(rng), fuzzed_text(rng) + update + fuzzed_text(rng), recalled, golds


def batch_of(kind, golds):
    """What the release's functions look into: one turn of a kind for each list of golds."""
    batch = SimpleNamespace(batch={"action_type": [kind] * len(golds), "responses": torch.zeros(1)})
    rows = np.empty(len(golds), object)
    rows[:] = [SimpleNamespace(non_tensor_batch={"reward_model": {"ground_truth": each}}) for each in golds]
    return batch, rows, torch.arange(len(golds))


@pytest.fixture(scope="module")
def metric_utils():
    return published.load(published.checkout(REMEMR1), "verl.trainer.ppo.metric_utils", "verl")


def test_state_rewards(metric_utils):
    rng = random.Random(6)
    prompts, replies, recalled, golds = zip(*(fuzzed_turn(rng) for _ in range(REPLIES)), strict=True)
    batch, rows, index = batch_of(2, golds)
    formats = metric_utils.compute_format_rewards(replies, batch)
    actions = metric_utils.compute_action_rewards(prompts, replies, recalled, batch, rows, index, torch.zeros(REPLIES))
    finals = metric_utils.compute_format_rewards(replies, batch_of(0, golds)[0])
    for n in range(REPLIES):
        step = Step(True, "", "", shown_recall=recalled[n])
        turn, final = published_state_rewards([step], [(prompts[n], replies[n])], replies[n], golds[n])
        assert (turn["format"], final["format"]) == (formats[n], finals[n])
        assert turn["gain"] + turn["recall"] == pytest.approx(float(actions[n]), abs=1e-6)
    assert 0.2 < float((actions > 0).float().mean()) < 0.9 and 0 < float(formats.mean()) < 1 > float(finals.mean()) > 0


def test_the_released_mix_of_advantages_counts_the_state_twice():
    absent = ("verl", "ray", "omegaconf", "torchdata", "codetiming", "tensordict")
    trainer = published.load(published.checkout(REMEMR1), "verl.trainer.ppo.ray_trainer", *absent)
    advantage = trainer.compute_1D_grpo_advantage
    rng, alpha, turns = random.Random(8), 0.8, 4
    for _ in range(200):
        groups = [group for group in range(3) for _ in range(4)]
        rewards = [float(rng.random() < 0.5) for _ in groups]
        states = [[rng.choice((0.0, 0.5, 1.0, 1.75)) for _ in range(turns)] for _ in groups]
        outcome = advantage(torch.tensor(rewards)[:, None], groups, use_adv=False)
        flat = torch.tensor([state for row in states for state in row])
        keys = [f"{group}/{turn}" for group in groups for turn in range(turns)]
        state = advantage(flat.unsqueeze(-1).tile([1, 2]), keys, use_adv=False)
        theirs = outcome.repeat_interleave(turns) * alpha + state * (1 - alpha)
        ours = turn_advantages(group_advantages(rewards, groups), states, groups, alpha, state_weight=2.0)
        assert [value for row in ours for value in row] == pytest.approx(theirs.tolist(), abs=1e-5)


def test_the_answer_is_as_published():
    utils = published.load(published.checkout(MEMAGENT) / "taskutils" / "memory_eval", "utils")
    rng = random.Random(0)
    parts = ["the answer is", "The answer is", "*", "**", ".", " ", "\n", "Rome", "U.S.", "\\boxed{x}", "\u00a0", "é",
             "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜", "the ", "answer is", "\t"]
    replies = ["".join(rng.choices(parts, k=rng.randint(0, 12))) for _ in range(REPLIES)]
    assert [reply for reply in replies if the_answer_is(reply) != utils.extract_answer(reply)] == []
