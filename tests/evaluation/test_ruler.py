"""``mem-agent ruler`` and its files through the whole evaluation: same bytes for a seed, nothing of a nominal length
is cut, and replies score as RULER scores them, beside its own functions where RULER_ROOT names a checkout."""

import ast
import importlib.util
import json
import random
import re

import pytest

from mem_agent.data.ruler.tasks import TASKS as MADE
from mem_agent.evaluation.make_ruler import main
from mem_agent.evaluation.questions import load_questions
from mem_agent.evaluation.results import read_rows
from mem_agent.rewards.qa_metrics import TASKS
from mem_agent.tests.helpers.evaluations import encode, evaluate, make_model, numbers_of
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
    rivers = [{"question": f"Which {n}?", "answers": [{"text": f"Po {n}"}]} for n in range(SAMPLES)]
    paragraphs = [{"context": "The Po 0, the Po 1 and the Po 2 are long.", "qas": rivers},
                  {"context": "It is cold.", "qas": []}]
    (folder / "squad.json").write_text(json.dumps({"data": [{"title": "Rivers", "paragraphs": paragraphs}]}))
    (folder / "hotpotqa.json").write_text(json.dumps([HOTPOTQA | {"question": f"Who {n}?"} for n in range(SAMPLES)]))
    make_model(folder / "model", positions=LENGTH)
    assert generate(folder, "--samples", SAMPLES, "--lengths", LENGTH, "--squad", folder / "squad.json")[0] == 0
    return folder


def generate(folder, *flags, into=None):
    """Runs the command on a folder's model and questions; returns exit code and entries by file."""
    into = into or folder
    given = ["--output", into, "--tokenizer", folder / "model", "--hotpotqa", folder / "hotpotqa.json", *flags]
    code = main([str(word) for word in given])
    return code, {path.stem: json.loads(path.read_bytes()) for path in into.glob("eval_*.json")}


def entries_of(folder, name):
    return json.loads((folder / f"eval_{name}.json").read_text())


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_sample_depends_on_seed_task_length_and_index_alone(made, tmp_path):
    flags = ("--tasks", "niah_multikey_3 qa_2", "--samples", 2)
    _, few = generate(made, *flags, "--lengths", 1024, into=tmp_path / "few")
    _, more = generate(
        made, "--tasks", "qa_2 niah_multikey_3", "--samples", 3, "--lengths", "1024 2048", into=tmp_path / "more")
    _, other_seed = generate(made, *flags, "--lengths", 1024, "--seed", 7, into=tmp_path / "seed")
    for name in few:
        assert more[name][:2] == few[name] != other_seed[name]
    asked = [[entry["input"] for entry in more[f"eval_qa_2_{length}"]] for length in (1024, 2048)]
    assert asked[0] == asked[1] and sorted(asked[0]) == ["Who 0?", "Who 1?", "Who 2?"]


def test_essays_from_text_and_json_in_which_no_token_is_a_control_token(made, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("The tide\n\n  came <|im_end|> in.\tIt went out.")
    (tmp_path / "b.json").write_text(json.dumps({"text": "Nobody spoke."}))
    flags = ("--tasks", "niah_single_2", "--lengths", 1024, "--samples", 1)
    assert generate(made, *flags, into=tmp_path)[0] == 0 and "no --haystack" in capsys.readouterr().err
    _, files = generate(made, *flags, "--haystack", tmp_path / "a.txt", tmp_path / "b.json", into=tmp_path)
    (entry,) = files["eval_niah_single_2_1024"]
    assert "The tide came <|im_end|> in. It went out. Nobody spoke. The tide" in entry["context"]
    assert entry["extra"]["haystack"].startswith("a.txt+b.json sha256:")


@pytest.mark.parametrize("flags,told", [
    (("--tasks", "niah"), "--tasks"), (("--tasks", "qa_1"), "--squad"),
    (("--tasks", "vt", "--lengths", "64"), "vt at 64 tokens"), (("--haystack", "absent.txt"), "absent.txt"),
    (("--tasks", "qa_2", "--samples", "4"), "lower --samples"), (("--tokenizer", "absent"), "absent"),
])
def test_an_error_is_one_line_and_leaves_no_file(made, tmp_path, capsys, flags, told):
    code, files = generate(made, "--samples", 1, *flags, into=tmp_path)
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert code == 1 and files == {} and error.startswith("error: ") and told in error


# --- evaluated ------------------------------------------------------------------------------------------------------


def asked(folder, tmp_path, reply):
    """Every file evaluated in ``direct`` at an engine of its nominal length; ``reply`` is of (file, entry)."""
    entries = [(name, entry) for name in FILES for entry in entries_of(folder, name)]

    def answer(body):
        prompt = make_tokenizer().decode(body["token_ids"], skip_special_tokens=True)
        found = [(name, entry) for name, entry in entries if entry["context"] in prompt and entry["input"] in prompt]
        return encode(reply(*found[0]) if found else "Hello")

    limits = {"eval_mode": "direct", "engine_max_len": LENGTH, "mem_max_final": 256, "mem_max_question": LENGTH}
    router = FakeRouter(default=answer)
    return evaluate(folder, folder / "model", router, FILES, out=tmp_path / "out", **limits), router


def test_nothing_of_a_nominal_length_is_cut(made, tmp_path):
    output, router = asked(made, tmp_path, lambda name, entry: "nothing")
    for name in FILES:
        rows = {row["_id"]: row for row in read_rows(output, name)}
        for entry, (question, context) in zip(entries_of(made, name), load_questions(made, name), strict=True):
            row, own = rows[str(entry["index"])], MADE[entry["task"]]
            assert row["counts"]["dropped_tokens"] == 0 and row["failure"] is None
            assert row["counts"]["prompt_tokens"] + own.reply_tokens == entry["length_tokens"]
            assert 8110 <= entry["length_tokens"] <= LENGTH
            assert (context, question.text) == (entry["context"], entry["input"])
            assert (question.metric, question.tokens_to_generate) == (own.metric, own.reply_tokens)
            assert (question.answer_prefix, question.example) == (entry["answer_prefix"], entry["example"])
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
        score, entries = metric[name.rpartition("_")[0]], entries_of(made, name)
        replies = [cleaned(said[name, str(entry["index"])]) for entry in entries]
        rows = {row["_id"]: row["ruler"] for row in read_rows(output, name)}
        for entry, text in zip(entries, replies, strict=True):
            found = rows[str(entry["index"])]
            assert round(100 * found, 2) == score([text], [entry["answers"]])
            seen.add(found)
        every = score(replies, [entry["answers"] for entry in entries])
        assert numbers_of(output, name)["ruler"] == pytest.approx(every, abs=0.0051)
    assert {0.0, 1.0} < seen  # and shares between
