"""REWARD over whole rollouts: plain numbers, one line for what is no reward, and the state between rollouts."""

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


def test_numbers_of_any_library_become_plain_ones(run):
    parts = "{'a': __import__('numpy').float32(0.5)}"
    args = run(parts, f"[{parts}] * len(batch)")
    samples = scored(args, 0)
    orjson.dumps([custom_convert(args, samples), Record.of(samples[0]).reward_parts])  # as the journal writes them


NO_PARTS = ["None", '{"a": float("nan")}']


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
