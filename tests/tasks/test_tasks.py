r"""Tasks: what an answer is worth and measures; a row's own task; and what no run may start with."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent import rollout
from mem_agent.config import Config, ConfigError
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.run import check
from mem_agent.hooks.plugins import check_plugins
from mem_agent.hooks.record import Record
from mem_agent.hooks.sample import Sample
from mem_agent.hooks.task_row import row_of
from mem_agent.launch import plan as planning
from mem_agent.tasks import TASKS, TaskRow, load_task
from mem_agent.tests.helpers.evaluations import make_model, write_data
from mem_agent.tests.helpers.fake_host import settings
from mem_agent.tests.helpers.samples import foreign, trajectory, turns_of
from mem_agent.training.train import checked

GOLDS = [
    ("red",), ("The Beatles",), ("Ann Lee", "Lee"), ("3.14",), ("a",), ("yes",), ("New York, NY",), ("C++",), ("-5%",),
    ("r\u00e9sum\u00e9",), ("7914", "2250"), ("f(\\{1, 2\\}) = {3}",), ("who? me!",),
]
ALL_OF = {"ruler": ", ".join}
"""How a reply names golds: a task of RULER wants all of them, another any."""


def boxed(task, golds):
    return f"so it is \\boxed{{{ALL_OF.get(task, lambda found: found[-1])(golds)}}}."


BOXED = ["qa", "ruler"]
"""Tasks whose whole reward is what the last box is worth."""


@pytest.mark.parametrize("golds", GOLDS)
@pytest.mark.parametrize("name", BOXED)
def test_every_gold_is_worth_one_and_nothing_is_worth_nothing(name, golds):
    task, row = load_task(name), TaskRow("q?", golds)
    assert task.reward(boxed(name, golds), row) == {"answer": 1.0}
    assert task.metrics(boxed(name, golds), row)[task.headline] == 1.0
    for nothing in ("", "no box", "\\boxed{}", "\\boxed{cut"):
        assert set(task.reward(nothing, row).values()) == {0.0} == set(task.metrics(nothing, row).values())
        assert task.read_answer(nothing) == (nothing if task.reads_whole else "")


@pytest.mark.parametrize("name", TASKS)
def test_every_task_of_the_table_can_be_made_and_has_what_tables_need(name):
    task = load_task(name)
    row = TaskRow("q?", ("18",), {"numbers": [18], "target": 18, "shown": 3, "gold": [1]})
    charged = -1.0 if name == "rank_sessions" else 0.0  # what is no ranking costs
    for reply in ("", "no box"):
        assert set(task.reward(reply, row).values()) == {charged} and set(task.metrics(reply, row).values()) == {0.0}
        assert task.headline in task.metrics(reply, row) and task.accuracy(task.reward(reply, row)) == 0.0
    reply = task.solution(row) or "\\boxed{18}"
    assert task.accuracy(task.reward(reply, row)) == 1.0 == task.metrics(reply, row)[task.headline]


@pytest.mark.parametrize("name", BOXED)
def test_a_row_without_golds_earns_nothing_and_raises_nothing(name):
    assert load_task(name).reward("\\boxed{red}", TaskRow("q?", ())) == {"answer": 0.0}


REPLIES = [
    # task, reply, metadata -> reward, headline
    ("qa", "\\boxed{the red}", {}, 1.0, 1.0),
    ("qa", "\\boxed{a red key}", {}, 0.0, 1.0),
    ("qa", "\\boxed{blue}, no: \\boxed{red}", {}, 1.0, 1.0),
    ("qa", "red", {}, 0.0, 0.0),
    ("ruler", "\\boxed{red}", {}, 0.5, 0.5),
    ("ruler", "\\boxed{GREEN and red}", {"metric": "string_match_all"}, 1.0, 1.0),
    ("ruler", "\\boxed{red}", {"metric": "string_match_part"}, 1.0, 1.0),
    # RULER's score is of the whole reply, which training does not pay for.
    ("ruler", "red, green", {"metric": "string_match_part"}, 0.0, 1.0),
    ("ruler", "red, green; no: \\boxed{red}", {}, 0.5, 1.0),
]


@pytest.mark.parametrize("name,reply,metadata,reward,headline", REPLIES)
def test_rewards_and_metrics_by_hand(name, reply, metadata, reward, headline):
    task, row = load_task(name), TaskRow("q?", ("red", "green"), metadata)
    assert task.reward(reply, row) == {"answer": reward} and task.metrics(reply, row)[task.headline] == headline


def test_question_answering_measures_four_ways():
    row = TaskRow("q?", ("Mumbai",))
    measured = load_task("qa").metrics("\\boxed{Mumbai, India}", row)
    assert measured == {"em": 0.0, "f1": pytest.approx(2 / 3), "sub_em": 1.0, "sub_em_legacy": 1.0}


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
    def metrics(self, reply, row): return {"letters": float(len(reply))}

class Raises(Length):
    def reward(self, reply, row): return {"answer": 1 / len(row.golds)}

class Endless(Length):
    def reward(self, reply, row): return {"answer": float("nan")}

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
    return trajectory(turns_of([2]), reward=None, response=reply, prompt="q?",
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


def test_what_led_to_an_answer_and_what_would_have_been_right():
    task = load_task("qa")
    assert task.reasoning("so it is \\boxed{red}") == "so it is \\boxed{red}"
    assert task.solution(TaskRow("q?", ("red", "blue"))) == "\\boxed{red}" and task.solution(TaskRow("q?", ())) == ""
    assert task.solution(TaskRow("q?", ("red",), {"solution": "It is \\boxed{red}"})) == "It is \\boxed{red}"


def test_a_row_gets_no_code_imported_that_the_user_has_not_named(own):
    done = ended("four", task=f"{own}:Length")
    assert rewarded(done, TASK="qa") == 0.0 and done.train_metadata["failure"] == "unknown_task"
    assert rewarded(ended("four", task=f"{own}:Length"), TASK=f"qa,{own}:Length") == pytest.approx(0.65)


def test_a_row_is_what_tasks_see_without_its_document():
    done = ended("", context="long", context_id="x", level="hard")
    assert row_of(done) == TaskRow("q?", ("red",), {"ground_truth": ["red"], "level": "hard"})


@pytest.mark.parametrize("name", ["nope", "no.such:Thing", 7], ids=str)
def test_an_unknown_task_of_a_row_is_a_counted_failure(name):
    row = Sample(prompt="q?", metadata={"context": "c", "ground_truth": ["red"], "task": name})
    done = asyncio.run(rollout.generate(SimpleNamespace(mem_agent={}), row, {}))
    assert done.status is Sample.Status.FAILED and done.reward == 0.0 and done.remove_sample
    assert done.train_metadata["failure"] == "unknown_task" and "TASK=" in done.train_metadata["failure_message"]
    assert rollout.rollout_metrics([done])["failed/unknown_task"] == 1


def test_an_unknown_task_of_the_run_is_no_failure_but_an_error():
    with pytest.raises(ConfigError, match="TASK='nope': allowed: qa, ruler"):
        asyncio.run(rollout.generate(SimpleNamespace(mem_agent={"TASK": "nope"}), Sample(prompt="q?"), {}))


UNSCORED = [
    ({"task": "ruler", "metric": "nope"}, "internal", "UnknownMetric: no RULER metric 'nope'"),
    ({"task": "Raises", "ground_truth": []}, "internal", "ZeroDivisionError"),
    ({"task": "Endless"}, "internal", "{'answer': nan}, expected finite numbers"),
    ({"task": "nope"}, "unknown_task", "TASK='nope': allowed"),
]


@pytest.mark.parametrize("metadata,failure,message", UNSCORED)
@pytest.mark.parametrize("of_another_hook", [False, True])
def test_what_cannot_be_scored_fails_alone(metadata, failure, message, of_another_hook, own):
    bad, good = ended("\\boxed{red}", **metadata), ended("\\boxed{red}")
    if of_another_hook:
        bad = foreign(response="\\boxed{red}", metadata=bad.metadata)
    assert rewarded([bad, good], TASK=f"qa,{own}:Raises,{own}:Endless") == [0.0, 1.0]
    assert bad.status is Sample.Status.FAILED and bad.reward == 0.0 and bad.remove_sample
    assert bad.loss_mask == [0] * bad.response_length and good.status is Sample.Status.COMPLETED
    record = Record.of(bad)
    if not of_another_hook:
        assert (record.outcome, record.failure) == ("failed", failure) and message in record.failure_message
        assert len(record.turns) == 1 and record.reward_parts == {}


# --- before anything starts ------------------------------------------------------------------------------------------

REFUSED = [
    ({"AGENT": "nope"}, "AGENT='nope'"),
    ({"TASK": "qa,nope"}, "TASK='nope'"),
    ({"TASK": "{own}:Half"}, "Half has no method metrics"),
    ({"TASK": "math", "TASK_ARGS": "mode=fuzzy"}, "TASK_ARGS: mode='fuzzy'"),
    ({"REWARD": "{own}:Length"}, "Length does not derive from"),
]


def doors(tmp_path, env, output):
    """Every way into a run, as far as it goes before anything is started."""
    write_data(tmp_path)
    model = make_model(tmp_path / "small", positions=8192)
    local = env | {"HF_CKPT": str(model), "HOST": "local", "HOST_ROOT": ""}
    return {
        "plugins": lambda: check_plugins(Config.from_env(env)),
        "train": lambda: checked(Config.from_env(local)),
        "launch": lambda: planning.make_plan(Config.from_env(env)),
        "evaluation": lambda: check(tmp_path, ["50"], model, Config.from_env(local), output),
    }


@pytest.mark.parametrize("changes,message", REFUSED)
def test_every_door_refuses_a_bad_class_in_one_line(changes, message, own, tmp_path):
    changes = {name: value.replace("{own}", str(own)) for name, value in changes.items()}
    for enter in doors(tmp_path, settings(tmp_path, **changes), tmp_path / "out").values():
        with pytest.raises(ConfigError) as error:
            enter()
        assert message in str(error.value)
    assert not (tmp_path / "out").exists()


def test_names_of_files_reach_workers_absolute(own, tmp_path, monkeypatch):
    env = settings(tmp_path, TASK="own.py:Length, qa", AGENT="memagent", REWARD="task")
    monkeypatch.chdir(tmp_path)
    config = planning.make_plan(Config.from_env(env)).config
    assert (config.task, config.agent, config.reward) == (f"{own}:Length,qa", "memagent", "task")
    (tmp_path / "more.py").write_text(
        "from mem_agent.agents.memagent import MemAgent\nfrom mem_agent.rewards.reward import Reward\n"
        "class A(MemAgent): pass\nclass R(Reward): pass\n"
    )
    config = planning.make_plan(Config.from_env(env | {"AGENT": "more.py:A", "REWARD": "more.py:R"})).config
    assert (config.agent, config.reward) == (f"{tmp_path}/more.py:A", f"{tmp_path}/more.py:R")


def test_an_evaluation_file_with_an_unknown_task_is_refused_before_anything_is_asked(tmp_path):
    write_data(tmp_path, task="nope")
    model = make_model(tmp_path / "small", positions=8192)
    with pytest.raises(EvalError, match=r"eval_50\.json: the entry with the index 2 names its task: TASK='nope'"):
        check(tmp_path, ["50"], model, Config(), tmp_path / "out")


@pytest.mark.parametrize("style,earned", [("answer", 1.0), ("published", 0.0), ("published_f1", 2 / 3)])
def test_the_reward_is_of_the_chosen_style_and_evaluation_is_not(style, earned):
    task, row = load_task("qa", "", style), TaskRow("q?", ("the Beatles",))
    assert task.reward("\\boxed{Beatles}", row) == {"answer": earned}
    assert task.metrics("\\boxed{Beatles}", row)["em"] == 1.0
    assert load_task("qa").reward("\\boxed{Beatles}", row) == {"answer": 1.0}  # another task, not this one changed


def test_a_style_is_refused_where_no_task_has_it():
    check_plugins(Config(task="ruler,qa", mem_reward="published"))
    with pytest.raises(ConfigError, match=r"^MEM_REWARD='published': TASK='ruler' rewards in a way of its own"):
        check_plugins(Config(task="ruler", mem_reward="published"))
