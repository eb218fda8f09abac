"""RULER's tasks: answers can be derived from the document alone, nothing contradicts them, and the length is met."""

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.data.questions import PoolQuestion
from mem_agent.data.ruler import sample as samples
from mem_agent.data.ruler import tasks
from mem_agent.data.ruler.sample import Corpus, Essay, Haystack, Wording, shortest_allowed
from mem_agent.data.ruler.tasks import NIAH, TASKS
from mem_agent.tests.helpers.question_rows import HOTPOTQA, SQUAD_FILE
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

DOCUMENTS = tuple(f"Title {n}\nFact {n} is {'well ' * (5 + n % 7)}known." for n in range(40))
QUESTION = PoolQuestion("", "What is fact 3?", ("known", "well known"), (3, 8), (3, 8, 1, 2, 30))
ESSAY = Essay("It rained all day. Did it stop? It did not! We left 1234567 stones in the quiet-harbor.", "essay.txt")
HAYSTACK = Haystack(Wording(), ESSAY, Corpus("corpus.json", DOCUMENTS, (QUESTION,)), QUESTION)
NEEDLE = re.compile(r"A magic (?:number|uuid) of (\S+) is (\S+)\.")


@cache
def count(text):
    return len(make_tokenizer().encode(text, add_special_tokens=False))


def make(task, seed, budget=2048, reserved=0):
    return TASKS[task].make(Random(seed), budget, count, replace(HAYSTACK, reserved=reserved))


# With characters for tokens. Any change here changes every file made from now on: figures of before do not compare.
GOLDEN_NEEDLES = (
    "A magic number of ruddy-cash is 2229177.\nA magic number of halting-medicine is 3257320.\n"
    "A magic number of tawdry-citron is 8735225.\nA magic number of acceptable-synthesis is 7557850.\nA magic numb"
)


def test_golden_sample():
    sample = TASKS["niah_multikey_2"].make(Random("42/niah_multikey_2/300/0"), 300, len, HAYSTACK)
    assert sample.context == GOLDEN_NEEDLES
    assert sample.input == "Which magic number of tawdry-citron does the text state?"
    assert sample.answers == ("8735225",)
    assert sample.answer_prefix == "The magic number of tawdry-citron in the text is"
    assert sample.length_tokens == len(GOLDEN_NEEDLES) + len(sample.input) + len(sample.answer_prefix) == 299


@pytest.mark.parametrize("task", TASKS)
def test_the_length_is_reached_the_same_way_for_a_seed(task, budget=8192):
    first, again, other = (make(task, seed, budget, reserved=100) for seed in (0, 0, 1))
    assert first == again != other
    for sample in (first, other):
        shown = count(sample.example + sample.context) + count(sample.input) + count(sample.answer_prefix)
        assert shortest_allowed(budget) <= sample.length_tokens == shown + 100 <= budget
        assert sample.answers and all(answer and answer in sample.context for answer in sample.answers)
        assert bool(sample.example) is (task in ("vt", "cwe"))


# --- needles and chains ----------------------------------------------------------------------------------------------
@given(st.sampled_from(sorted(NIAH)), st.integers(), st.sampled_from([1024, 3000]))
@settings(max_examples=40)
def test_needles_give_the_answers_and_nothing_else_does(task, seed, budget):
    form, sample = NIAH[task], make(task, seed, budget)
    needles = NEEDLE.findall(sample.context)
    asked = re.search(r" of (.+) does the text", sample.input)[1].replace(", and ", ", ").split(", ")
    assert asked == sample.extra["keys"] and len(asked) == form.queries
    found = [value for key in asked for name, value in needles if name == key]
    assert sorted(found) == sorted(sample.answers) and (form.values > 1 or found == list(sample.answers))
    assert all(sample.context.count(answer) == 1 for answer in sample.answers)
    times = Counter(key for key, _ in needles)
    assert set(times.values()) == {form.values} and len({value for _, value in needles}) == len(needles)
    assert len(times) == form.keys if form.haystack != "needles" else len(times) > 3


@given(st.integers(), st.sampled_from([1024, 5000]))
@settings(max_examples=20)
def test_chains_resolve_to_the_answers_after_an_example_of_500_tokens(seed, budget):
    """``variable_tracking.py``, c3f5e3b: names of 3 letters in the example, of 5 in the document."""
    sample = make("vt", seed, budget)
    document, _, solution = sample.example.partition("\n\nThe text assigns")
    shown = re.search(r"value (\d+) are: (.+)\n", solution)
    asked = re.search(r"\d{5}", sample.input)[0]
    for text, letters, value, names in ((sample.context, 5, asked, list(sample.answers)),
                                        (document, 3, shown[1], shown[2].split())):
        assignments = re.findall(r"^VAR (\w+) = (?:VAR )?(\w+)$", text, re.MULTILINE)
        assert assignments == list(zip(names, [value, *names[:4]], strict=True)) and len(set(names)) == 5
        assert {len(name) for name in names} == {letters}
    assert asked in sample.answer_prefix and "5" in sample.answer_prefix and asked not in sample.example
    assert 495 <= count(sample.example.replace(f"{shown[2]}\n\n", "\n\n")) <= 500


