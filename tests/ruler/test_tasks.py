"""The answers of every task can be derived from its document alone, and nothing in it contradicts them."""

import itertools
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.data.pool import PoolQuestion
from mem_agent.data.ruler_corpus import Corpus
from mem_agent.rewards.qa_metrics import MEMAGENT_TASKS
from mem_agent.rewards.qa_metrics import TASKS as RULER_TASKS
from mem_agent.ruler import words
from mem_agent.ruler.common_words import frequencies
from mem_agent.ruler.frequent_words import counts_within, zeta_counts
from mem_agent.ruler.length import LengthError, shortest_allowed
from mem_agent.ruler.sample import Essay, Haystack
from mem_agent.ruler.tasks import NIAH, TASKS
from mem_agent.ruler.tokens import counter_of
from mem_agent.ruler.wording import Sentences
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

DOCUMENTS = tuple(f"Title {n}\nFact {n} is {'well ' * (5 + n % 7)}known." for n in range(40))
QUESTION = PoolQuestion("q", "What is fact 3?", ("known", "well known"), gold=(3, 8), near=(1, 2, 30), supporting=())
ESSAY = Essay("It rained all day. Did it stop? It did not! We left 1234567 stones in the quiet-harbor.", "essay.txt")
HAYSTACK = Haystack(Sentences(), ESSAY, Corpus("corpus.json", DOCUMENTS, (QUESTION,)), QUESTION)
TASK_NAMES = st.sampled_from(sorted(TASKS))
NEEDLE = re.compile(r"A magic (?:number|uuid) of (\S+) is (\S+)\.")


@cache
def counter():
    return counter_of(Vocabulary(make_tokenizer()))


def make(task, seed, budget=2048, reserved=0):
    return TASKS[task].make(Random(seed), budget, counter(), replace(HAYSTACK, reserved=reserved))


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


@pytest.mark.parametrize("budget", [2048, 8192, 32_768])
@pytest.mark.parametrize("task", TASKS)
def test_the_length_is_reached(task, budget):
    for seed in range(3):
        sample = make(task, seed, budget, reserved=100)
        assert shortest_allowed(budget) <= sample.length_tokens <= budget
        whole = len(make_tokenizer().encode(sample.example + sample.context, add_special_tokens=False))
        assert whole + counter()(sample.input) + counter()(sample.answer_prefix) + 100 == sample.length_tokens


@given(TASK_NAMES, st.integers())
@settings(max_examples=40)
def test_a_sample_is_a_function_of_its_arguments(task, seed):
    sample = make(task, seed)
    assert sample == make(task, seed)
    assert sample != make(task, seed + 1)
    assert sample.task == task and sample.input and sample.answer_prefix
    assert all(answer in sample.context for answer in sample.answers)


@given(st.sampled_from(sorted(NIAH)), st.integers(), st.sampled_from([1024, 3000, 9000]))
@settings(max_examples=60)
def test_needles_give_the_answers_and_nothing_else_does(task, seed, budget):
    form, sample = NIAH[task], make(task, seed, budget)
    needles = NEEDLE.findall(sample.context)
    values = [value for _, value in needles]
    asked = re.search(r" of (.+) does the text", sample.input)[1].replace(", and ", ", ").split(", ")
    assert asked == sample.extra["keys"] and len(asked) == form.queries
    found = [[value for name, value in needles if name == key] for key in asked]
    starts = range(0, len(sample.answers), form.values)
    assert [sorted(own) for own in found] == [sorted(sample.answers[at : at + form.values]) for at in starts]
    assert len(set(values)) == len(values)
    assert all(sample.context.count(answer) == 1 for answer in sample.answers)
    times = Counter(key for key, _ in needles)
    assert all(times[key] == form.values for key in times)
    assert len(times) == form.keys if form.haystack != "needles" else len(times) > 3


def test_needles_stand_all_over_the_document():
    depths = [make("niah_single_1", seed).extra["depths"][0] for seed in range(60)]
    assert min(depths) < 0.1 and max(depths) > 0.9
    positions = [make("niah_multikey_2", seed) for seed in range(40)]
    shares = [sample.context.index(sample.answers[0]) / len(sample.context) for sample in positions]
    assert min(shares) < 0.15 and max(shares) > 0.85


