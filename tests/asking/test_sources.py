"""Which sections an answer came from."""

import pytest

from mem_agent.asking.sources import sources
from mem_agent.asking.steps import TurnDone


def turn(round, sections, memory, reply=None, kind="memory"):
    return TurnDone(0, round, kind, sections, memory, memory if reply is None else reply, "", 1, 1, None)


PLAIN = [
    turn(0, (0,), "Ann: Paris"),
    turn(1, (1,), "Ann: Paris"),
    turn(2, (2,), "Ann: Paris, moved there in 1987"),
    turn(3, (3,), "Ann: Paris 1987. Ben: Rome"),
]
LOST = [turn(0, (0,), "silver"), turn(1, (1,), "nothing"), turn(2, (2,), "silver again"), turn(3, (3,), "silver")]
MERGED = [
    turn(0, (0,), "", "Ann: Paris"), turn(0, (1,), "", "nothing"), turn(0, (2,), "", "Ben: Rome"),
    turn(1, (), "Ann: Paris. Ben: Rome", "Ann: Paris. Ben: Rome"),
]
ALONE = [turn(0, (0,), "Ben: Rome", "nothing"), turn(0, (1,), "Ben: Rome", "Ben: Rome")]


@pytest.mark.parametrize("turns,answer,expected", [
    (PLAIN, "Paris", (0,)),
    (PLAIN, "paris, in 1987", (0, 2)),
    (PLAIN, "Rome", (3,)),
    (PLAIN, "London", ()),
    (PLAIN, "", ()),
    (LOST, "silver", (2,)),
    (MERGED, "Rome", (2,)),
    (MERGED, "Paris and Rome", (0, 2)),
    (ALONE, "Rome", (1,)),
    ([turn(0, (), "", kind="final")], "Rome", ()),
    ([], "Rome", ()),
])  # fmt: skip
def test_the_section_that_brought_the_word_last(turns, answer, expected):
    assert sources(turns, answer, "Where do they live?") == expected


def test_words_of_the_question_tell_nothing_unless_they_are_all():
    turns = [turn(0, (0,), "Ann"), turn(1, (1,), "Ann lives in Rome")]
    assert sources(turns, "Ann lives in Rome", "Where does Ann live?") == (1,)
    assert sources(turns, "Ann", "Is it Ann or Ben?") == (0,)


def test_little_words_tell_nothing_unless_they_are_all():
    turns = [turn(0, (0,), "the red"), turn(1, (1,), "the red key of it")]
    assert sources(turns, "the red", "?") == sources(turns, "the", "?") == (0,)
    assert sources(turns, "red of", "?") == (0,) and sources(turns, "of it", "?") == (1,)


def test_what_the_last_memory_has_lost_is_no_source():
    assert sources([turn(0, (0,), "gold"), turn(1, (1,), "nothing")], "gold", "?") == ()
