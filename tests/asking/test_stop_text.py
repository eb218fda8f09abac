"""Stop strings in a text that comes in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from mem_agent.asking.stop_text import StopText, up_to_stop
from mem_agent.tests.helpers.cpu_time import at_most

LETTERS = st.text(alphabet="ab#", min_size=1, max_size=4)


@given(st.lists(LETTERS, max_size=8), st.lists(LETTERS, max_size=3))
def test_the_text_up_to_the_first_stop(pieces, stops):
    cut = StopText(stops)
    told = "".join([cut.add(piece) for piece in pieces] + [cut.rest()])
    text = "".join(pieces)
    # Of two stops the one that is complete first ends the text, and of those that end together the longer one.
    ends = sorted((text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text)
    assert cut.stopped == bool(ends) and told == (text[: ends[0][1]] if ends else text) == up_to_stop(text, stops)


def test_long_stops_cost_no_more_for_each_piece():
    cut = StopText(["a" * 999 + "b", *(letter * 999 + "ab" for letter in "cdefghijklmnopq")])
    with at_most(1.0):
        told = [cut.add("aaaa") for _ in range(2_000)]
    assert len("".join(told)) == 8_000 - 999


def test_what_may_begin_a_stop_is_held_back():
    cut = StopText(["###"])
    assert [cut.add(piece) for piece in ("a#", "#b", "c###d", "e")] == ["a", "##b", "c", ""] and cut.rest() == ""