def test_the_essay_is_told_apart_from_the_needles():
    sample = make("niah_multikey_1", 0)
    assert sample.extra["haystack"] == "essay.txt"
    assert "It rained all day." in sample.context
    assert make("niah_single_1", 0).extra["haystack"] == "repeated sentences"


@given(st.integers(), st.sampled_from([1024, 5000]))
@settings(max_examples=30)
def test_the_chain_resolves_to_the_answers(seed, budget):
    sample = make("vt", seed, budget)
    assignments = re.findall(r"^VAR (\w+) = (?:VAR )?(\w+)$", sample.context, re.MULTILINE)
    held = {}
    for name, source in assignments:
        assert name not in held
        held[name] = held.get(source, source)
    asked = re.search(r"\d{5}", sample.input)[0]
    assert [name for name, value in held.items() if value == asked] == list(sample.answers)
    assert len(held) == len(sample.answers) == 5
    assert asked in sample.answer_prefix and "5" in sample.answer_prefix


@given(st.integers(), st.sampled_from([2048, 3000, 8192]))
@settings(max_examples=20)
def test_common_words_occur_ten_times_as_often(seed, budget):
    sample = make("cwe", seed, budget)
    items = [item.split(". ") for item in re.findall(r"\d+\. [a-z-]+", sample.context)]
    assert [int(place) for place, _ in items] == list(range(1, len(items) + 1))
    times = Counter(word for _, word in items)
    often, seldom = frequencies(budget)
    assert {word for word, count in times.items() if count == often} == set(sample.answers)
    assert len(set(sample.answers)) == 10
    others = [word for word in times if word not in sample.answers]
    assert max(times[word] for word in others) <= seldom + 1  # the last item may be cut down to another's word
    assert not any(answer in word for answer in sample.answers for word in others)
    assert not any(a in b for a, b in itertools.permutations(sample.answers, 2))


# variable_tracking.py and common_words_extraction.py, c3f5e3b: one example of at most 500 tokens with names of 3
# letters; one of 40 words, 10 and 3 times, or in documents of less than 4096 tokens of 20 words, 3 times and once.


@given(st.integers(), st.sampled_from([2048, 8192]))
@settings(max_examples=20)
def test_the_chain_of_the_example_is_solved_and_another(seed, budget):
    sample = make("vt", seed, budget)
    document, _, solution = sample.example.partition("\n\nThe text assigns")
    assignments = re.findall(r"^VAR ([A-Z]{3}) = (?:VAR )?(\w+)$", document, re.MULTILINE)
    (value,) = [source for _, source in assignments if source.isdecimal()]
    names = [name for name, _ in assignments]
    assert [source for _, source in assignments] == [value, *names[:4]] and len(set(names)) == 5
    assert f"value {value} are: {' '.join(names)}\n" in solution and value not in sample.input
    unsolved = sample.example.replace(" ".join(names) + "\n\n", "\n\n")
    assert 495 <= counter()(unsolved) <= 500


@given(st.integers(), st.sampled_from([(2048, 20, 3, 1), (8192, 40, 10, 3)]))
@settings(max_examples=20)
def test_the_list_of_the_example_is_solved_and_of_other_words(seed, shape):
    budget, words_of_all, often, seldom = shape
    sample = make("cwe", seed, budget)
    _, listed, asked, *_ = sample.example.split("\n\n")
    times = Counter(re.findall(r"\d+\. ([a-z-]+)", listed))
    named = re.findall(r"\d+\. ([a-z-]+)", asked)
    assert {word for word in times if times[word] == often} == set(named) and len(set(named)) == 10
    assert sorted(times.values()) == [seldom] * (words_of_all - 10) + [often] * 10
    assert not set(times) & set(re.findall(r"\d+\. ([a-z-]+) ", sample.context))
    assert not any(answer in word for answer in sample.answers for word in times)


def test_other_tasks_have_no_example():
    assert {task for task in TASKS if make(task, 0).example} == {"vt", "cwe"}


def test_replies_are_as_long_as_ruler_lets_them():
    tokens = {name: task.reply_tokens for name, task in TASKS.items()}
    assert {tokens.pop(name) for name in NIAH} == {128}
    assert tokens == {"vt": 30, "cwe": 120, "fwe": 50, "qa_1": 32, "qa_2": 32}


