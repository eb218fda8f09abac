"""Words around a document: shown with it, counted with it, and nothing without them."""

import json
from random import Random

import pytest
import yaml

from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.data.pool import PoolQuestion
from mem_agent.data.ruler_corpus import Corpus
from mem_agent.ruler.document_frame import frame_of
from mem_agent.ruler.generate import main
from mem_agent.ruler.length import shortest_allowed
from mem_agent.ruler.sample import Essay, Haystack
from mem_agent.ruler.tasks import TASKS
from mem_agent.ruler.tokens import counter_of
from mem_agent.ruler.wording import Sentences
from mem_agent.tests.helpers.question_rows import HOTPOTQA, SQUAD_FILE
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

QUESTION = PoolQuestion("q", "What is fact 3?", ("known",), gold=(3,), near=(1,), supporting=())
CORPUS = Corpus("corpus.json", tuple(f"Title {n}\nFact {n} is known." for n in range(40)), (QUESTION,))
FRAMED = {
    "niah_one_document": "A hidden {kind}.\n{document}\n",
    "niah_many_document": "Hidden {kinds} of a {kind}.\n{document}",
    "vt_document": "Follow {{it}}.\n\n{document}", "cwe_document": "Count.\n{document}",
    "fwe_document": "Codes: {document}", "qa_document": "Read " + "all of it " * 9 + "\n\n{document}\n\nThat was it.",
}


def test_nothing_is_around_a_document_by_default():
    haystack = Haystack(Sentences(), Essay("It rained.", "essay.txt"), CORPUS, QUESTION)
    for task in TASKS:
        frame = frame_of(task, Sentences())
        sample = TASKS[task].make(Random(1), 8192, len, haystack)
        assert frame.tokens(len) == 0 and frame.around(sample) == sample


SHOWN = [("niah_single_2", "A hidden number.\n", "\n"), ("niah_single_3", "A hidden uuid.\n", "\n"),
         ("niah_multivalue", "Hidden numbers of a number.\n", ""),
         ("niah_multiquery", "Hidden numbers of a number.\n", ""),
         ("vt", "Follow {it}.\n\n", ""), ("fwe", "Codes: ", ""), ("qa_2", "Read ", "That was it.")]


@pytest.mark.parametrize("task,before,behind", SHOWN)
def test_each_task_has_its_own(task, before, behind):
    frame = frame_of(task, Sentences(**FRAMED))
    assert frame.before.startswith(before) and frame.behind.endswith(behind)
    assert "{" not in (frame.before + frame.behind).replace("{it}", "")


@pytest.fixture
def files(tmp_path):
    """What the command writes with the framed wording, by file."""
    make_tokenizer().save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "squad.json").write_text(json.dumps(SQUAD_FILE))
    (tmp_path / "hotpotqa.json").write_text(json.dumps([HOTPOTQA | {"question": f"Who {n}?"} for n in range(3)]))
    (tmp_path / "w.yaml").write_text(yaml.safe_dump(FRAMED))
    options = {"output": "out", "tokenizer": "tokenizer", "squad": "squad.json", "hotpotqa": "hotpotqa.json",
               "wording": "w.yaml"}
    flags = [word for name, place in options.items() for word in (f"--{name}", str(tmp_path / place))]
    assert main([*flags, "--lengths", "3072 8192", "--samples", "1"]) == 0
    return {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()}


def test_what_is_around_a_document_is_part_of_its_length(files):
    count = counter_of(Vocabulary(make_tokenizer()))
    assert len(files) == 2 * len(TASKS)
    for entries in files.values():
        for entry in entries:
            frame = frame_of(entry["task"], Sentences(**FRAMED))
            assert entry["context"].startswith(frame.before) and entry["context"].endswith(frame.behind)
            shown = sum(count(entry[name]) for name in ("example", "context", "input", "answer_prefix"))
            whole = shown + entry["extra"]["prompt_tokens"] + entry["tokens_to_generate"]
            assert entry["length_tokens"] - 4 <= whole <= entry["length_tokens"] + 1  # seams are counted as tokens
            assert shortest_allowed(entry["length"]) <= entry["length_tokens"] <= entry["length"]


def test_the_files_length_decides_how_often_words_occur(files):
    """RULER's threshold is the length of the whole prompt: 4096 tokens, however many of them are words around."""
    assert [entry["extra"]["frequencies"] for entry in files["eval_cwe_8192"]] == [[30, 3]]
    assert [entry["extra"]["frequencies"] for entry in files["eval_cwe_3072"]] == [[6, 1]]
