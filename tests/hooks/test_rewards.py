"""Rewards of whole rollouts: parts added once, in any order of calls; a state that a killed run finds again."""

from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.config import Config, ConfigError
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks import rewards
from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.sample import Record
from mem_agent.rewards.reward import Reward
from mem_agent.tests.helpers.samples import trajectory, turns_of


class Rare(Reward):
    """No state: a bonus for answers that nobody else in the rollout gave."""

    def batch_parts(self, batch):
        replies = [answer.reply for answer in batch]
        return [{"rare": 0.5} if replies.count(reply) == 1 else {} for reply in replies]


class Plain(Reward):
    """A number and nothing else, of an answer and of a batch."""

    def batch_parts(self, batch):
        return [0.25] * len(batch)


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
        (folder / "seen").write_text("\n".join(self.seen))

    def load(self, folder):
        self.seen = set((folder / "seen").read_text().split("\n"))


@pytest.fixture(autouse=True)
def fresh():
    rewards.RUNS.clear()


def args(tmp_path, kind=Novel):
    return SimpleNamespace(mem_agent={"REWARD": f"{__name__}:{kind.__name__}"}, save=str(tmp_path / "run"))


def answers(*replies):
    """Finished trajectories with these replies, two of a group; the task gave 1 for what begins with ``red``."""
    samples = []
    for number, reply in enumerate(replies):
        worth = float(reply.startswith("red"))
        record = {"reward_parts": {"answer": worth}, "accuracy": worth}
        samples.append(trajectory(turns_of([2, 2]), reward=worth, record=record, response=reply,
                                  prompt=f"{number // 2}?", index=number, group_index=number // 2))
    return samples


def log(run, samples, number=0):
    extra = {}
    rollout.log_rollout(number, run, samples, extra, 1.0)
    return {name.removeprefix("rollout/memory/"): value for name, value in extra.items()}


def parts(samples):
    return [dict(Record.of(sample).reward_parts) for sample in samples]


def test_a_plain_number_of_a_batch_is_added(tmp_path):
    samples = answers("red one", "blue")
    rewards.apply(HostArgs(args(tmp_path, Plain)), samples, 0)
    assert [sample.reward for sample in samples] == [1.25, 0.25]


@pytest.mark.parametrize("before", [[], [log], [custom_convert], [log, custom_convert]],
                         ids=["none", "log", "convert", "both"])
def test_parts_are_added_once_whoever_comes_first_and_logged_one_by_one_and_trained(before, tmp_path):
    samples, run = answers("red", "blue", "red", "green"), args(tmp_path, Rare)
    for call in before:
        call(run, samples)
    metrics, data = log(run, samples), custom_convert(run, samples)
    assert parts(samples) == [{"answer": 1.0}, {"answer": 0.0, "rare": 0.5}] * 2
    assert (metrics["reward/answer"], metrics["reward/rare"], metrics["reward"]) == (0.5, 0.25, 0.75)
    assert metrics["accuracy"] == 0.5  # the task's alone
    assert data["raw_reward"] == [1.0, 1.0, 0.5, 0.5] * 2 and data["rewards"] == [0.25, 0.25, -0.25, -0.25] * 2


# --- state ----------------------------------------------------------------------------------------------------------

ROLLOUTS = [("red", "blue"), ("red", "green"), ("green", "white"), ("blue", "red"), ("grey", "green")]
UNBROKEN = [[1, 1], [0, 1], [0, 1], [0, 0], [1, 0]]


@pytest.mark.parametrize("prepares", [False, True])
@pytest.mark.parametrize("killed", [(), range(1, 5)], ids=str)
def test_a_killed_run_gives_the_rewards_of_an_unbroken_one(killed, prepares, tmp_path):
    """Hosts tell the rollout's number in the log hook, the embedded one before it samples."""
    given, run = [], args(tmp_path)
    for number, replies in enumerate(ROLLOUTS):
        if number in killed:
            rewards.RUNS.clear()  # as in a fresh process
        if prepares:
            rewards.prepare(HostArgs(run), number)
        samples = answers(*replies)
        log(run, samples, number)
        given.append([part["novel"] for part in parts(samples)])
        custom_convert(run, samples)
    assert given == UNBROKEN


def test_the_newest_states_and_those_of_checkpoints_stay_and_one_that_is_not_there_is_named(tmp_path):
    for number in range(11):
        log(args(tmp_path), answers("red"), number)
        if number in (3, 6):
            (tmp_path / "run" / f"iter_{number:07d}").mkdir()
    states = sorted(path.name for path in (tmp_path / "run" / "reward_state").iterdir())
    assert states == [f"{number:07d}" for number in (3, 6, 8, 9, 10)]
    rewards.RUNS.clear()
    with pytest.raises(ConfigError, match="reward_state/0000004"):
        rewards.prepare(HostArgs(args(tmp_path)), 5)


KNN = {"MEM_IR": "knn+"}


@pytest.mark.parametrize(("settings", "named"), [
    ({"MEM_IR": "knm"}, "MEM_IR='knm'"), (KNN | {"MEM_IR_ARGS": "model=./no-such-folder"}, "no-such-folder"),
    (KNN | {"MEM_IR_ARGS": "k=0"}, "k='0'"), ({"REWARD_ARGS": "overlong_buffer=-1"}, "buffer"),
])
def test_settings_that_cannot_work_are_refused_before_anything_starts(settings, named):
    with pytest.raises(ConfigError, match=named):
        rewards.check_plugins(Config.from_mapping(settings))
