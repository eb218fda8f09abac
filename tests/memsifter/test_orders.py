"""Orders that no trained model gives."""

import pytest

from mem_agent.memsifter.orders import bm25_order
from mem_agent.sessions.records import HistoryQuestion, Session, Turn


@pytest.mark.parametrize("question, talks, order", [
    ("Where is the key?", ("Ben sleeps", "We talked a lot", "the key is red", "Ben eats"), [2, 0, 1, 3]),
    ("小明住在哪里？", ("今天天气很好", "我们去吃饭吧", "小明搬到了上海居住"), [2, 0, 1]),  # by characters
    ("key", ("key and many other different things here", "key"), [1, 0]),  # the shorter session
    ("What did Caroline run?", ("Melanie: I ran a race", "Caroline: I ran a race"), [1, 0]),  # the speaker
    ("key", (), []),
])
def test_the_session_with_the_rare_word_comes_first_and_the_rest_keeps_the_order_of_time(question, talks, order):
    said = [talk.rpartition(": ") for talk in talks]
    sessions = tuple(Session(str(n), (Turn(name or "user", text),)) for n, (name, _, text) in enumerate(said))
    assert bm25_order(HistoryQuestion("q", question, (), sessions)) == order
