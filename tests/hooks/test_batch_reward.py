"""Rewards of whole rollouts: parts added once, in any order of calls; a state that a killed run finds again."""

import asyncio
import math
import shutil
from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.config import ConfigError
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks import batch_reward
from mem_agent.hooks.record import Record
from mem_agent.rewards.reward import Reward
from mem_agent.tests.helpers.samples import foreign, trajectory, turns_of

COUNTS = {"rounds": 2, "chunks": 1, "cached_tokens": 0, "prompt_tokens": 4}


class Rare(Reward):
    """No state: a bonus for answers that nobody else in the rollout gave."""

    def batch_parts(self, batch):
        replies = [answer.reply for answer in batch]
        return [{"rare": 0.5} if replies.count(reply) == 1 else {} for reply in replies]


class Novel(Reward):
    """A state: 1 for answers that no rollout before has given."""

    def __init__(self, settings):
        super().__init__(settings)
        self.seen = set()

    def batch_parts(self, batch):
        parts = [{"novel": float(answer.reply not in self.seen)} for answer in batch]
        self.seen |= {answer.reply for answer in batch}
        return parts

    def save(self, folder):
        (folder / "seen").write_text("\n".join(sorted(self.seen)))

    def load(self, folder):
        self.seen = set((folder / "seen").read_text().split("\n")) - {""}


class Judged(Reward):
    """Parts of each answer alone."""

    async def parts(self, answer):
        await asyncio.sleep(0)
        assert answer.accuracy == answer.parts["answer"]
        return {**answer.parts, "length": len(answer.reply) / 100, "golds": float(len(answer.golds))}


@pytest.fixture(autouse=True)
def fresh():
    batch_reward._runs.clear()


def args(tmp_path, kind=Novel, **more):
    settings = {"REWARD": f"{__name__}:{kind.__name__}", "SAVE_INTERVAL": 4}
    return SimpleNamespace(mem_agent=settings, save=str(tmp_path / "run"), **more)


