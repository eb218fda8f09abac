"""Which sections an answer came from, which words of them are quoted, and what changed between two memories."""

import pytest

from mem_agent.asking.steps import Section, TurnDone, quoted, sources, stands_in
from mem_agent.asking.word_diff import marked, word_diff


def turn(round, sections, memory, reply=None):
    return TurnDone(round, "memory", sections, memory, memory if reply is None else reply, "", 1, 1, None)


PLAIN = [turn(0, (0,), "Ann: Paris"), turn(1, (1,), "Ann: Paris"), turn(2, (2,), "Ann: Paris, moved there in 1987"),
         turn(3, (3,), "Ann: Paris 1987. Ben: Rome")]
LOST = [turn(0, (0,), "silver"), turn(1, (1,), "nothing"), turn(2, (2,), "silver again"), turn(3, (3,), "silver")]
MERGED = [turn(0, (0,), "", "Ann: Paris"), turn(0, (1,), "", "nothing"), turn(0, (2,), "", "Ben: Rome"),
          turn(1, (), "Ann: Paris. Ben: Rome", "Ann: Paris. Ben: Rome")]


@pytest.mark.parametrize("turns,answer,expected", [
    (PLAIN, "paris, in 1987", (0, 2)), (PLAIN, "Rome", (3,)), (PLAIN, "London", ()), ([], "Rome", ()),
    (LOST, "silver", (2,)), (MERGED, "Paris and Rome", (0, 2)),
    ([turn(0, (0,), "the red"), turn(1, (1,), "the red of it")], "of it", (1,)),
])  # fmt: skip
def test_the_section_that_brought_the_word_last(turns, answer, expected):
    """Little words tell nothing, unless they are all."""
    assert sources(turns, answer, "Where do they live?") == expected


TEXT = "Ann has gold. Ben lives in Rome!\nBen's metal is silver. Eve has silver too.\n\nThe end"


@pytest.mark.parametrize(("section", "answer", "question", "expected"), [
    ((0, len(TEXT)), "silver", "Which metal has Ben?", "Ben's metal is silver."),  # the question decides
    ((0, len(TEXT)), "Ben", "Who, Ben?", "Ben lives in Rome!"),  # an answer that the question holds
    ((0, len(TEXT)), "It has metal", "", "Ben's metal is silver."),  # little words tell nothing
    ((0, 13), "Rome", "Where?", ""),  # not in this section
    ((28, 50), "Rome", "Where?", "Ben lives in Rome!"),  # a border cuts the sentence
    ((28, len(TEXT)), "end", "", "The end"), ((0, len(TEXT)), "", "", ""),
])  # fmt: skip
def test_the_sentence_with_most_of_the_answer_is_quoted(section, answer, question, expected):
    start, end = quoted(TEXT, Section(*section), answer, question)
    assert TEXT[start:end] == expected


def test_an_answer_stands_in_texts_with_half_of_its_words():
    said = "The original section is reorganized by topic"
    assert not stands_in(["In this section we list files."], said, "") and stands_in(["The original topic."], said, "")


# --- changes of a memory, by words -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after", "shown"), [
    ("", "metal silver", "{+metal silver+}"),
    ("Ann: Rome", "Ann: Rome, silver", "Ann: Rome{+, silver+}"),
    ("住在東京", "住在京都", "住在[-東-]京{+都+}"),
    ("a b c", "x b y", "[-a-] {+x+} b [-c-]{+y+}"),
    ("The cat sat on a mat. It rained.", "A dog ran in the park. It rained.",  # most words: sentences are compared
     "[-The cat sat on a mat.-] {+A dog ran in the park.+} It rained."),
])  # fmt: skip
def test_changes_are_marked_by_words_or_by_sentences(before, after, shown):
    assert marked(word_diff(before, after)) == shown
