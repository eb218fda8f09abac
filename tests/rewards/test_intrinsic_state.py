"""Saved memories: they go on where they were, those of another model or mode are refused, and damage is one line."""

import pytest

from mem_agent.rewards.intrinsic.encoder import HashingEncoder
from mem_agent.rewards.intrinsic.episodic import FILE
from mem_agent.rewards.intrinsic.settings import EntropySettings, LexicalSettings
from mem_agent.rewards.intrinsic.text_reward import FILE as TEXTS
from mem_agent.rewards.intrinsic.text_reward import TextReward
from mem_agent.system.errors import ConfigError
from mem_agent.tests.helpers.intrinsic import Table, answer, episodic

BATCH = [answer(f"What is {q} + {n}?", f"It is {q + n + wrong}.", not wrong)
         for q in range(3) for n in range(2) for wrong in (0, 1)]
REWARDS = {FILE: lambda: episodic(HashingEncoder()), TEXTS: lambda: TextReward(LexicalSettings())}


def saved(tmp_path, reward):
    reward.batch_parts(BATCH)
    reward.batch_parts(BATCH[:5])
    reward.save(tmp_path)
    return reward


def refused(reward, tmp_path, file=FILE):
    with pytest.raises(ConfigError) as error:
        reward.load(tmp_path)
    assert str(error.value).startswith(str(tmp_path / file))
    return str(error.value)


def same(one, other):
    return one.batch_parts(BATCH) == other.batch_parts(BATCH) and one.metrics() == other.metrics()


@pytest.mark.parametrize(("other", "named"), [
    (lambda: episodic(Table({}, fingerprint="other")), "model="),
    (lambda: episodic(HashingEncoder(), plus=False), "mode="),
    (lambda: episodic(HashingEncoder(), level="sentence"), "level="),
    (lambda: episodic(HashingEncoder(), text="reply"), "text="),
])
def test_a_memory_of_other_settings_is_refused(other, named, tmp_path):
    saved(tmp_path, episodic(HashingEncoder()))
    assert named in refused(other(), tmp_path)


def test_texts_of_another_mode_are_refused(tmp_path):
    saved(tmp_path, TextReward(LexicalSettings()))
    assert "mode=" in refused(TextReward(EntropySettings()), tmp_path, TEXTS)
    assert "measure=" in refused(TextReward(LexicalSettings(measure="words")), tmp_path, TEXTS)


def test_limits_may_change_and_the_newest_stays(tmp_path):
    saved(tmp_path, episodic(HashingEncoder()))
    fewer = episodic(HashingEncoder(), keys=2, values=1, window=3)
    fewer.load(tmp_path)
    found = fewer.metrics()
    assert (found["intrinsic/success_questions"], found["intrinsic/success_vectors"]) == (2, 2)
    fewer.batch_parts(BATCH)


@pytest.mark.parametrize("file", REWARDS)
def test_a_file_that_is_missing_or_damaged_is_one_line_and_changes_nothing(file, tmp_path):
    one, other = REWARDS[file](), REWARDS[file]()
    refused(one, tmp_path, file)
    saved(tmp_path, REWARDS[file]())
    whole = (tmp_path / file).read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / file).write_bytes(whole[:length])
        assert "damaged" in refused(one, tmp_path, file)
    assert same(one, other)


@pytest.mark.parametrize("make", [
    lambda: episodic(HashingEncoder()), lambda: TextReward(EntropySettings()), lambda: TextReward(LexicalSettings()),
    lambda: TextReward(LexicalSettings(measure="words")),
])
def test_a_memory_goes_on_as_if_it_had_not_been_saved(make, tmp_path):
    make().save(tmp_path)
    fresh = make()
    fresh.load(tmp_path)
    assert same(fresh, make())
    unbroken, again = saved(tmp_path, make()), make()
    again.load(tmp_path)
    assert same(again, unbroken)
