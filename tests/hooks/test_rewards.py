"""Rewards of whole rollouts: parts added once, in any order of calls; a state that a killed run finds again."""

import asyncio
from types import SimpleNamespace

import numpy as np
import orjson
import pytest

from mem_agent import rollout
from mem_agent.config import Config, ConfigError
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks import rewards
from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.sample import Record
from mem_agent.rewards.reward import Reward
from mem_agent.tests.helpers.samples import trajectory, turns_of

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
    """Parts of each answer alone, of another library's kind."""

    async def parts(self, answer):
        assert answer.accuracy == answer.parts["answer"]
        return {**answer.parts, "length": np.float32(len(answer.reply)), "golds": len(answer.golds)}


@pytest.fixture(autouse=True)
def fresh():
    rewards.RUNS.clear()


def args(tmp_path, kind=Novel, **settings):
    given = {"REWARD": f"{__name__}:{kind.__name__}", "SAVE_INTERVAL": 4, **settings}
    return SimpleNamespace(mem_agent=given, save=str(tmp_path / "run"))


def answers(*replies):
    """Finished trajectories with these replies, two of a group; the task gave 1 for what begins with ``red``."""
    samples = []
    for number, reply in enumerate(replies):
        worth = float(reply.startswith("red"))
        record = {"reward_parts": {"answer": worth}, "accuracy": worth}
        samples.append(trajectory(turns_of([2, 2]), counts=COUNTS, reward=worth, record=record, response=reply,
                                  prompt=f"{number // 2}?", index=number, group_index=number // 2))
    return samples


def log(run, samples, number=0):
    extra = {}
    rollout.log_rollout(number, run, samples, extra, 1.0)
    return {name.removeprefix("rollout/memory/"): value for name, value in extra.items()}


def parts(samples):
    return [dict(Record.of(sample).reward_parts) for sample in samples]


def test_parts_are_added_logged_one_by_one_and_trained(tmp_path):
    samples = answers("red", "blue", "red", "green")
    metrics = log(args(tmp_path, Rare), samples)
    assert parts(samples) == [{"answer": 1.0}, {"answer": 0.0, "rare": 0.5}] * 2
    assert (metrics["reward/answer"], metrics["reward/rare"], metrics["reward"]) == (0.5, 0.25, 0.75)
    assert metrics["accuracy"] == 0.5  # the task's alone
    data = custom_convert(args(tmp_path, Rare), samples)
    assert data["raw_reward"] == [1.0, 1.0, 0.5, 0.5] * 2 and data["rewards"] == [0.25, 0.25, -0.25, -0.25] * 2


CALLS = {"convert, log": [custom_convert, log], "twice": [log, log, custom_convert, custom_convert]}


@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS)
def test_a_rollout_is_scored_exactly_once_whoever_comes_first(calls, tmp_path):
    samples = answers("red", "blue")
    for call in calls:
        call(args(tmp_path, Rare), samples)
    assert [s.reward for s in samples] == [1.5, 0.5]


def test_parts_of_one_answer_replace_the_tasks_and_evaluation_has_none(tmp_path):
    def scored(**fields):
        done = trajectory(turns_of([2]), counts=COUNTS, reward=None, response="\\boxed{red}", prompt="q?",
                          metadata={"ground_truth": ["red", "blue"]}, **fields)
        done.reward = asyncio.run(rollout.reward_func(args(tmp_path, Judged), done))
        return done

    done = scored()
    assert parts([done]) == [{"answer": 1.0, "length": 11.0, "golds": 2.0}] and done.reward == 14.0
    orjson.dumps(parts([done]))  # plain numbers, as the journal writes them
    assert scored(record={"evaluation": True}).reward == 1.0


# --- state ----------------------------------------------------------------------------------------------------------

ROLLOUTS = [("red", "blue"), ("red", "green"), ("green", "white"), ("white", "black"), ("black", "pink"),
            ("pink", "red"), ("grey", "blue"), ("gold", "grey")]
UNBROKEN = [[1, 1], [0, 1], [0, 1], [0, 1], [0, 1], [0, 0], [1, 0], [1, 0]]


@pytest.mark.parametrize("prepares", [False, True])
@pytest.mark.parametrize("killed", [(), tuple(range(1, 8))], ids=str)
def test_a_killed_run_gives_the_rewards_of_an_unbroken_one(killed, prepares, tmp_path):
    """Hosts tell the rollout's number in the log hook, the embedded one before it samples."""
    given = []
    for number, replies in enumerate(ROLLOUTS):
        if number in killed:
            rewards.RUNS.clear()  # as in a fresh process
        if prepares:
            rewards.prepare(HostArgs(args(tmp_path)), number)
        samples = answers(*replies)
        log(args(tmp_path), samples, number)
        given.append([part["novel"] for part in parts(samples)])
        custom_convert(args(tmp_path), samples)
    assert given == UNBROKEN


@pytest.mark.parametrize(("checkpoints", "kept"), [((7,), [7, 8, 9, 10]), ((3, 6), [3, 6, 8, 9, 10])])
def test_the_newest_states_and_those_of_checkpoints_stay(tmp_path, checkpoints, kept):
    for number in range(11):
        log(args(tmp_path), answers("red"), number)
        if number in checkpoints:
            (tmp_path / "run" / f"iter_{number:07d}").mkdir()
    assert sorted(int(folder.name) for folder in (tmp_path / "run" / "reward_state").glob("[0-9]*")) == kept


def test_a_state_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match="reward_state/0000004"):
        rewards.prepare(HostArgs(args(tmp_path)), 5)


# --- settings -------------------------------------------------------------------------------------------------------

KNN = {"MEM_IR": "knn+", "MEM_IR_ARGS": "warmup=0 model=hashing"}

@pytest.mark.parametrize(("settings", "named"), [
    ({"MEM_IR": "knm"}, "MEM_IR='knm'"), (KNN | {"MEM_IR_ARGS": "model=./no-such-folder"}, "no-such-folder"),
    (KNN | {"MEM_IR_ARGS": "k=0"}, "k='0'"), ({"REWARD_ARGS": "overlong_buffer=-1"}, "buffer"),
])
def test_settings_that_cannot_work_are_refused_before_anything_starts(settings, named):
    with pytest.raises(ConfigError, match=named):
        rewards.check_plugins(Config.from_mapping(settings))
