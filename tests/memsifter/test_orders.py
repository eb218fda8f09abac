"""Orders that no trained model gives."""

from mem_agent.agents.recall import words
from mem_agent.memsifter.orders import bm25_order, full_order
from mem_agent.sessions.records import HistoryQuestion, Session, Turn


def asked(question, *talks, role="user"):
    sessions = tuple(Session(str(n), (Turn(role, talk),)) for n, talk in enumerate(talks))
    return HistoryQuestion("q", question, (), sessions)


def test_the_session_with_the_rare_word_comes_first_and_the_rest_keeps_the_order_of_time():
    assert bm25_order(asked("Where is the key?", "Ben sleeps", "We talked a lot", "the key is red", "Ben eats")) == [
        2, 0, 1, 3]


def test_a_speaker_is_found_by_name():
    sessions = (Session("0", (Turn("Melanie", "I ran a race"),)), Session("1", (Turn("Caroline", "I ran a race"),)))
    assert bm25_order(HistoryQuestion("q", "What did Caroline run?", (), sessions)) == [1, 0]


def test_chinese_is_found_by_characters():
    assert bm25_order(asked("小明住在哪里？", "今天天气很好", "我们去吃饭吧", "小明搬到了上海居住")) == [2, 0, 1]


def test_a_short_session_with_the_word_comes_before_a_long_one():
    """The tags of a speaker are words like others, the same for both."""
    talks = ("key and many other different things here", "key")
    assert len(words(f"<user0>{talks[1]}</user>")) == 3
    assert bm25_order(asked("key", *talks)) == [1, 0]


def test_a_full_context_is_cut_at_its_old_end():
    assert full_order(asked("q", "a", "b", "c")) == [2, 1, 0]
    assert full_order(asked("q")) == [] == bm25_order(asked("q"))
