"""REWARD over whole rollouts: plain numbers, one line for what is no reward, and the state between rollouts."""

import json
import shutil
from types import SimpleNamespace

import orjson
import pytest

from mem_agent import rollout
from mem_agent.config import Config, ConfigError
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks import batch_reward
from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.record import Record
from mem_agent.tests.helpers.samples import trajectory, turns_of

REWARDS = '''
import json
from mem_agent.rewards.reward import Reward

class Own(Reward):
    """Counts what it has seen; a part tells how much that was before the batch."""
    seen = 0
    noted = None
    async def parts(self, answer):
        self.noted = answer.reply
        return PARTS
    def batch_parts(self, batch):
        given = [{"before": self.seen, "noted": self.noted is not None} for _ in batch]
        self.seen += len(batch)
        return BATCH
    def save(self, folder): (folder / "seen.json").write_text(json.dumps(self.seen))
    def load(self, folder): self.seen = json.loads((folder / "seen.json").read_text())
'''


@pytest.fixture
def run(tmp_path):
    """The arguments of a run whose reward is ``Own``, in a process of its own."""

    def start(parts="answer.parts", batch="given", **settings):
        file = tmp_path / f"own{abs(hash((parts, batch)))}.py"
        file.write_text(REWARDS.replace("PARTS", parts).replace("BATCH", batch))
        batch_reward._runs.clear()
        config = Config(reward=f"{file}:Own", save_path=str(tmp_path / "run"), **settings)
        return SimpleNamespace(mem_agent=config, save=config.save_path)

    return start


def batch(count=2):
    return [trajectory(turns_of([2]), reward=None, index=i, group_index=0, response="\\boxed{a}", prompt="q?",
                       metadata={"ground_truth": ["a"]}) for i in range(count)]


async def score(args, samples):
    for sample in samples:
        sample.reward = await rollout.reward_func(args, sample)


def scored(args, number, samples=None):
    """The named parts of the first trajectory of rollout ``number``."""
    import asyncio

    samples = samples or batch()
    asyncio.run(score(args, samples))
    batch_reward.apply(HostArgs.of(args), samples, number)
    return samples


def before(samples):
    return Record.of(samples[0]).reward_parts["before"]


def test_what_a_reward_noted_of_an_answer_is_there_for_its_batch(run):
    assert Record.of(scored(run(), 0)[0]).reward_parts["noted"] == 1.0
    args = run()  # continued
    assert Record.of(scored(args, 1)[0]).reward_parts == {"answer": 1.0, "before": 2.0, "noted": 1.0}


def test_state_is_that_before_the_rollout_in_a_continued_and_in_a_set_back_run(run):
    args = run()
    assert [before(scored(args, number)) for number in range(4)] == [0, 2, 4, 6]
    assert before(scored(run(), 4)) == 8
    assert before(scored(args, 4)) == 8, "killed after the state was saved, before the rollout was"
    assert before(scored(run(), 4)) == 8


def test_a_rollout_is_scored_once_however_often_it_is_converted(run):
    args = run()
    samples = scored(args, 0)
    rewards = [custom_convert(args, samples)["raw_reward"] for _ in range(2)]
    assert rewards == [[2.0, 2.0]] * 2 and before(scored(args, 1)) == 2


NUMBERS = ["__import__('numpy').float32(0.5)", "__import__('torch').tensor(0.5)", "True", "1"]


@pytest.mark.parametrize("name", ["'a'", "3"])
@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_of_any_library_become_plain_ones(run, number, name):
    parts = f"{{{name}: {number}}}"
    args = run(parts, f"[{parts}] * len(batch)")
    samples = scored(args, 0)
    orjson.dumps([custom_convert(args, samples), Record.of(samples[0]).reward_parts])  # as the journal writes them
    assert {type(value) for value in Record.of(samples[0]).reward_parts.values()} == {float}
    assert {type(name) for name in Record.of(samples[0]).reward_parts} == {str}


NO_PARTS = ["None", "0.5", '{"a": None}', '{"a": "high"}', '{"a": float("nan")}', '{"a": float("inf")}']


@pytest.mark.parametrize("parts", NO_PARTS)
def test_an_answer_that_earns_no_number_fails_alone(run, parts):
    samples = batch()
    args = run(f'({parts}) if answer.group == "bad" else answer.parts')
    samples[0].group_index = "bad"
    scored(args, 0, samples)
    assert [s.status.value for s in samples] == ["failed", "completed"] and samples[0].reward == 0.0
    assert "expected" in Record.of(samples[0]).failure_message


@pytest.mark.parametrize("given", [*(f"[{parts}] * len(batch)" for parts in NO_PARTS), "given[:1]", "None"])
def test_a_batch_without_a_number_for_each_answer_ends_in_one_line(run, given):
    with pytest.raises(ConfigError, match=r"REWARD=.*batch_parts") as error:
        scored(run(batch=given), 0)
    assert "\n" not in str(error.value)


def test_the_state_that_is_gone_is_named(run):
    args = run()
    scored(args, 0)
    shutil.rmtree(f"{args.save}/reward_state")
    with pytest.raises(ConfigError, match=r"the state of REWARD=.* before rollout 1 is not there"):
        scored(run(), 1)


def test_a_host_that_knows_the_number_learns_before_it_samples_that_the_state_is_gone(run):
    args = run()
    batch_reward.prepare(HostArgs.of(args), 0)
    assert before(scored(args, 0)) == 0
    args = run()
    batch_reward.prepare(HostArgs.of(args), 1)
    assert batch_reward.reward_for(HostArgs.of(args)).seen == 2 and before(scored(args, 1)) == 2
    with pytest.raises(ConfigError, match=r"before rollout 7 is not there"):
        batch_reward.prepare(HostArgs.of(run()), 7)


def test_a_state_that_a_checkpoint_needs_is_kept(run, tmp_path):
    args = run(save_interval=3)
    for number in range(8):
        scored(args, number)
    kept = sorted(int(folder.name) for folder in (tmp_path / "run" / "reward_state").iterdir())
    assert kept == [2, 5, 6, 7]
    assert json.loads((tmp_path / "run" / "reward_state" / "0000005" / "seen.json").read_text()) == 12
