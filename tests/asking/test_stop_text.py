"""Stop strings in a text that comes in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from mem_agent.asking.stop_text import StopText

LETTERS = st.text(alphabet="ab#", min_size=1, max_size=4)


@given(st.lists(LETTERS, max_size=8), st.lists(LETTERS, max_size=3))
def test_the_text_up_to_the_first_stop(pieces, stops):
    cut = StopText(stops)
    told = "".join([cut.add(piece) for piece in pieces] + [cut.rest()])
    text = "".join(pieces)
    ends = [text.find(stop) for stop in stops if stop in text]
    # Of two stops the one that is complete first ends the text.
    first = min((text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text)[1] if ends else None
    assert cut.stopped == bool(ends) and (told == text if first is None else text.startswith(told))
    assert not any(stop in told for stop in stops)


def test_what_may_begin_a_stop_is_held_back():
    cut = StopText(["###"])
    assert [cut.add(piece) for piece in ("a#", "#b", "c###d", "e")] == ["a", "##b", "c", ""] and cut.rest() == ""
