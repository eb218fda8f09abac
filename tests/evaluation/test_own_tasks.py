"""Tasks of the user's in an evaluation: documents they do not read, metrics that raise."""

import json

import pytest

from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import read_rows
from mem_agent.evaluation.run import check
from mem_agent.tests.helpers.evaluations import CONFIG, RED, evaluate, make_model, turns_asked, write_data
from mem_agent.tests.helpers.fake_router import FakeRouter

OWN = """
from mem_agent.tasks import Task

class Bare(Task):
    needs_document = False
    headline = "letters"
    def read_answer(self, reply): return reply
    def reward(self, reply, row): return {}
    def metrics(self, reply, row): return METRICS
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN.replace("METRICS", '{"letters": 100.0}'))
    return f"{tmp_path}/own.py:Bare"


def without_documents(tmp_path):
    write_data(tmp_path)
    path = tmp_path / "eval_50.json"
    entries = [{k: v for k, v in entry.items() if k != "context"} for entry in json.loads(path.read_text())]
    path.write_text(json.dumps(entries))


def test_a_task_without_documents_answers_from_the_question_alone(tmp_path, own):
    without_documents(tmp_path)
    router = FakeRouter(default=RED)
    out = evaluate(tmp_path, make_model(tmp_path / "small"), router, task=own)
    assert [(row.scores, row.failure) for row in read_rows(out, "50")] == [({"letters": 100.0}, None)] * 3
    assert len(turns_asked(router)) == 3


UNSCORED = [
    ('{"letters": 100 / (row.question != "q1")}', "ZeroDivisionError"),
    ('{"letters": float("nan" if row.question == "q1" else 100)}', "expected finite numbers"),
]


@pytest.mark.parametrize("metrics,message", UNSCORED)
def test_an_answer_that_cannot_be_scored_fails_alone(tmp_path, metrics, message):
    write_data(tmp_path)
    (tmp_path / "own.py").write_text(OWN.replace("METRICS", metrics))
    model = make_model(tmp_path / "small")
    out = evaluate(tmp_path, model, FakeRouter(default=RED), task=f"{tmp_path}/own.py:Bare")
    rows = {row.question: row for row in read_rows(out, "50")}
    assert [rows[number].scores for number in "012"] == [{"letters": 100.0}, {"letters": 0.0}, {"letters": 100.0}]
    assert [rows[number].failure for number in "012"] == [None, "internal", None]
    assert message in rows["1"].failure_message


@pytest.mark.parametrize("changes", [{}, {"task": "qa"}, {"eval_mode": "direct"}])
def test_documents_that_would_be_read_must_be_there(tmp_path, own, changes):
    without_documents(tmp_path)
    config = CONFIG.__class__(**vars(CONFIG) | {"task": own if "eval_mode" in changes else "qa"} | changes)
    with pytest.raises(EvalError, match="the entry with the index 0 has no usable `context`"):
        check(tmp_path, ["50"], make_model(tmp_path / "small", positions=8192), config, tmp_path / "out")
