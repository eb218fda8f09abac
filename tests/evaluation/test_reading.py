"""EVAL_ANSWER: how answers are read in every mode, and which of a row's means are used with it."""

import json

import pytest

from mem_agent.config import Config
from mem_agent.evaluation.questions import EvalQuestion
from mem_agent.evaluation.reading import as_asked, read
from mem_agent.evaluation.results import read_rows
from mem_agent.tasks import TaskRow, load_task
from mem_agent.tests.helpers.evaluations import encode, entry, evaluate, make_model, turns_asked
from mem_agent.tests.helpers.fake_router import FakeRouter
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

REPLY = "blue \\boxed{red}, so the answer is **green**."
OWN = """
from mem_agent.tasks import Task
from mem_agent.tasks.qa import QuestionAnswering

class Length(Task):
    headline = "letters"
    def read_answer(self, reply): return reply[:1]
    def reward(self, reply, row): return {}
    def metrics(self, reply, row): return {"letters": float(len(reply))}

class Twice(QuestionAnswering):
    def metrics(self, reply, row): return {"sub_em": 2 * super().metrics(reply, row)["sub_em"]}
"""
# EVAL_ANSWER, task, golds -> the answer, the headline
READ = [
    ("auto", "qa", "red", "red", 1.0),
    ("boxed", "qa", "green", "red", 0.0),
    ("the_answer_is", "qa", "green", "green", 1.0),
    ("the_answer_is", "qa", "red", "green", 0.0),
    ("whole", "qa", "blue", REPLY, 1.0),
    ("auto", "ruler", "blue", REPLY, 1.0),
    ("whole", "ruler", "blue", REPLY, 1.0),
    ("boxed", "ruler", "blue", "red", 0.0),
    ("boxed", "ruler", "red", "red", 1.0),
    ("the_answer_is", "ruler", "green", "green", 1.0),
    ("the_answer_is", "ruler", "red", "green", 0.0),
    ("auto", "{own}:Length", "red", "b", float(len(REPLY))),
    ("boxed", "{own}:Length", "red", "red", 3.0),
    ("the_answer_is", "{own}:Length", "red", "green", 5.0),
    ("auto", "{own}:Twice", "red", "red", 2.0),
    ("the_answer_is", "{own}:Twice", "green", "green", 2.0),
]


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return f"{tmp_path}/own.py"


@pytest.mark.parametrize("how,name,gold,answer,headline", READ)
def test_an_answer_is_read_as_the_setting_says(how, name, gold, answer, headline, own):
    task = load_task(name.format(own=own))
    found, metrics = read(task, REPLY, TaskRow("q?", (gold,)), Config(eval_answer=how))
    assert (found, metrics[task.headline]) == (answer, headline)
    again = task.read_answer(REPLY), task.metrics(REPLY, TaskRow("q?", (gold,)))
    assert again == read(task, REPLY, TaskRow("q?", (gold,)), Config())  # the shared task stays as it was


@pytest.mark.parametrize("how", ["boxed", "the_answer_is"])
@pytest.mark.parametrize("name", ["qa", "ruler"])
def test_a_reply_without_the_form_is_a_wrong_answer(how, name):
    answer, metrics = read(load_task(name), "red", TaskRow("q?", ("red",)), Config(eval_answer=how))
    assert answer == "" and set(metrics.values()) == {0.0}


def test_qa_tasks_of_ruler_are_also_measured_against_the_first_gold():
    """As ruler_general.py does: containment either way round, of the first gold alone."""
    task = load_task("ruler")
    row = TaskRow("q?", ("in 1990", "1990"), {"metric": "string_match_part"})
    for answer, ruler, first in (("1990", 1.0, 1.0), ("1990 or so", 1.0, 0.0), ("in 1990 or so", 1.0, 1.0)):
        found = read(task, f"the answer is {answer}", row, Config(eval_answer="the_answer_is"))[1]
        assert found == {"ruler": ruler, "sub_em_first_gold": first}
    assert set(read(task, "1990", TaskRow("q?", ("1990",)), Config())[1]) == {"ruler"}


