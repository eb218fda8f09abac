"""The command that writes RULER files: same bytes for a seed, whole files only, one line for every error."""

import json
import re
import signal
import subprocess
import sys

import pytest

from mem_agent.evaluation.questions import load_questions
from mem_agent.ruler.generate import main
from mem_agent.ruler.tasks import TASKS
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.question_rows import HOTPOTQA, SQUAD_FILE
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

FIELDS = [
    "context", "input", "answers", "index", "task", "length", "length_tokens", "answer_prefix", "example",
    "tokens_to_generate", "metric", "extra",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def generate(tmp_path, tokenizer):
    """Runs the command with ``flags`` into a folder of its own; returns exit code and files."""

    def run(*flags, into="data"):
        code = main(["--output", str(tmp_path / into), "--tokenizer", str(tokenizer), *map(str, flags)])
        return code, {path.name: path.read_bytes() for path in (tmp_path / into).glob("*")}

    return run


def raw_files(tmp_path):
    (tmp_path / "squad.json").write_text(json.dumps(SQUAD_FILE))
    rows = [HOTPOTQA | {"question": f"Who {n}?"} for n in range(3)]
    (tmp_path / "hotpotqa.json").write_text(json.dumps(rows))
    return "--squad", tmp_path / "squad.json", "--hotpotqa", tmp_path / "hotpotqa.json"


def test_every_task_in_the_evaluation_format(generate, tmp_path, capsys):
    code, files = generate("--lengths", "2048 8192", "--samples", 1, *raw_files(tmp_path))
    assert code == 0
    assert set(files) == {f"eval_{task}_{length}.json" for task in TASKS for length in (2048, 8192)}
    for task in TASKS:
        (entry,) = json.loads(files[f"eval_{task}_8192.json"])
        assert list(entry) == FIELDS
        assert (entry["task"], entry["length"], entry["index"]) == (task, 8192, 0)
        assert 8110 <= entry["length_tokens"] <= 8192
        assert entry["metric"] == TASKS[task].metric
        assert entry["extra"]["wording"] == "built in" and entry["extra"]["seed"] == 42
        (read,) = load_questions(tmp_path / "data", f"{task}_8192")
        assert (read.context, read.question.text) == (entry["context"], entry["input"])
        assert list(read.question.answers) == entry["answers"]
        assert (read.question.task, read.question.metric) == (task, entry["metric"])
        used = read.question.answer_prefix, read.question.example, read.question.tokens_to_generate
        assert used == (entry["answer_prefix"], entry["example"], TASKS[task].reply_tokens)
    said = capsys.readouterr()
    assert re.search(r"eval_vt_2048\.json: 1 samples of 20\d\d to 20\d\d tokens in", said.out)
    assert "use the built-in repeated sentences" in said.err
    essay = json.loads(files["eval_niah_single_2_2048.json"])[0]
    assert essay["extra"]["haystack"] == "repeated sentences (built in, no --haystack given)"


def test_any_number_of_processes_writes_the_same_bytes(generate, tmp_path):
    flags = ("--tasks", "niah_multikey_3 fwe qa_2", "--lengths", 1024, "--samples", 3, *raw_files(tmp_path))
    _, alone = generate(*flags)
    _, together = generate(*flags, "--processes", 2, into="together")
    _, other_seed = generate(*flags, "--seed", 7, into="seed")
    assert alone == together and len(alone) == 3
    assert all(alone[name] != other_seed[name] for name in alone)


def test_more_samples_leave_the_first_ones_as_they_are(generate, tmp_path):
    _, few = generate("--tasks", "vt", "--lengths", 1024, "--samples", 2)
    _, more = generate("--tasks", "vt", "--lengths", 1024, "--samples", 4)
    first, all_of_them = (json.loads(files["eval_vt_1024.json"]) for files in (few, more))
    assert all_of_them[:2] == first
    assert len({entry["context"] for entry in all_of_them}) == 4


def test_the_same_questions_at_every_length(generate, tmp_path):
    _, files = generate("--tasks", "qa_2", "--lengths", "1024 2048", "--samples", 3, *raw_files(tmp_path))
    short, long = ([entry["input"] for entry in json.loads(file)] for file in files.values())
    assert short == long and sorted(short) == ["Who 0?", "Who 1?", "Who 2?"]


def test_essays_from_text_and_json(generate, tmp_path):
    (tmp_path / "a.txt").write_text("The tide\n\n  came in.\tIt went out.")
    (tmp_path / "b.json").write_text(json.dumps({"text": "Nobody spoke."}))
    flags = ("--tasks", "niah_single_2", "--lengths", 1024, "--samples", 1)
    code, files = generate(*flags, "--haystack", tmp_path / "a.txt", tmp_path / "b.json")
    (entry,) = json.loads(files["eval_niah_single_2_1024.json"])
    assert code == 0
    assert "The tide came in. It went out. Nobody spoke. The tide" in entry["context"]
    assert entry["extra"]["haystack"].startswith("a.txt+b.json sha256:")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--tasks", "niah"), "--tasks"),
        (("--tasks", "qa_1"), "--squad"),
        (("--tasks", " "), "--tasks"),
        (("--lengths", "8K"), "'8K'"),
        (("--tasks", "vt", "--lengths", "64"), "vt at 64 tokens"),
        (("--haystack", "absent.txt"), "absent.txt"),
        (("--squad", "absent.json"), "absent.json"),
        (("--wording", "absent.yaml"), "--wording"),
    ],
)
def test_an_error_is_one_line(generate, capsys, flags, message):
    code, files = generate("--samples", 1, *flags)
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert code == 1 and files == {}
    assert error.startswith("error: ") and message in error


def test_more_samples_than_questions_are_refused(generate, tmp_path, capsys):
    flags = ("--tasks", "qa_2", "--lengths", 1024, "--processes", 2, *raw_files(tmp_path))
    _, before = generate(*flags, "--samples", 3)
    code, after = generate(*flags, "--samples", 4)
    assert code == 1 and after == before
    assert "qa_2: hotpotqa.json has 3 questions; lower --samples" in capsys.readouterr().err


def test_an_interrupted_run_leaves_no_half_file(tmp_path, tokenizer):
    output = tmp_path / "data"
    command = [sys.executable, "-m", "mem_agent.ruler.generate", "--output", output, "--tokenizer", tokenizer]
    flags = ["--tasks", "vt", "--lengths", "4096", "--samples", "1000000", "--processes", "2"]
    process = subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: any(draft.stat().st_size for draft in output.glob(".*.tmp")), process)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=HANGS_AFTER_S)
    finally:
        process.kill()
    assert process.returncode == 130 and list(output.iterdir()) == []
    assert said.strip() == "interrupted; files written so far are whole"