def answers(*replies, **fields):
    """Finished trajectories with these replies, two of a group; the task gave 1 for ``red``."""
    samples = []
    for number, reply in enumerate(replies):
        worth = float(reply == "red")
        record = {"reward_parts": {"answer": worth}, "accuracy": worth}
        samples.append(trajectory(turns_of([2, 2]), counts=COUNTS, reward=worth, record=record, response=reply,
                                  prompt="q?", index=number, group_index=number // 2, **fields))
    return samples


def log(args, samples, number=0):
    extra = {}
    rollout.log_rollout(number, args, samples, extra, 1.0)
    return {name.removeprefix("rollout/memory/"): value for name, value in extra.items()}


def novel(args, samples, number):
    log(args, samples, number)
    return [Record.of(sample).reward_parts["novel"] for sample in samples]


def states(tmp_path):
    return sorted(int(folder.name) for folder in (tmp_path / "run" / "reward_state").iterdir())


# --- parts -----------------------------------------------------------------------------------------------------------


def test_parts_are_added_logged_one_by_one_and_trained(tmp_path):
    samples = answers("red", "blue", "red", "green")
    metrics = log(args(tmp_path, Rare), samples)
    assert [Record.of(s).reward_parts for s in samples] == [
        {"answer": 1.0}, {"answer": 0.0, "rare": 0.5}, {"answer": 1.0}, {"answer": 0.0, "rare": 0.5}
    ]
    assert [s.reward for s in samples] == [1.0, 0.5, 1.0, 0.5]
    assert (metrics["reward/answer"], metrics["reward/rare"], metrics["reward"]) == (0.5, 0.25, 0.75)
    assert metrics["accuracy"] == 0.5  # the task's alone
    data = custom_convert(args(tmp_path, Rare), samples)
    assert data["raw_reward"] == [1.0, 1.0, 0.5, 0.5, 1.0, 1.0, 0.5, 0.5]
    assert data["rewards"] == [0.25, 0.25, -0.25, -0.25, 0.25, 0.25, -0.25, -0.25]  # reward - the group's mean


CALLS = {
    "log, convert": [log, custom_convert],
    "convert, log": [custom_convert, log],
    "log, log, convert, convert": [log, log, custom_convert, custom_convert],
    "convert alone": [custom_convert],
}


@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
def test_a_rollout_is_scored_exactly_once_whoever_comes_first(calls, tmp_path):
    samples = answers("red", "blue")
    for call in calls:
        call(args(tmp_path, Rare), samples)
    assert [s.reward for s in samples] == [1.5, 0.5]
    assert all(Record.of(s).batch_scored for s in samples)


def test_only_trajectories_of_ours_that_ended_are_in_a_batch(tmp_path):
    failed = trajectory(status="failed", failure="timeout", reward=0.0, response="red", index=2, group_index=1)
    aborted = trajectory(status="aborted", reward=0.0, response="red", index=3, group_index=1)
    others = [failed, aborted, foreign(response="red", reward=0.25, index=4, rollout_log_probs=[-0.1])]
    ours = [*answers("red"), *answers("blue", status="truncated")]
    ours[1].index = 1
    log(args(tmp_path, Rare), [*ours, *others])
    assert [s.reward for s in ours] == [1.5, 0.5]  # nobody else said red
    assert [s.reward for s in others] == [0.0, 0.0, 0.25]
    assert not any(Record.of(s).batch_scored for s in others[:2])
    assert custom_convert(args(tmp_path, Rare), [*ours, *others])["raw_reward"] == [1.5, 1.5, 0.5, 0.5, 0, 0, 0.25]


def test_parts_of_one_answer_replace_the_tasks_and_evaluation_has_none(tmp_path):
    def scored(evaluation):
        done = trajectory(turns_of([2]), counts=COUNTS, reward=None, response="\\boxed{red}", prompt="q?",
                          metadata={"ground_truth": ["red", "blue"]}, record={"evaluation": evaluation})
        return asyncio.run(rollout.reward_func(args(tmp_path, Judged), done)), Record.of(done)

    reward, record = scored(False)
    assert record.reward_parts == {"answer": 1.0, "length": 0.11, "golds": 2.0} and record.accuracy == 1.0
    assert math.isclose(reward, 3.11)
    reward, record = scored(True)
    assert reward == 1.0 and record.reward_parts == {"answer": 1.0} and record.accuracy == 1.0


# --- state -----------------------------------------------------------------------------------------------------------

ROLLOUTS = [("red", "blue"), ("red", "green"), ("green", "white"), ("white", "black"), ("black", "pink"),
            ("pink", "red"), ("grey", "blue"), ("gold", "grey")]
UNBROKEN = [[1, 1], [0, 1], [0, 1], [0, 1], [0, 1], [0, 0], [1, 0], [1, 0]]


@pytest.mark.parametrize("killed", [(), (1,), (3, 5), tuple(range(1, 8))], ids=str)
def test_a_killed_run_gives_the_rewards_of_an_unbroken_one(killed, tmp_path):
    given = []
    for number, replies in enumerate(ROLLOUTS):
        if number in killed:
            batch_reward._runs.clear()  # as in a fresh process
        samples = answers(*replies)
        given.append(novel(args(tmp_path), samples, number))
        custom_convert(args(tmp_path), samples)
    assert given == UNBROKEN


def test_a_rollout_that_is_sampled_again_starts_from_the_one_before_it(tmp_path):
    for number in range(3):
        novel(args(tmp_path), answers(*ROLLOUTS[number]), number)
    for _ in range(2):  # in this process, then in another
        assert novel(args(tmp_path), answers(*ROLLOUTS[2]), 2) == UNBROKEN[2]
        batch_reward._runs.clear()
    assert novel(args(tmp_path), answers("red", "red"), 0) == [1, 1]  # from the start: no state


def test_a_rollout_of_which_nothing_ended_keeps_the_state(tmp_path):
    novel(args(tmp_path), answers("red", "blue"), 0)
    lost = [trajectory(status="aborted", reward=0.0, index=0)]
    log(args(tmp_path), lost, 1)
    custom_convert(args(tmp_path), lost)
    assert novel(args(tmp_path), answers("red", "green"), 2) == [0, 1]
    batch_reward._runs.clear()
    assert novel(args(tmp_path), answers("red", "green", "white"), 3) == [0, 0, 1]


def test_a_state_needs_the_log_hook(tmp_path):
    samples = answers("red", "blue")
    with pytest.raises(ConfigError, match="--custom-rollout-log-function-path"):
        custom_convert(args(tmp_path), samples)
    log(args(tmp_path), samples, 0)
    custom_convert(args(tmp_path), samples)
    assert [s.reward for s in samples] == [2.0, 1.0]


def play(tmp_path, first, last, checkpoints=()):
    for number in range(first, last + 1):
        log(args(tmp_path), answers("red"), number)
        if number in checkpoints:
            (tmp_path / "run" / f"iter_{number:07d}").mkdir()


def test_old_states_go_and_those_of_checkpoints_stay(tmp_path):
    play(tmp_path, 0, 10)
    assert states(tmp_path) == [3, 7, 9, 10]  # SAVE_INTERVAL is 4
    play(tmp_path, 11, 11)
    assert states(tmp_path) == [3, 7, 10, 11]


def test_states_go_with_their_checkpoints(tmp_path):
    """KEEP_CHECKPOINTS has removed that of rollout 3."""
    play(tmp_path, 0, 10, checkpoints=(7,))
    assert states(tmp_path) == [7, 9, 10]


def test_the_state_of_a_last_rollout_that_was_saved_out_of_turn_stays(tmp_path):
    """As that of a run of 10 rollouts that goes on, or one whose SAVE_INTERVAL has changed."""
    play(tmp_path, 0, 9, checkpoints=(3, 7, 9))
    batch_reward._runs.clear()
    play(tmp_path, 10, 13)
    assert 9 in states(tmp_path)
    batch_reward._runs.clear()
    play(tmp_path, 10, 10)  # killed, and on from the checkpoint


def test_a_run_that_was_set_back_keeps_the_states_it_writes(tmp_path):
    play(tmp_path, 0, 9)
    batch_reward._runs.clear()
    play(tmp_path, 4, 5)
    assert {4, 5} <= set(states(tmp_path))
    batch_reward._runs.clear()
    play(tmp_path, 6, 6)
    assert {5, 6, 8, 9} <= set(states(tmp_path))  # a journal may lead behind 9 again


def test_a_half_written_state_is_none(tmp_path):
    play(tmp_path, 0, 0)
    folder = tmp_path / "run" / "reward_state"
    shutil.copytree(folder / "0000000", folder / ".0000001.writing")
    batch_reward._runs.clear()
    with pytest.raises(ConfigError, match="0000001: the state"):
        play(tmp_path, 2, 2)
    play(tmp_path, 1, 2)
    assert not list(folder.glob(".*"))
