"""``mem-agent ruler``: same bytes for a seed, whole files only, one line for every error."""

import json
import re
import signal
import subprocess
import sys

import pytest
import yaml

from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.data.ruler.sample import load_wording
from mem_agent.data.ruler.tasks import TASKS
from mem_agent.evaluation.make_ruler import main
from mem_agent.evaluation.questions import load_questions
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.question_rows import HOTPOTQA, SQUAD_FILE
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

FIELDS = ["context", "input", "answers", "index", "task", "length", "length_tokens", "answer_prefix", "example",
          "tokens_to_generate", "metric", "extra"]
FRAMED = {
    "niah_one_document": "A hidden {kind}.\n{document}\n",
    "niah_many_document": "Hidden {kinds} of a {kind}.\n{document}",
    "vt_document": "Follow {{it}}.\n\n{document}", "cwe_document": "Count.\n{document}",
    "fwe_document": "Codes: {document}", "qa_document": "Read " + "all of it " * 9 + "\n\n{document}\n\nThat was it.",
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def generate(tmp_path, tokenizer):
    """Runs the command with ``flags`` into a folder of its own; returns exit code and files."""
    (tmp_path / "squad.json").write_text(json.dumps(SQUAD_FILE))
    rows = [HOTPOTQA | {"question": f"Who {n}?"} for n in range(3)]
    (tmp_path / "hotpotqa.json").write_text(json.dumps(rows))

    def run(*flags, raw=("squad", "hotpotqa"), into="data"):
        given = [word for name in raw for word in (f"--{name}", tmp_path / f"{name}.json")]
        code = main(list(map(str, ["--output", tmp_path / into, "--tokenizer", tokenizer, *given, *flags])))
        return code, {path.name: path.read_bytes() for path in (tmp_path / into).glob("*")}

    return run


def test_every_task_in_the_evaluation_format(generate, tmp_path, capsys):
    code, files = generate("--lengths", "2048 8192", "--samples", 1)
    assert code == 0 and set(files) == {f"eval_{task}_{length}.json" for task in TASKS for length in (2048, 8192)}
    for task in TASKS:
        (entry,) = json.loads(files[f"eval_{task}_8192.json"])
        assert list(entry) == FIELDS and 8110 <= entry["length_tokens"] <= 8192
        assert (entry["task"], entry["length"], entry["index"]) == (task, 8192, 0)
        assert entry["metric"] == TASKS[task].metric
        assert entry["extra"]["wording"] == "built in" and entry["extra"]["seed"] == 42
        (read,) = load_questions(tmp_path / "data", f"{task}_8192")
        assert (read.context, read.question.text) == (entry["context"], entry["input"])
        assert list(read.question.answers) == entry["answers"]
        used = read.question.answer_prefix, read.question.example, read.question.tokens_to_generate
        assert used == (entry["answer_prefix"], entry["example"], TASKS[task].reply_tokens)
    said = capsys.readouterr()
    assert re.search(r"eval_vt_2048\.json: 1 samples of 20\d\d to 20\d\d tokens in", said.out)
    essay = json.loads(files["eval_niah_single_2_2048.json"])[0]
    assert "no --haystack" in said.err and "built in" in essay["extra"]["haystack"]


def test_what_is_around_a_document_is_part_of_its_length(generate, tmp_path):
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(FRAMED))
    wording, vocabulary = load_wording(tmp_path / "w.yaml"), Vocabulary(make_tokenizer())
    _, files = generate("--lengths", "3072 8192", "--samples", 1, "--wording", tmp_path / "w.yaml")
    for name, content in files.items():
        (entry,) = json.loads(content)
        before, behind = wording.around(TASKS[entry["task"]].words, TASKS[entry["task"]].kind)
        assert before and entry["context"].startswith(before) and entry["context"].endswith(behind)
        texts = (entry[part] for part in ("example", "context", "input", "answer_prefix"))
        shown = sum(len(vocabulary.encode_text(text)) for text in texts)
        whole = shown + entry["extra"]["prompt_tokens"] + entry["tokens_to_generate"]
        assert entry["length_tokens"] - 4 <= whole <= entry["length_tokens"] + 1  # seams are counted as tokens
        if entry["task"] == "cwe":  # RULER's threshold is the length of the whole prompt
            assert entry["extra"]["frequencies"] == ([6, 1] if "3072" in name else [30, 3])


