"""Raw files take time and memory in proportion to their length, whatever they are made of."""

import json
import time

import pytest

from mem_agent.data.pool import load_corpora
from mem_agent.data.questions import read_question
from mem_agent.data.ruler_corpus import read_squad
from mem_agent.tests.helpers.question_rows import HOTPOTQA
from mem_agent.tests.helpers.uncollected import uncollected


def row(count):
    """With so many paragraphs, each of them gold."""
    titles = [f"title {number}" for number in range(count)]
    return HOTPOTQA | {"context": [[title, ["x"]] for title in titles], "supporting_facts": [[t, 0] for t in titles]}


def article(count):
    """One of so many paragraphs, each with a question."""
    paragraphs = [
        {"context": f"Text {n}.", "qas": [{"id": f"q{n}", "question": f"Who {n}?", "answers": [{"text": f"a {n}"}]}]}
        for n in range(count)
    ]
    return {"data": [{"title": "One", "paragraphs": paragraphs}]}


def pool(tmp_path, made):
    path = tmp_path / "raw.json"
    path.write_text(json.dumps(made))
    return lambda: load_corpora([path])


def corpus(tmp_path, made):
    path = tmp_path / "squad.json"
    path.write_text(json.dumps(made))
    return lambda: read_squad(path)


CASES = {
    "paragraphs of a row": (lambda tmp_path, made: lambda: read_question(made), row),
    "a row in a pool": (lambda tmp_path, made: pool(tmp_path, [made]), row),
    "paragraphs of an article in a pool": (pool, article),
    "paragraphs of an article in a corpus": (corpus, article),
}


def seconds(call):
    with uncollected():
        began = time.thread_time()
        call()
        return time.thread_time() - began


@pytest.mark.parametrize("case", CASES)
def test_time_grows_with_the_length(tmp_path, case):
    """Squared is 16 times; the least of three, since others use the machine, and nothing below what can be told."""
    reader, made = CASES[case]
    reader(tmp_path, made(2))()
    short = min(seconds(reader(tmp_path, made(3000))) for _ in range(3))
    assert seconds(reader(tmp_path, made(12_000))) < 8 * max(short, 0.02)


@pytest.mark.parametrize("reader", [pool, corpus])
def test_questions_of_an_article_share_its_numbers(tmp_path, reader):
    """Each had a copy, so that 200 KB of file took 80 MB."""
    questions = reader(tmp_path, article(4))().questions
    assert len({id(question.article) for question in questions}) == 1
    assert [(question.gold, question.own) for question in questions] == [
        ((n,), tuple(m for m in range(4) if m != n)) for n in range(4)]
