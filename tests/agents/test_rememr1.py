"""ReMemR1: what is kept, recalled and shown, the libraries' own order, how replies are read, what turns earn."""

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from mem_agent.agents.prompts import TEXTS
from mem_agent.agents.recall import WordCounter, bm25, history_by, tfidf, words
from mem_agent.agents.rememr1 import read_reply
from mem_agent.config import Config
from mem_agent.tests.helpers.scripted import build, read

NONE = "Nothing was recalled."


def reply(update, recall=""):
    return f"<thinking>so</thinking>\n<update>{update}</update>" + (f"\n<recall>{recall}</recall>" if recall else "")


def run(replies, args="", chunks=4, **settings):
    return read(replies, chunks, args, agent="rememr1", **{"mem_max_memory": 200, "question": "who?"} | settings)


def shown(run, name="recalled"):
    return [prompt.split(f"<{name}>\n")[-1].split(f"\n</{name}>")[0] for prompt in run.prompts]


def test_a_recalled_memory_is_shown_in_the_next_turn_only():
    one = run([reply("Anna has it"), reply("Ben sleeps", "Anna"), reply("Ben eats", "sleeps"), reply("x"), "y"])
    assert one.memories == ["Anna has it", "Ben sleeps", "Ben eats", "x"] and one.kinds == "mmmmf"
    assert shown(one, "memory") == ["Nothing yet.", *one.memories]
    assert shown(one) == [NONE, NONE, "Anna has it", "Ben sleeps", NONE]
    assert [one.count(name) for name in ("updates", "recalls", "recall_hits", "format_failures")] == [4, 2, 2, 0]
    final = run([reply("Anna has it"), reply("b", "Anna"), "x"], chunks=2)
    assert shown(final)[2] == "Anna has it" and shown(final, "memory")[2] == "b"
    kept = run([reply("red key"), "no tags", TEXTS["revisit"], reply("d"), "x"])  # no update, and the prompt's example
    assert kept.memories == ["red key", "red key", "red key", "d"]
    assert [kept.count(name) for name in ("empty_updates", "updates", "format_failures")] == [2, 2, 2]


RECALLS = {
    "before its memory joins": ([reply("red key"), reply("red key red key", "red key")], "", "red key"),
    "not the memory that is shown": ([reply("red key"), "<recall>red key</recall>"], "", NONE),
    "released evaluation": ([reply("x"), reply("red key", "red key")], "recall_order=add_first", "red key"),
    "by rule the question": ([reply("who has it"), reply("b", "nobody")], "recall_query=question", NONE),  # stop words
    "by nobody": ([reply("red"), reply("b", "red")], "recall_query=none", NONE),
}


@pytest.mark.parametrize("replies,args,found", RECALLS.values(), ids=RECALLS)
def test_what_a_query_finds(replies, args, found):
    assert shown(run([*replies, "x"], args, chunks=2))[2] == found


# --- what is found --------------------------------------------------------------------------------------------------

MEMORIES = ["Anna has the key", "the key is red", "Ben sleeps"]


def history(texts, recall):
    made = history_by(recall)
    for text in texts:
        made = made.add(text)
    return made


@pytest.mark.parametrize("query,found,published", [
    ("who has a key? Anna", 0, 0), ("RED", 1, 1), ("sleeps", 2, 2), ("key", 0, 1), ("blue door", None, 2),
    ("the", None, 1), ("", None, None),  # of equals the older one; as published the newest, with stop words
])
def test_what_is_found(query, found, published):
    expected = [None if place is None else MEMORIES[place] for place in (found, found, published)]
    assert [history(MEMORIES, by).find(query) for by in ("tfidf", "bm25", "tfidf_tokens")] == expected
    assert history(MEMORIES, "tfidf_tokens").find(query, now=expected[2]) == expected[2]  # the present memory too


def test_words_are_lower_case_without_stop_words_and_letters_where_there_are_no_blanks():
    assert words("The Key of ANNA, is 3.5!") == ["key", "anna", "3", "5"]
    assert words("东京塔 Tower") == ["东", "京", "塔", "tower"]


def scores(score, texts, query):
    count = WordCounter()
    return np.array(score([count(text) for text in texts], count(query)))


FOUR = ["ann bob ann", "bob", "car dog eel fox", "ann car"]
# Scores of bm25s 0.3.16, method "lucene".
BM25 = [
    (FOUR, "ann", [0.37216, 0.0, 0.0, 0.30468]), (FOUR, "bob dog", [0.254366, 0.379807, 0.379204, 0.0]),
    (["gnu gnu gnu hen", "gnu"], "gnu hen", [0.324008, 0.099902]),
]


@pytest.mark.parametrize("texts,query,expected", BM25)
def test_tfidf_is_scikit_learns_and_bm25_is_bm25s(texts, query, expected):
    fitted = TfidfVectorizer(analyzer=words)
    cosines = (fitted.fit_transform(texts) @ fitted.transform([query]).T).toarray()[:, 0]
    ours = scores(tfidf, texts, query)
    assert ours / np.linalg.norm(ours) == pytest.approx(cosines / np.linalg.norm(cosines), abs=1e-5)
    assert scores(bm25, texts, query) == pytest.approx(expected, abs=1e-5)


# --- how replies are read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text,update,recall,good", [
    ("<update>a</update>", "a", None, True),
    ("<recall>q r</recall> <thinking>t</thinking><update>\n a\nb </update> end", "a\nb", "q r", True),
    ("<update>a</update><recall>q", "a", None, False),
    ("<thinking>t <update>a</update>", None, None, False),
    ("<update>a<recall>q</recall></update>", None, None, False),
    ("<thinking>I write <update>x</update> now</thinking><update>a</update>", "a", None, True),
    ("<update>a</update><update>b</update><recall>q</recall>", None, "q", False),
    ("<update>...</update>", None, None, False),
])
def test_readings(text, update, recall, good):
    assert read_reply(text) == (update, recall, good)


# reply | memory | query, as released
RELEASED = [
    ("<thinking>t</thinking><update>a</update>", "<thinking>t</thinking><update>a</update>", False),
    ("<update>a</update> <recall>q</recall>", "<update>a</update>", True),
    ("<recall>q</recall> b <recall>r</recall>", "b", True),
    ("<update>a</update><recall>q1\nq2</recall>", "<update>a</update>", False),
    ("a <recall></recall> b", "a  b", False),
    ("<recall> </recall>", "", True),
]


@pytest.mark.parametrize("text,memory,asks", RELEASED)
def test_the_release_carries_all_but_recalls(text, memory, asks):
    one = run([text, "x"], "carry=reply recall=tfidf_tokens", 1)
    assert one.memories == [memory] and one.count("recalls") == asks
    assert shown(one, "memory")[1] == memory  # one that was written empty is shown as nothing


# --- what turns earn ----------------------------------------------------------------------------------------------


def test_the_released_state_rewards():
    """The prompt of the second turn shows the memory, so it has one of the two words of the gold."""
    args, replies = "state_reward=published", [reply("it is zed"), "<update>it is\na zed KEY</update>"]
    one = run([*replies, "\\boxed{zed}, \\boxed{KEY}"], args, 2)
    agent = build(Config(agent="rememr1", agent_args=args))
    assert agent.turn_rewards(one.trajectory, ["zed KEY"], {}) == [
        {"format": 1.0, "gain": 1 / 2, "recall": 0.0}, {"format": 0.0, "gain": 0.0, "recall": 0.0}, {"format": 1.0}]
