r"""Tasks: what an answer is worth and measures; a row's own task; and what no run may start with."""

import asyncio
from math import log2
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
    row = TaskRow("q?", ("office" if name == "babilong" else "18",),
                  {"numbers": [18], "target": 18, "shown": 3, "gold": [1], "babi": "qa1"})
    charged = -1.0 if name == "rank_sessions" else 0.0  # what is no ranking costs
    for reply in ("", "no box"):
        assert set(task.reward(reply, row).values()) == {charged}
        assert set(measured(task, reply, row).values()) == {0.0} and task.headline in measured(task, reply, row)
    reply = task.solution(row) or "\\boxed{18}"
    assert task.accuracy(task.reward(reply, row)) == 1.0 == measured(task, reply, row)[task.headline]


@pytest.mark.parametrize(("name", "reply", "metadata", "reward", "headline"), [
    ("qa", "\\boxed{the red}", {}, 1.0, 1.0), ("qa", "\\boxed{a red key}", {}, 0.0, 1.0), ("qa", "red", {}, 0.0, 0.0),
    ("ruler", "\\boxed{red}", {}, 0.5, 0.5), ("ruler", "\\boxed{red}", {"metric": "string_match_part"}, 1.0, 1.0),
    # RULER's score is of the whole reply, which training does not pay for.
    ("ruler", "red, green", {"metric": "string_match_part"}, 0.0, 1.0),
    ("ruler", "red, green; no: \\boxed{red}", {}, 0.5, 1.0),
])
def test_rewards_and_metrics_by_hand(name, reply, metadata, reward, headline):
    task, row = load_task(name), TaskRow("q?", ("red", "green"), metadata)
    assert task.reward(reply, row) == {"answer": reward} and measured(task, reply, row)[task.headline] == headline


@pytest.mark.parametrize(("name", "args", "answer"), [
    ("qa", "", "blue"), ("qa", "answer=the_answer_is", "red"), ("ruler", "", ...), ("ruler", "answer=boxed", "blue"),
])
def test_how_evaluation_reads_an_answer_is_a_setting(name, args, answer):
    task, reply = load_task(name, args), "it is \\boxed{blue}: the answer is red"
    assert task.read_answer(reply) == (reply if answer is ... else answer) and task.reads_whole == (answer is ...)


# --- rank_sessions ---------------------------------------------------------------------------------------------------
ROW = TaskRow("rank them", (), {"shown": 12, "gold": [3, 7]})
NDCG = (1 + 1 / log2(4)) / (1 + 1 / log2(3))
VALID, WORST = "<ranking>7,0,3,1,2,4,5,6,8,9</ranking>", "<ranking>0,1,2,4,5,6,8,9,10,11</ranking>"


def test_a_valid_ranking_is_worth_its_ndcg_and_the_last_one_counts():
    task = load_task("rank_sessions")
    expected = {"ndcg@1": 1, "ndcg@10": NDCG, "recall@1": 0.5, "recall@5": 1, "mrr": 1, "valid": 1}
    for reply in (VALID, f"I will write <ranking>...</ranking> now: {VALID}", f"{WORST} No: {VALID}"):
        assert task.reward(reply, ROW) == {"ranking": pytest.approx(NDCG)} and not task.malformed(reply, ROW)
        assert {name: measured(task, reply, ROW)[name] for name in expected} == pytest.approx(expected)
    assert task.reward(WORST, ROW) == {"ranking": 0.0}  # every valid ranking is worth more than any other reply
    broken = "<ranking>0, 7, 7, 99"
    assert task.reward(broken, ROW) == {"format": -1.0} and task.malformed(broken, ROW)
    found = measured(task, broken, ROW)  # of what can be used
    assert (found["valid"], found["mrr"], found["recall@5"]) == (0.0, 0.5, 0.5)


# --- a user's --------------------------------------------------------------------------------------------------------
OWN = """
import threading
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

class Formal(Length):
    outcome, slow = "there", True
    def reward(self, reply, row):
        return {"there": self.settings.worth, "main": float(threading.current_thread() is threading.main_thread())}
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path / "own.py"


def ended(reply, **metadata):
    return trajectory(turns_of([2]), reward=None, response=reply, prompt="q?", counts={"rounds": 1, "chunks": 1},
                      metadata={"ground_truth": ["red"]} | metadata)


def rewarded(sample, **config):
    return asyncio.run(rollout.reward_func(SimpleNamespace(mem_agent=config), sample))


def test_a_rows_own_task_wins_over_the_runs(own):
    mixed = {"TASK": f"{own}:Length", "TASK_ARGS": "worth=2"}
    assert rewarded(ended("four"), **mixed) == pytest.approx(2.4)
    assert rewarded(ended("\\boxed{red}", task="qa"), **mixed) == 1.0
    done = ended("four", task="Length")
    assert rewarded(done, TASK=f"qa, {own}:Length") == pytest.approx(0.65)  # TASK_ARGS are of TASK's first
    assert done.train_metadata["accuracy"] == pytest.approx(0.65)


def test_accuracy_is_the_part_that_a_task_calls_its_outcome_and_a_slow_task_holds_nobody_up(own):
    done = ended("four")
    assert rewarded(done, TASK=f"{own}:Formal", TASK_ARGS="worth=0.5") == 0.5
    assert done.train_metadata["reward_parts"] == {"there": 0.5, "main": 0.0}
    assert done.train_metadata["accuracy"] == 0.5


@pytest.mark.parametrize(("task", "failure", "message"), [
    ("ruler", "internal", "'nope'"), ("nope", "unknown_task", "TASK='nope': allowed"),
    ("{own}:Length", "unknown_task", "own.py"),  # a row gets no code imported that the user has not named
])
def test_what_cannot_be_scored_fails_alone(task, failure, message, own):
    bad = ended("\\boxed{red}", task=task.replace("{own}", str(own)), metric="nope")
    good = ended("\\boxed{red}")
    assert rewarded([bad, good], TASK="qa") == [0.0, 1.0]
    assert bad.status is Sample.Status.FAILED and bad.reward == 0.0 and bad.remove_sample
    assert bad.loss_mask == [0] * bad.response_length and good.status is Sample.Status.COMPLETED
    assert Record.of(bad).failure == failure and message in Record.of(bad).failure_message


@pytest.mark.parametrize(("changes", "named"), [
    ({"TASK": "qa,nope"}, "TASK='nope'"), ({"TASK": "math", "TASK_ARGS": "mode=fuzzy"}, "TASK_ARGS: mode='fuzzy'"),
    ({"REWARD": "{own}:Length"}, "Length"),
])
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
