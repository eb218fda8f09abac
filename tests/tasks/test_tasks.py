r"""Tasks: what an answer is worth and measures; a row's own task; and what no run may start with."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.config import Config, ConfigError
from mem_agent.hooks.rewards import check_plugins
from mem_agent.hooks.sample import Record, Sample
from mem_agent.tasks import TASKS, TaskRow, load_task
from mem_agent.tests.helpers.samples import trajectory, turns_of


def measured(task, reply, row):
    return task.metrics(task.read_answer(reply), reply, row)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_of_the_table_can_be_made_and_has_what_tables_need(name):
    task = load_task(name)
    row = TaskRow("q?", ("18",), {"numbers": [18], "target": 18, "shown": 3, "gold": [1]})
    charged = -1.0 if name == "rank_sessions" else 0.0  # what is no ranking costs
    for reply in ("", "no box"):
        assert set(task.reward(reply, row).values()) == {charged}
        assert set(measured(task, reply, row).values()) == {0.0} and task.headline in measured(task, reply, row)
    reply = task.solution(row) or "\\boxed{18}"
    assert task.accuracy(task.reward(reply, row)) == 1.0 == measured(task, reply, row)[task.headline]


REPLIES = [
    # task, reply, metadata -> reward, headline
    ("qa", "\\boxed{the red}", {}, 1.0, 1.0),
    ("qa", "\\boxed{a red key}", {}, 0.0, 1.0),
    ("qa", "red", {}, 0.0, 0.0),
    ("ruler", "\\boxed{red}", {}, 0.5, 0.5),
    ("ruler", "\\boxed{red}", {"metric": "string_match_part"}, 1.0, 1.0),
    # RULER's score is of the whole reply, which training does not pay for.
    ("ruler", "red, green", {"metric": "string_match_part"}, 0.0, 1.0),
    ("ruler", "red, green; no: \\boxed{red}", {}, 0.5, 1.0),
]


@pytest.mark.parametrize(("name", "reply", "metadata", "reward", "headline"), REPLIES)
def test_rewards_and_metrics_by_hand(name, reply, metadata, reward, headline):
    task, row = load_task(name), TaskRow("q?", ("red", "green"), metadata)
    assert task.reward(reply, row) == {"answer": reward} and measured(task, reply, row)[task.headline] == headline


@pytest.mark.parametrize(("name", "args", "answer"), [
    ("qa", "", "blue"), ("qa", "answer=the_answer_is", "red"), ("qa", "answer=whole", ...), ("ruler", "", ...),
    ("ruler", "answer=boxed", "blue"),
])
def test_how_evaluation_reads_an_answer_is_a_setting(name, args, answer):
    task, reply = load_task(name, args), "it is \\boxed{blue}: the answer is red"
    assert task.read_answer(reply) == (reply if answer is ... else answer) and task.reads_whole == (answer is ...)
    with pytest.raises(ConfigError, match="TASK_ARGS"):
        load_task(name, "answer=last")


# --- a user's ------------------------------------------------------------------------------------------------------

OWN = """
from collections.abc import Mapping
from dataclasses import dataclass
from mem_agent.tasks import Task

@dataclass(frozen=True)
class Settings:
    worth: float = 0.25

class Length(Task):
    Settings = Settings
    needs_document = False
    headline = "letters"
    def read_answer(self, reply): return reply
    def reward(self, reply, row): return {"there": self.settings.worth, "long": len(reply) / 10}
    def metrics(self, answer, reply, row): return {"letters": float(len(answer))}

class Raises(Length):
    def reward(self, reply, row): return {"answer": 1 / len(row.golds)}

class Formal(Length):
    # Which of its parts is the answer, and which thread asks.
    outcome, slow = "there", True
    def reward(self, reply, row):
        import threading
        main = threading.current_thread() is threading.main_thread()
        return {"there": self.settings.worth, "form": 0.5, "main": float(main)}

class Half(Task):
    headline = "letters"
    def read_answer(self, reply): return reply
    def reward(self, reply, row): return {}
