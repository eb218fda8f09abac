"""MEM_IR in the hooks: settings and what they refuse, on top of REWARD, its state from run to run, and the filter."""

from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.config import Config, ConfigError
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks import batch_reward
from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.plugins import check_plugins
from mem_agent.hooks.record import Record
from mem_agent.rewards.reward import Reward
from mem_agent.tests.helpers.samples import trajectory, turns_of

COUNTS = {"rounds": 1, "chunks": 0}


class Early(Reward):
    """A state of its own; tells ahead: 0.5 for answers that no rollout before has given."""

    def __init__(self, settings):
        super().__init__(settings)
        self.seen = set()

    def expected_parts(self, answers):
        return [{"novel": 0.5 * (answer.reply not in self.seen)} for answer in answers]

    def batch_parts(self, batch):
        parts = self.expected_parts(batch)
        self.seen |= {answer.reply for answer in batch}
        return parts

    def save(self, folder):
        (folder / "seen").write_text("\n".join(sorted(self.seen)))

    def load(self, folder):
        self.seen = set((folder / "seen").read_text().split("\n")) - {""}


@pytest.fixture(autouse=True)
def fresh():
    batch_reward._runs.clear()


KNN = {"MEM_IR": "knn+", "MEM_IR_MODEL": "hashing", "MEM_IR_ARGS": "warmup=0"}


def args(tmp_path, kind=None, **settings):
    """``settings`` come on top of ``KNN``; None takes one away."""
    own = {"REWARD": f"{__name__}:{kind.__name__}"} if kind else {}
    given = {name: value for name, value in (KNN | own | settings).items() if value is not None}
    return SimpleNamespace(mem_agent=given, save=str(tmp_path / "run"))