def test_the_names_of_the_tasks_are_the_same_everywhere():
    assert tuple(TASKS) == RULER_TASKS
    assert set(RULER_TASKS) - set(MEMAGENT_TASKS) == {"cwe", "qa_1", "qa_2"} and len(MEMAGENT_TASKS) == 10


def test_common_words_go_on_after_the_last_english_word():
    sample = TASKS["cwe"].make(Random(0), 120_000, lambda text: text.count(" "), HAYSTACK)
    listed = set(re.findall(r"[a-z-]+", sample.context))
    assert len(listed) > len(words.all_words())
    assert sum("-" in word for word in listed) > 5000
    assert not any("-" in answer for answer in sample.answers)


@given(st.integers(), st.sampled_from([1024, 2048, 8192]))
@settings(max_examples=20)
def test_frequent_words_are_the_ranks_after_the_dots(seed, budget):
    sample = make("fwe", seed, budget)
    times = Counter(sample.context.split())
    del times["..."]
    ranked = times.most_common()
    assert [word for word, _ in ranked[:3]] == list(sample.answers)
    assert ranked[2][1] > ranked[3][1]
    assert [count for _, count in ranked[:4]] == sample.extra["frequencies"][1:]


def test_zeta_counts():
    # 100 * 6 / pi² = 60.79; over 4, 9, 16, 25, 36, 49, 64: 15.2, 6.8, 3.8, 2.4, 1.7, 1.2, 0.9
    assert zeta_counts(100) == [60, 15, 6, 3, 2, 1, 1]
    # 101 words: 61.4, 15.3, 6.8, 3.8, 2.5, 1.7, 1.3, 0.96: one more than the 88 of 100
    assert counts_within(88) == zeta_counts(100) and counts_within(89) == zeta_counts(101)
    # 105 words make 92, 106 make 96: ranks 1, 2, 4 and 8 grow, in this order.
    assert zeta_counts(105) == [63, 15, 7, 3, 2, 1, 1] and zeta_counts(106) == [64, 16, 7, 4, 2, 1, 1, 1]
    assert counts_within(94) == [64, 16, 7, 3, 2, 1, 1]


@given(st.integers(0, 3000))
def test_a_text_one_word_longer_has_one_word_more(total):
    before, after = (Counter(dict(enumerate(counts_within(words)))) for words in (total, total + 1))
    assert before.total() == total and after.total() == total + 1 and not before - after


def test_gold_documents_are_whole_and_there_once():
    for seed, task in itertools.product(range(20), ("qa_1", "qa_2")):
        sample = make(task, seed, 4096)
        entries = re.split(r"(?:^|\n\n)Document (\d+):\n", sample.context)[1:]
        texts = entries[1::2]
        assert entries[::2] == [str(place) for place in range(1, len(texts) + 1)]
        assert all(texts.count(DOCUMENTS[number]) == 1 for number in QUESTION.gold)
        assert all(text in DOCUMENTS for text in texts[:-1])
        assert all(DOCUMENTS[number] in texts for number in QUESTION.own)
        assert sample.answers == QUESTION.answers


def test_a_used_up_pool_comes_again_without_the_gold_documents():
    sample = make("qa_2", 0, 16_384)
    assert [sample.context.count(DOCUMENTS[number]) for number in QUESTION.gold] == [1, 1]
    assert sample.context.count(DOCUMENTS[0]) > 1


@pytest.mark.parametrize("task", sorted(set(TASKS) - {"fwe"}))
def test_too_short_a_length_is_refused(task):
    with pytest.raises(LengthError, match="takes at least"):
        make(task, 0, 16)


def test_too_few_words_for_clear_answers_are_refused():
    with pytest.raises(LengthError, match="stand out"):
        make("fwe", 0, 130)


def test_draws_come_from_the_generator():
    # Drawn once; uuid version 4 puts a 4 and one of 89ab at fixed places.
    assert words.uuid4(Random(1)) == words.uuid4(Random(1))
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", words.uuid4(Random(2)))
    assert all(re.fullmatch(r"[1-9]\d{6}", words.number(Random(seed))) for seed in range(50))
    assert all(re.fullmatch("[a-z]{2,}", word) for word in words.all_words())
    assert len(words.nouns()) > 6000 and len(words.adjectives()) > 800
    taken = {"a"}
    assert words.draw_new(lambda rng: rng.choice("abcd"), Random(0), taken, text="cd") == "b" and taken == {"a", "b"}