def test_the_same_options_write_the_same_bytes(generate):
    flags = ("--tasks", "niah_multikey_3 fwe qa_2", "--lengths", 1024, "--samples", 3)
    _, first = generate(*flags)
    _, again = generate(*flags, into="again")
    _, other_seed = generate(*flags, "--seed", 7, into="seed")
    assert first == again and len(first) == 3
    assert all(first[name] != other_seed[name] for name in first)


def test_more_samples_or_lengths_leave_the_first_ones_as_they_are(generate):
    _, few = generate("--tasks", "vt qa_2", "--lengths", 1024, "--samples", 2)
    _, more = generate("--tasks", "vt qa_2", "--lengths", "1024 2048", "--samples", 3)
    for name in few:
        assert json.loads(more[name])[:2] == json.loads(few[name])
    asked = [[entry["input"] for entry in json.loads(more[f"eval_qa_2_{length}.json"])] for length in (1024, 2048)]
    assert asked[0] == asked[1] and sorted(asked[0]) == ["Who 0?", "Who 1?", "Who 2?"]


def test_essays_from_text_and_json_in_which_no_token_is_a_control_token(generate, tmp_path):
    (tmp_path / "a.txt").write_text("The tide\n\n  came <|im_end|> in.\tIt went out.")
    (tmp_path / "b.json").write_text(json.dumps({"text": "Nobody spoke."}))
    flags = ("--tasks", "niah_single_2", "--lengths", 1024, "--samples", 1)
    _, files = generate(*flags, "--haystack", tmp_path / "a.txt", tmp_path / "b.json")
    (entry,) = json.loads(files["eval_niah_single_2_1024.json"])
    assert "The tide came <|im_end|> in. It went out. Nobody spoke. The tide" in entry["context"]
    assert entry["extra"]["haystack"].startswith("a.txt+b.json sha256:")
    counted = sum(len(Vocabulary(make_tokenizer()).encode_text(entry[part])) for part in FIELDS[:2] + FIELDS[7:8])
    assert entry["length_tokens"] == counted + entry["extra"]["prompt_tokens"] + 128


@pytest.mark.parametrize("flags,told", [
    (("--tasks", "niah"), "--tasks"), (("--tasks", "qa_1"), "--squad"), (("--tasks", " "), "--tasks"),
    (("--tasks", "vt", "--lengths", "64"), "vt at 64 tokens"), (("--haystack", "absent.txt"), "absent.txt"),
    (("--wording", "absent.yaml"), "--wording"), (("--tokenizer", "absent"), "absent"),
])
def test_an_error_is_one_line(generate, capsys, flags, told):
    code, files = generate("--samples", 1, *flags, raw=())
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert code == 1 and files == {} and error.startswith("error: ") and told in error


def test_more_samples_than_questions_are_refused(generate, capsys):
    flags = ("--tasks", "qa_2", "--lengths", 1024)
    _, before = generate(*flags, "--samples", 3)
    code, after = generate(*flags, "--samples", 4)
    assert code == 1 and after == before
    assert "qa_2: hotpotqa.json has 3 questions; lower --samples" in capsys.readouterr().err


def test_an_interrupted_run_leaves_no_half_file(tmp_path, tokenizer):
    output = tmp_path / "data"
    command = [sys.executable, "-m", "mem_agent.evaluation.make_ruler", "--output", output, "--tokenizer", tokenizer]
    flags = ["--tasks", "vt", "--lengths", "4096", "--samples", "1000000"]
    process = subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: any(draft.stat().st_size for draft in output.glob(".*.tmp")), process)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=HANGS_AFTER_S)
    finally:
        process.kill()
    assert process.returncode == 130 and list(output.iterdir()) == []
    assert said.strip() == "interrupted; files written so far are whole"