# --- words -----------------------------------------------------------------------------------------------------------
@given(st.integers(), st.sampled_from([(2048, (6, 1), (3, 1, 10)), (8192, (30, 3), (10, 3, 30))]))
@settings(max_examples=20)
def test_common_words_occur_ten_times_as_often(seed, shape):
    """``common_words_extraction.py``, c3f5e3b: how often common and uncommon words occur, there and in the example."""
    budget, (often, seldom), (often_shown, seldom_shown, uncommon_shown) = shape
    sample = make("cwe", seed, budget)
    items = [item.split(". ") for item in re.findall(r"\d+\. [a-z-]+", sample.context)]
    assert [int(number) for number, _ in items] == list(range(1, len(items) + 1))
    times = Counter(word for _, word in items)
    others = set(times) - set(sample.answers)
    assert [times[answer] for answer in sample.answers] == [often] * 10
    assert max(times[word] for word in others) <= seldom + 1  # the last item may be cut down to another's word
    assert not any(answer in word for answer in sample.answers for word in {*others, *sample.answers} - {answer})
    _, listed, solved, *_ = sample.example.split("\n\n")
    shown, named = (Counter(re.findall(r"\d+\. ([a-z-]+)", text)) for text in (listed, solved))
    assert sorted(shown.values()) == [seldom_shown] * uncommon_shown + [often_shown] * 10
    assert {word for word in shown if shown[word] == often_shown} == set(named)
    assert not set(shown) & {word for _, word in items[:-1]}


def test_zeta_counts():
    # 100 * 6 / pi² = 60.79; over 4, 9, 16, 25, 36, 49, 64: 15.2, 6.8, 3.8, 2.4, 1.7, 1.2, 0.9
    assert tasks.zeta_counts(100) == [60, 15, 6, 3, 2, 1, 1]
    # 105 words make 92, 106 make 96: ranks 1, 2, 4 and 8 grow, in this order.
    assert tasks.counts_within(88) == tasks.zeta_counts(100) and tasks.counts_within(94) == [64, 16, 7, 3, 2, 1, 1]
    assert all(sum(tasks.counts_within(total)) == total for total in range(300))


# --- documents with questions ----------------------------------------------------------------------------------------
def test_gold_documents_are_whole_and_there_once():
    for seed, budget in [*((seed, 4096) for seed in range(4)), (0, 16_384)]:
        sample = make("qa_1", seed, budget)
        texts = re.split(r"(?:^|\n\n)Document \d+:\n", sample.context)[1:]
        assert all(texts.count(DOCUMENTS[number]) == 1 for number in QUESTION.gold)
        assert all(text in DOCUMENTS for text in texts[:-1])
        assert all(DOCUMENTS[number] in texts for number in QUESTION.own) and sample.answers == QUESTION.answers
    assert texts.count(DOCUMENTS[0]) > 1  # a used-up file comes again


# Another order, and a supporting document that is not there: RULER does without, synthesis leaves the question out.
ORIGINAL = HOTPOTQA | {"supporting_facts": [["Ann", 0], ["Absent", 0]], "context": HOTPOTQA["context"][::-1]}


@pytest.mark.parametrize(("read", "content", "documents", "question"), [
    # Sorted; a question without answers brings no documents either.
    (samples.read_squad, SQUAD_FILE, ("It is cold.", "The Po is long."), ("Which?", ("Po", "The Po"), (1,), (1, 0))),
    (samples.read_hotpotqa, [ORIGINAL], ("Ann\nAnn is. She was.", "Bob\nBob is."), ("Who?", ("Ann",), (0,), (1, 0))),
])
def test_files_become_documents_and_questions(tmp_path, read, content, documents, question):
    path = tmp_path / "raw.json"
    path.write_text(json.dumps(content))
    assert read(path, Random(0)) == Corpus("raw.json", documents, (PoolQuestion("", *question),))


# --- length, filler and wording --------------------------------------------------------------------------------------
def test_a_wording_file_replaces_some_texts(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text('needle: "{key}, {key}: {value}"\nqa_prefix: ""\nniah_many_document: "{kinds} {{x}} {document}."')
    wording = samples.load_wording(path)
    assert wording.text("needle", kind="number", kinds="numbers", key="a", value="1") == "a, a: 1"
    assert wording.texts["niah_one"] == samples.TEXTS["niah_one"] and wording.texts["qa_prefix"] == ""
    assert wording.around("niah_many", "uuid") == ("uuids {x} ", ".") and wording.around("vt", "") == ("", "")
    assert wording.name.startswith("own.yaml sha256:")
