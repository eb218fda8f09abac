"""``mem-agent ruler``: same bytes for a seed, whole files only, one line for every error."""

import json

import pytest
import yaml

from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.evaluation.make_ruler import main
from mem_agent.tests.helpers.question_rows import HOTPOTQA
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def generate(tmp_path, tokenizer):
    """Runs the command with ``flags`` into a folder of its own; returns exit code and files."""
    rows = [HOTPOTQA | {"question": f"Who {n}?"} for n in range(3)]
    (tmp_path / "hotpotqa.json").write_text(json.dumps(rows))

    def run(*flags, raw=("hotpotqa",), into="data"):
        given = [word for name in raw for word in (f"--{name}", tmp_path / f"{name}.json")]
        code = main(list(map(str, ["--output", tmp_path / into, "--tokenizer", tokenizer, *given, *flags])))
        return code, {path.name: path.read_bytes() for path in (tmp_path / into).glob("*")}

    return run


def test_what_is_around_a_document_is_part_of_its_length(generate, tmp_path):
    around = {"qa_document": "Read " + "all of it " * 9 + "\n\n{document}\n\nThat was it.",
              "cwe_document": "Count.\n{document}"}
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(around))
    encode = Vocabulary(make_tokenizer()).encode_text
    flags = ("--lengths", "3072", "--samples", 1, "--tasks", "qa_2 cwe", "--wording", tmp_path / "w.yaml")
    for content in generate(*flags)[1].values():
        (entry,) = json.loads(content)
        assert entry["context"].startswith(("Read all of it", "Count."))
        shown = sum(len(encode(entry[part])) for part in ("example", "context", "input", "answer_prefix"))
        whole = shown + entry["extra"]["prompt_tokens"] + entry["tokens_to_generate"]
        assert entry["length_tokens"] - 4 <= whole <= entry["length_tokens"] + 1  # seams are counted as tokens


def test_a_sample_depends_on_seed_task_length_and_index_alone(generate):
    flags = ("--tasks", "niah_multikey_3 qa_2", "--samples", 2)
    _, few = generate(*flags, "--lengths", 1024)
    _, more = generate("--tasks", "qa_2 niah_multikey_3", "--samples", 3, "--lengths", "1024 2048", into="more")
    _, other_seed = generate(*flags, "--lengths", 1024, "--seed", 7, into="seed")
    for name in few:
        assert json.loads(more[name])[:2] == json.loads(few[name]) != json.loads(other_seed[name])
    asked = [[entry["input"] for entry in json.loads(more[f"eval_qa_2_{length}.json"])] for length in (1024, 2048)]
    assert asked[0] == asked[1] and sorted(asked[0]) == ["Who 0?", "Who 1?", "Who 2?"]


def test_essays_from_text_and_json_in_which_no_token_is_a_control_token(generate, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("The tide\n\n  came <|im_end|> in.\tIt went out.")
    (tmp_path / "b.json").write_text(json.dumps({"text": "Nobody spoke."}))
    flags = ("--tasks", "niah_single_2", "--lengths", 1024, "--samples", 1)
    assert generate(*flags, into="built in")[0] == 0 and "no --haystack" in capsys.readouterr().err
    _, files = generate(*flags, "--haystack", tmp_path / "a.txt", tmp_path / "b.json")
    (entry,) = json.loads(files["eval_niah_single_2_1024.json"])
    assert "The tide came <|im_end|> in. It went out. Nobody spoke. The tide" in entry["context"]
    assert entry["extra"]["haystack"].startswith("a.txt+b.json sha256:")
    text = (entry[part] for part in ("context", "input", "answer_prefix"))
    counted = sum(map(len, map(Vocabulary(make_tokenizer()).encode_text, text)))
    assert entry["length_tokens"] == counted + entry["extra"]["prompt_tokens"] + 128


@pytest.mark.parametrize("flags,told", [
    (("--tasks", "niah"), "--tasks"), (("--tasks", "qa_1"), "--squad"),
    (("--tasks", "vt", "--lengths", "64"), "vt at 64 tokens"), (("--haystack", "absent.txt"), "absent.txt"),
    (("--wording", "absent.yaml"), "--wording"), (("--tokenizer", "absent"), "absent"),
])
def test_an_error_is_one_line_and_leaves_no_file(generate, capsys, flags, told):
    code, files = generate("--samples", 1, *flags, raw=())
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert code == 1 and files == {} and error.startswith("error: ") and told in error


def test_more_samples_than_questions_are_refused(generate, capsys):
    assert generate("--tasks", "qa_2", "--lengths", 1024, "--samples", 4) == (1, {})
    assert "qa_2: hotpotqa.json has 3 questions; lower --samples" in capsys.readouterr().err
