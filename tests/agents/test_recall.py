"""Retrieval over a trajectory's memories: the libraries' own order, what matches nothing, values unchanged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from mem_agent.agents.recall import WordCounter, bm25, history_by, tfidf, words
from mem_agent.system.errors import ConfigError

TEXTS = ["Anna has the key", "the key is red", "Ben sleeps"]


def history(texts, recall="tfidf", **kwargs):
    made = history_by(recall, **kwargs)
    for text in texts:
        made = made.add(text)
    return made


@pytest.mark.parametrize("recall", ["tfidf", "bm25"])
@pytest.mark.parametrize("query,found", [
    ("who has a key? Anna", 0), ("RED", 1), ("sleeps", 2), ("key", 0),  # two of two words have it, so the older one
    ("blue door", None), ("who has the", None), ("", None), ("?!", None),
])
def test_what_is_found(recall, query, found):
    assert history(TEXTS, recall).find(query) == (None if found is None else TEXTS[found])


def test_words_are_lower_case_without_stop_words_and_letters_where_there_are_no_blanks():
    assert words("The Key of ANNA, is 3.5!") == ["key", "anna", "3", "5"]
    assert words("东京塔 Tower") == ["东", "京", "塔", "tower"]


WORDS = st.sampled_from("ann bob car dog eel fox gnu hen".split())
DOCUMENTS = st.lists(st.lists(WORDS, min_size=1, max_size=9).map(" ".join), min_size=1, max_size=9)
QUERY = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)


def scores(score, texts, query):
    count = WordCounter()
    return np.array(score([count(text) for text in texts], count(query)))


@settings(max_examples=100)
@given(DOCUMENTS, QUERY)
def test_tfidf_is_scikit_learns(texts, query):
    fitted = TfidfVectorizer(analyzer=words)
    theirs = (fitted.fit_transform(texts) @ fitted.transform([query]).T).toarray()[:, 0]
    ours = scores(tfidf, texts, query)
    length = np.sqrt((ours**2).sum() / (theirs**2).sum()) if theirs.any() else 1.0  # the query's own, one for all
    assert ours == pytest.approx(theirs * length, abs=1e-5)


FOUR = ["ann bob ann", "bob", "car dog eel fox", "ann car"]
# Scores of bm25s 0.3.16, method "lucene".
BM25 = [
    (FOUR, "ann", [0.37216, 0.0, 0.0, 0.30468]),
    (FOUR, "bob dog", [0.254366, 0.379807, 0.379204, 0.0]),
    (["gnu gnu gnu hen", "gnu"], "gnu hen", [0.324008, 0.099902]),
]


@pytest.mark.parametrize("texts,query,expected", BM25)
def test_bm25_is_bm25s(texts, query, expected):
    assert scores(bm25, texts, query) == pytest.approx(expected, abs=1e-5)


def test_an_embedding_model_that_is_none_is_named():
    with pytest.raises(ConfigError, match="/nowhere"):
        history(["a"], "embedding", model="/nowhere")


# --- as published -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query,found", [
    ("Has A KEY", 0), ("the", 1),  # stop words count; both have one, in memories of 4 words
    ("blue door", 2), (" ", 2),  # nothing matches, and the newest is found
])
def test_the_published_retriever_always_finds_something(query, found):
    held = history(TEXTS, "tfidf_tokens")
    assert held.find(query) == TEXTS[found] == held.find(query, now=TEXTS[found])  # the present memory too


def tokenize(text):
    """As byte-level vocabularies write tokens, ``_`` for a blank's sign."""
    return text.replace("_", "\u0120").split()


LETTERS = st.lists(st.sampled_from(["_a", "a", "b", "_", "C"]), max_size=8).map(" ".join)


@given(st.lists(LETTERS, min_size=1, max_size=9, unique=True), LETTERS)
def test_the_published_order_is_that_of_scikit_learn_over_the_models_tokens(texts, query):
    fitted = TfidfVectorizer(tokenizer=lambda text: [token.replace("\u0120", "") for token in tokenize(text)])
    if any(texts) and query:
        cosines = (fitted.fit_transform(texts) @ fitted.transform([query]).T).toarray()[:, 0]
        found = history(texts, "tfidf_tokens", tokenize=tokenize).find(query)
        assert cosines[texts.index(found)] == pytest.approx(max(cosines), abs=1e-6)
