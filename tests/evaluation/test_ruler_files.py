"""RULER's files through the whole evaluation: nothing of a nominal length is cut, and replies score as RULER scores
them, beside its own functions where RULER_ROOT names a checkout."""

import ast
import importlib.util
import json
import random
import re

import pytest

from mem_agent.data.ruler.tasks import TASKS as MADE
from mem_agent.evaluation.make_ruler import main as generate
from mem_agent.evaluation.questions import load_questions
from mem_agent.evaluation.results import read_rows
from mem_agent.rewards.qa_metrics import TASKS
from mem_agent.tests.helpers.evaluations import encode, evaluate, make_model, means, summary_of
from mem_agent.tests.helpers.fake_router import FakeRouter
from mem_agent.tests.helpers.published import checkout
from mem_agent.tests.helpers.question_rows import HOTPOTQA
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

LENGTH, SAMPLES = 8192, 3
FILES = tuple(f"{task}_{LENGTH}" for task in TASKS)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a file of every task, and a model whose tokenizer counted them."""
    folder = tmp_path_factory.mktemp("ruler")
    rivers = [{"question": f"Which {n}?", "answers": [{"text": f"Po {n}"}, {"text": "The Po"}]}
              for n in range(SAMPLES)]
    paragraphs = [{"context": "The Po 0, the Po 1 and the Po 2 are long.", "qas": rivers},
                  {"context": "It is cold.", "qas": []}]
    squad = {"data": [{"title": "Rivers", "paragraphs": paragraphs}]}
    (folder / "squad.json").write_text(json.dumps(squad))
    (folder / "hotpotqa.json").write_text(json.dumps([HOTPOTQA | {"question": f"Who {n}?"} for n in range(SAMPLES)]))
    model = make_model(folder / "model", positions=LENGTH)
    flags = ["--samples", SAMPLES, "--lengths", LENGTH, "--squad", folder / "squad.json",
             "--hotpotqa", folder / "hotpotqa.json", "--output", folder, "--tokenizer", model]
    assert generate(list(map(str, flags))) == 0
    return folder, model


def entries_of(folder, name):
    return json.loads((folder / f"eval_{name}.json").read_text())


def asked(made, tmp_path, reply, **settings):
    """Every file evaluated in ``direct`` at an engine of its nominal length; ``reply`` is of (task, entry)."""
    folder, model = made
    entries = [(name, entry) for name in FILES for entry in entries_of(folder, name)]

    def answer(body):
        prompt = make_tokenizer().decode(body["token_ids"], skip_special_tokens=True)
        found = [(name, entry) for name, entry in entries if entry["context"] in prompt and entry["input"] in prompt]
        return encode(reply(*found[0]) if found else "Hello")

    limits = {"eval_mode": "direct", "engine_max_len": LENGTH, "mem_max_final": 256, "mem_max_question": LENGTH}
    router = FakeRouter(default=answer)
    output = evaluate(folder, model, router, FILES, out=tmp_path / "out", **limits | settings)
    return output, router


@pytest.mark.parametrize("task", TASKS)
def test_every_task_in_the_evaluation_format(task, made):
    entries = entries_of(made[0], f"{task}_{LENGTH}")
    for number, (entry, read) in enumerate(zip(entries, load_questions(made[0], f"{task}_{LENGTH}"), strict=True)):
        question, own = read.question, MADE[task]
        assert 8110 <= entry["length_tokens"] <= LENGTH and entry["extra"]["seed"] == 42
        assert (entry["task"], entry["length"], entry["index"]) == (task, LENGTH, number)
        assert (read.context, question.text, question.answers) == (entry["context"], entry["input"], entry["answers"])
        assert (question.metric, question.tokens_to_generate) == (own.metric, own.reply_tokens)
        assert (question.answer_prefix, question.example) == (entry["answer_prefix"], entry["example"])


def test_nothing_of_a_nominal_length_is_cut(made, tmp_path):
    output, router = asked(made, tmp_path, lambda name, entry: "nothing")
    for name in FILES:
        rows = {row.question: row for row in read_rows(output, name)}
        for entry in entries_of(made[0], name):
            row, budget = rows[str(entry["index"])], MADE[entry["task"]].reply_tokens
            assert row.counts["dropped_tokens"] == 0 and row.failure is None
            assert row.counts["prompt_tokens"] + budget == entry["length_tokens"] <= LENGTH
    budgets = {request["sampling_params"]["max_tokens"] for request in router.requests} - {1}
    assert budgets == {30, 32, 50, 120, 128}


def published():
    """RULER's metric by task, and what it does to a reply first."""
    scripts = checkout("RULER_ROOT") / "scripts"
    spec = importlib.util.spec_from_file_location("ruler_eval", scripts / "eval" / "synthetic" / "constants.py")
    constants = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(constants)
    # evaluate.py parses a command line when it is imported, so the one function is taken out of it.
    tree = ast.parse((scripts / "eval" / "evaluate.py").read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "postprocess_pred"]
    names = {"re": re}
    exec(compile(tree, "evaluate.py", "exec"), names)
    kinds = {"niah": "niah", "vt": "variable_tracking", "cwe": "common_words_extraction",
             "fwe": "freq_words_extraction", "qa": "qa"}
    metric = {task: constants.TASKS[kinds[task.partition("_")[0]]]["metric_fn"] for task in TASKS}
    return metric, lambda reply: names["postprocess_pred"](reply, {})


def test_whole_replies_score_as_ruler_scores_them(made, tmp_path):
    metric, cleaned = published()
    rng, said = random.Random(0), {}

    def reply(name, entry):
        parts = [*rng.sample(entry["answers"], rng.randint(0, len(entry["answers"]))), "It is", "\\boxed{", "}", "\n"]
        rng.shuffle(parts)
        text = rng.choice([" ", "", ", ", "\x07"]).join(map(rng.choice([str, str.upper, str.lower]), parts))
        return said.setdefault((name, str(entry["index"])), text)

    output, _ = asked(made, tmp_path, reply)
    seen = set()
    for name in FILES:
        task, entries = name.rpartition("_")[0], entries_of(made[0], name)
        replies = [cleaned(said[name, str(entry["index"])]) for entry in entries]
        golds = [entry["answers"] for entry in entries]
        rows = {row.question: row.scores["ruler"] for row in read_rows(output, name)}
        for entry, text in zip(entries, replies, strict=True):
            found = rows[str(entry["index"])]
            assert round(100 * found, 2) == metric[task]([text], [entry["answers"]])
            seen.add(found)
        mean = means(summary_of(output, name))["ruler"]
        assert mean == pytest.approx(metric[task](replies, golds), abs=0.0051)
    assert {0.0, 1.0} < seen  # and shares between
    assert len(said) == len(FILES) * SAMPLES