QUESTION = EvalQuestion("vt_8192", "0", "Which?", ("A",), "vt", "string_match_all", "They are:", "Solved.", 30)
USED = [
    # EVAL_ANSWER, task, whether the model thinks first -> prefix, example, tokens
    ("auto", "ruler", False, ("They are:", "Solved.", 30)),
    ("whole", "qa", False, ("They are:", "Solved.", 30)),
    ("auto", "ruler", True, ("", "Solved.", 0)),
    ("boxed", "ruler", False, ("", "", 0)),
    ("the_answer_is", "ruler", False, ("", "", 0)),
    ("auto", "qa", False, ("", "", 0)),
]


@pytest.mark.parametrize("how,name,thinks,used", USED)
def test_what_of_a_row_is_used(how, name, thinks, used):
    asked = as_asked(QUESTION, load_task(name), Config(eval_answer=how), thinks=thinks)
    assert (asked.answer_prefix, asked.example, asked.tokens_to_generate) == used


ROW = {"answers": ["red", "blue"], "metric": "string_match_all", "task": "vt", "context": "The key is red.",
       "input": "Which?", "answer_prefix": "They are:", "example": "Solved: green.\n", "tokens_to_generate": 3}


def last_turn(tmp_path, reply="red", **settings):
    """The row of one question of RULER, and what its last turn was asked."""
    (tmp_path / "eval_vt_8192.json").write_text(json.dumps([entry(0, **ROW)]))
    router = FakeRouter(default=encode(reply))
    out = evaluate(tmp_path, make_model(tmp_path / "model"), router, ("vt_8192",), **settings)
    (row,) = read_rows(out, "vt_8192")
    assert row.failure is None
    shown = [make_tokenizer().decode(r["token_ids"]) for r in turns_asked(router)]
    return row, shown, turns_asked(router)[-1]["sampling_params"]["max_tokens"]


@pytest.mark.parametrize("mode", ["recurrent", "direct", "rag"])
def test_ruler_s_way_in_every_mode(mode, tmp_path):
    row, shown, budget = last_turn(tmp_path, eval_mode=mode, mem_chunk_tokens=64)
    assert shown[-1].endswith("assistant\n<think>\n\n</think>\n\nThey are:") and budget == 3
    assert row.response == "red" and row.prediction == "red" and row.scores == {"ruler": 0.5}
    assert sum("Solved: green." in prompt for prompt in shown) == 1
    assert row.counts["prompt_tokens"] == sum(len(encode(prompt)) - 1 for prompt in shown) or mode == "recurrent"


@pytest.mark.parametrize("mode", ["recurrent", "direct", "rag"])
def test_memagent_s_way_in_every_mode(mode, tmp_path):
    reply = "Not blue: the answer is **red**."
    row, shown, budget = last_turn(tmp_path, reply, eval_mode=mode, mem_chunk_tokens=64, eval_answer="the_answer_is")
    assert shown[-1].endswith("</think>\n\n") and budget == 16
    assert row.prediction == "red" and row.scores == {"ruler": 0.5}
    assert not any("Solved" in prompt for prompt in shown)


def test_a_model_that_thinks_gets_neither_prefix_nor_limit(tmp_path):
    _, shown, budget = last_turn(tmp_path, eval_mode="direct", mem_thinking=True)
    assert shown[-1].endswith("assistant\n") and budget == 16 and "Solved" in shown[-1]


def test_other_turns_keep_their_budget_and_their_end(tmp_path):
    _, shown, _ = last_turn(tmp_path, mem_chunk_tokens=8)
    assert len(shown) > 2 and not any("They are:" in prompt for prompt in shown[:-1])


def test_a_document_that_does_not_fit_leaves_room_for_prefix_and_reply(tmp_path):
    limits = {"eval_mode": "direct", "engine_max_len": 200}
    (tmp_path / "eval_vt_8192.json").write_text(json.dumps([entry(0, **ROW | {"context": "red key " * 200})]))
    router = FakeRouter(default=encode("red"))
    out = evaluate(tmp_path, make_model(tmp_path / "model"), router, ("vt_8192",), **limits)
    (row,) = read_rows(out, "vt_8192")
    assert row.counts["prompt_tokens"] + 3 == 200 and row.counts["dropped_tokens"] > 0