"""


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def ended(reply, **metadata):
    return trajectory(turns_of([2]), reward=None, response=reply, prompt="q?", counts={"rounds": 1, "chunks": 1},
                      metadata={"ground_truth": ["red"]} | metadata)


def rewarded(sample, **config):
    return asyncio.run(rollout.reward_func(SimpleNamespace(mem_agent=config), sample))


def test_a_row_s_own_task_wins_over_the_runs(own):
    mixed = {"TASK": f"{own}:Length", "TASK_ARGS": "worth=2"}
    assert rewarded(ended("four"), **mixed) == pytest.approx(2.4)
    assert rewarded(ended("\\boxed{red}", task="qa"), **mixed) == 1.0
    done = ended("four", task="Length")
    assert rewarded(done, TASK=f"qa, {own}:Length") == pytest.approx(0.65)  # TASK_ARGS are of TASK's first
    assert done.train_metadata["reward_parts"] == {"there": 0.25, "long": 0.4}
    assert done.train_metadata["accuracy"] == pytest.approx(0.65)


def test_accuracy_is_the_part_that_a_task_calls_its_outcome_and_a_slow_task_holds_nobody_up(own):
    done = ended("four")
    assert rewarded(done, TASK=f"{own}:Formal") == 0.75
    assert done.train_metadata["reward_parts"] == {"there": 0.25, "form": 0.5, "main": 0.0}
    assert done.train_metadata["accuracy"] == 0.25


def test_a_row_gets_no_code_imported_that_the_user_has_not_named(own):
    done = ended("four", task=f"{own}:Length")
    assert rewarded(done, TASK="qa") == 0.0 and done.train_metadata["failure"] == "unknown_task"
    assert rewarded(ended("four", task=f"{own}:Length"), TASK=f"qa,{own}:Length") == pytest.approx(0.65)


UNSCORED = [
    ({"task": "ruler", "metric": "nope"}, "internal", "'nope'"),
    ({"task": "Raises", "ground_truth": []}, "internal", "ZeroDivisionError"),
    ({"task": "nope"}, "unknown_task", "TASK='nope': allowed"),
]


@pytest.mark.parametrize("metadata,failure,message", UNSCORED)
def test_what_cannot_be_scored_fails_alone(metadata, failure, message, own):
    bad, good = ended("\\boxed{red}", **metadata), ended("\\boxed{red}")
    assert rewarded([bad, good], TASK=f"qa,{own}:Raises") == [0.0, 1.0]
    assert bad.status is Sample.Status.FAILED and bad.reward == 0.0 and bad.remove_sample
    assert bad.loss_mask == [0] * bad.response_length and good.status is Sample.Status.COMPLETED
    record = Record.of(bad)
    assert (record.outcome, record.failure) == ("failed", failure) and message in record.failure_message


# --- before anything starts ------------------------------------------------------------------------------------------

REFUSED = [
    ({"TASK": "qa,nope"}, "TASK='nope'"),
    ({"TASK": "{own}:Half"}, "metrics"),
    ({"TASK": "math", "TASK_ARGS": "mode=fuzzy"}, "TASK_ARGS: mode='fuzzy'"),
    ({"REWARD": "{own}:Length"}, "Length"),
]


@pytest.mark.parametrize(("changes", "named"), REFUSED)
def test_a_bad_class_is_refused_before_anything_starts(changes, named, own):
    with pytest.raises(ConfigError, match=named):
        check_plugins(Config.from_mapping({name: value.replace("{own}", str(own)) for name, value in changes.items()}))


@pytest.mark.parametrize(("answer", "gold"), [
    ("1939-1945", "1939–1945"), ("《红楼梦》", "红楼梦"), ("巴黎。", "巴黎"), ("Cafe\u0301", "Café"),
    ("« oui »", "oui"), ("\\text{Paris}", "Paris"), ("3−2", "3-2"), ("l＇eau", "l'eau"),
])
def test_the_headline_agrees_with_the_reward_on_what_is_the_same_answer(answer, gold):
    task, row = load_task("qa"), TaskRow("?", (gold,))
    assert task.reward(f"\\boxed{{{answer}}}", row) == {"answer": 1.0}
    assert task.metrics(answer, "", row)["sub_em"] == 1.0