def answers(*replies):
    """Finished trajectories, two of a group; the task gave 1 for what begins with ``red``."""
    samples = []
    for number, reply in enumerate(replies):
        worth = float(reply.startswith("red"))
        record = {"reward_parts": {"answer": worth}, "accuracy": worth}
        samples.append(trajectory(turns_of([2]), counts=COUNTS, reward=worth, record=record, response=reply,
                                  prompt=f"Which colour has {number // 2}?", index=number, group_index=number // 2))
    return samples


def log(run, samples, number):
    extra = {}
    rollout.log_rollout(number, run, samples, extra, 1.0)
    return {name.removeprefix("rollout/memory/"): value for name, value in extra.items()}


def parts(samples):
    return [dict(Record.of(sample).reward_parts) for sample in samples]


ROLLOUTS = [("red as a rose", "blue", "green", "grey"), ("red", "blue ink", "red too", "grey"),
            ("red rose", "pink", "reddish", "blue"), ("red as a rose", "grey", "green", "blue"),
            ("rosy", "red rose", "grey dust", "red"), ("red as a rose", "blue", "red", "grey")]


# --- settings --------------------------------------------------------------------------------------------------------

NAMES = {"r1": "no", "no": "no", "memoryr": "knn", "memoryr+": "knn+", "ltree": "lexical", "entropy": "entropy"}


@pytest.mark.parametrize(("given", "read"), NAMES.items())
def test_published_names_are_read(given, read):
    assert Config.from_mapping({"MEM_IR": given}).mem_ir == read == Config(mem_ir=given).mem_ir


@pytest.mark.parametrize(("settings", "said"), [
    ({"MEM_IR": "knm"}, "MEM_IR='knm'"), ({"MEM_IR_K": "3"}, "MEM_IR_K=3"),
    (KNN | {"MEM_IR_ARGS": "windows=3"}, "windows=3"),
    (KNN | {"MEM_IR_MODEL": "./no-such-folder"}, "no such folder"),
])
def test_settings_that_cannot_work_are_refused_before_anything_starts(settings, said):
    with pytest.raises(ConfigError, match=said):
        check_plugins(Config.from_mapping(settings))


# --- on top of REWARD ------------------------------------------------------------------------------------------------


def test_parts_are_added_and_logged(tmp_path):
    run = args(tmp_path)
    for number, replies in enumerate(ROLLOUTS):
        samples = answers(*replies)
        metrics = log(run, samples, number)
        custom_convert(run, samples)
    assert all(part.keys() == {"answer", "intrinsic_exploit", "intrinsic_explore"} for part in parts(samples))
    assert [sample.reward for sample in samples] == [sum(part.values()) for part in parts(samples)]
    earned = sum(p["intrinsic_exploit"] for p in parts(samples)) / 4
    assert metrics["reward/intrinsic_exploit"] == pytest.approx(earned) and earned > 0
    assert metrics["accuracy"] == 0.5
    assert (metrics["intrinsic/success_questions"], metrics["intrinsic/failure_questions"]) == (2, 2)
    assert metrics["intrinsic/exploit_least"] < metrics["intrinsic/exploit_most"] <= 0
    assert 0 < metrics["intrinsic/share"] < 1


def test_it_is_added_to_whatever_reward_there_is_and_both_states_are_saved(tmp_path):
    run = args(tmp_path, Early)
    for number, replies in enumerate(ROLLOUTS[:3]):
        samples = answers(*replies)
        log(run, samples, number)
    assert all(part.keys() == {"answer", "novel", "intrinsic_exploit", "intrinsic_explore"} for part in parts(samples))
    folder = tmp_path / "run" / "reward_state" / "0000002"
    assert sorted(f.relative_to(folder).as_posix() for f in folder.rglob("*.*")) == ["added/episodic.npz"]
    assert (folder / "reward" / "seen").read_text().split("\n")[0] == "blue"


MODES = {
    "knn+": {},
    "sentences": {"MEM_IR": "knn", "MEM_IR_ARGS": "level=sentence"},
    "entropy": {"MEM_IR": "entropy", "MEM_IR_ARGS": None, "MEM_IR_MODEL": None},
    "lexical": {"MEM_IR": "lexical", "MEM_IR_ARGS": "measure=words", "MEM_IR_MODEL": None},
}


@pytest.mark.parametrize("settings", MODES.values(), ids=MODES)
@pytest.mark.parametrize("killed", [(3,), tuple(range(1, 6))], ids=str)
def test_a_killed_run_gives_the_rewards_of_an_unbroken_one(settings, killed, tmp_path):
    given = {}
    for name, stops in (("unbroken", ()), ("killed", killed)):
        batch_reward._runs.clear()
        given[name] = []
        for number, replies in enumerate(ROLLOUTS):
            if number in stops:
                batch_reward._runs.clear()  # as in a fresh process
            samples = answers(*replies)
            log(args(tmp_path / name, Early, **settings), samples, number)
            given[name].append(parts(samples))
    assert given["unbroken"] == given["killed"]
    assert any(value not in (0.0, 1.0) for batch in given["killed"] for part in batch for value in part.values())


# --- dynamic sampling ------------------------------------------------------------------------------------------------


def kept(run, samples):
    return [rollout.nonzero_std(run, samples[i : i + 2]) for i in range(0, len(samples), 2)]


def test_the_filter_looks_at_the_sum_it_is_told_to(tmp_path):
    """The groups: right and wrong; wrong and wrong in other words; wrong and wrong in the same words."""
    replies = ("red", "blue", "blue", "green ink", "blue", "blue")
    expected = {"reward": [True, False, False], "accuracy": [True, False, False], "total": [True, True, False]}
    for on, keeps in expected.items():
        run = args(tmp_path / on, DYNAMIC_FILTER="nonzero_std", DYNAMIC_FILTER_ON=on)
        for number, before in enumerate(ROLLOUTS[:3]):
            log(run, answers(*before, *before[:2]), number)
        samples = answers(*replies)
        assert kept(run, samples) == keeps


def test_the_total_is_what_the_rollout_then_gives(tmp_path):
    run = args(tmp_path, Early, DYNAMIC_FILTER="nonzero_std", DYNAMIC_FILTER_ON="total")
    for number, replies in enumerate(ROLLOUTS):
        samples = answers(*replies)
        groups = [samples[:2], samples[2:]]
        told = [total for group in groups for total in batch_reward.totals(HostArgs.of(run), group)]
        log(run, samples, number)
        assert told == [sample.reward for sample in samples]


def checkpoint(tmp_path, number):
    (tmp_path / "run" / f"iter_{number:07d}").mkdir(parents=True, exist_ok=True)
    (tmp_path / "run" / f"iter_{number:07d}" / ".metadata").touch()
    (tmp_path / "run" / "latest_checkpointed_iteration.txt").write_text(str(number))


def test_a_filter_that_is_asked_before_the_rollout_has_a_number_takes_the_newest_checkpoint_s_state(tmp_path):
    run = args(tmp_path, DYNAMIC_FILTER_ON="total")
    for number in range(4):
        log(run, answers(*ROLLOUTS[number]), number)
    checkpoint(tmp_path, 3)
    samples = answers(*ROLLOUTS[4])
    expected = batch_reward.totals(HostArgs.of(run), samples)
    batch_reward._runs.clear()  # another process
    assert batch_reward.totals(HostArgs.of(run), samples) == expected
    log(run, samples, 4)
    assert [sample.reward for sample in samples] == pytest.approx(expected)
