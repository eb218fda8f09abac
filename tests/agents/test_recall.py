"""Retrieval over a trajectory's memories: the libraries' own order, what matches nothing, speed, values unchanged."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from mem_agent.agents import check_agent, recall
from mem_agent.agents.recall import TokenHistory, VectorHistory, WordHistory, bm25, histories, tfidf, words
from mem_agent.checkpoints.hf_model import with_local_models
from mem_agent.config import Config, ConfigError

METHODS = {"tfidf": tfidf, "bm25": bm25}
TEXTS = ["Anna has the key", "the key is red", "Ben sleeps"]


def history(texts, method="tfidf"):
    """Memories are their number, from 1 on."""
    made = WordHistory(METHODS[method])
    for number, text in enumerate(texts, start=1):
        made = made.add((number,), text)
    return made


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "query,found",
    [
        ("who has a key? Anna", (1,)),
        ("RED", (2,)),
        ("sleeps", (3,)),
        ("key", (1,)),  # two of two words have it, so the older one
        ("blue door", None),
        ("who has the", None),  # stop words alone say nothing
        ("", None),
        ("?!", None),
    ],
)
def test_what_is_found(method, query, found):
    assert history(TEXTS, method).find(query) == found


@pytest.mark.parametrize("method", METHODS)
def test_the_memory_that_is_shown_anyway_is_never_recalled(method):
    held = history(TEXTS, method)
    assert held.find("red", now=(2,)) is None and held.find("key", now=(1,)) == (2,)


def test_nothing_is_found_in_nothing():
    assert history([]).find("key") is None and VectorHistory(lambda text: np.ones(2, np.float32)).find("key") is None


def test_a_memory_stands_once_and_an_empty_one_not_at_all():
    held = history(TEXTS)
    assert held.add((1,), "Anna has the key") is held and held.add((), "") is held


def test_histories_are_values():
    before = history(["Anna has the key"])
    after, other = before.add((2,), "a red door"), before.add((3,), "a red wall")
    assert before.find("red") is None and after.find("red") == (2,) and other.find("red") == (3,)
    assert after.find("wall") is None and other.find("door") is None


def test_words_are_lower_case_without_stop_words_and_letters_where_there_are_no_blanks():
    assert words("The Key of ANNA, is 3.5!") == ["key", "anna", "3", "5"]
    assert words("东京塔 Tower") == ["东", "京", "塔", "tower"]
    held = history(["他住在东京", "他住在巴黎"])
    assert held.find("巴黎在哪里") == (2,)


WORDS = st.sampled_from("ann bob car dog eel fox gnu hen".split())
DOCUMENTS = st.lists(st.lists(WORDS, min_size=1, max_size=9).map(" ".join), min_size=1, max_size=9)
QUERY = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)


def scores_of(method, texts, query):
    held = history(texts, method)
    asked = np.zeros(held.held.vocabulary, np.float32)
    for word in words(query):
        if word in held.numbers:
            asked[held.numbers[word]] += 1
    return held.score(held.held, asked)


@settings(max_examples=100)
@given(DOCUMENTS, QUERY)
def test_tfidf_is_scikit_learns(texts, query):
    fitted = TfidfVectorizer(analyzer=words)
    theirs = (fitted.fit_transform(texts) @ fitted.transform([query]).T).toarray()[:, 0]
    ours = scores_of("tfidf", texts, query)
    length = np.sqrt((ours**2).sum() / (theirs**2).sum()) if theirs.any() else 1.0  # the query's own, one for all
    assert ours == pytest.approx(theirs * length, abs=1e-5)


FOUR = ["ann bob ann", "bob", "car dog eel fox", "ann car"]
# Scores of bm25s 0.3.16, method "lucene".
BM25 = [
    (FOUR, "ann", [0.37216, 0.0, 0.0, 0.30468]),
    (FOUR, "bob dog", [0.254366, 0.379807, 0.379204, 0.0]),
    (FOUR, "ann ann eel", [0.744319, 0.0, 0.379204, 0.60936]),
    (["gnu gnu gnu hen", "gnu"], "gnu hen", [0.324008, 0.099902]),
    (["ann"], "ann", [0.115073]),
]


@pytest.mark.parametrize("texts,query,scores", BM25)
def test_bm25_is_bm25s(texts, query, scores):
    assert scores_of("bm25", texts, query) == pytest.approx(scores, abs=1e-5)


@given(DOCUMENTS, QUERY)
def test_texts_counted_at_once_are_those_counted_one_by_one(texts, query):
    held, numbers = recall.count_words(texts)
    scores = bm25(held, recall.count_query(query, numbers, held.vocabulary))
    assert scores == pytest.approx(scores_of("bm25", list(texts), query))


def test_embeddings_by_cosine(monkeypatch):
    vectors = {"red": [1.0, 0.0], "crimson": [0.9, 0.1], "door": [0.0, 1.0], "anti": [-1.0, 0.0]}

    def embed(texts):
        return np.array([vectors[t] / np.linalg.norm(vectors[t]) for t in texts], np.float32)

    model = SimpleNamespace(embed=embed)
    held = VectorHistory(lambda text: model.embed([text])[0])
    for number, text in enumerate(["door", "red"]):
        held = held.add((number + 1,), text)
    assert held.find("crimson") == (2,) and held.find("crimson", now=(2,)) == (1,)
    assert held.add((3,), "anti").find("red", now=(2,)) is None  # nothing above 0


# --- as published -------------------------------------------------------------------------------------------------


def tokens_history(texts, tokens=str.split):
    made = TokenHistory(tokens)
    for number, text in enumerate(texts, start=1):
        made = made.add((number,), text)
    return made


@pytest.mark.parametrize(
    "query,found",
    [
        ("Has A KEY", (1,)),
        ("the", (2,)),  # stop words count; both have one, in memories of 4 words
        ("blue door", (3,)),  # nothing matches, and the newest is found
        (" ", (3,)),
        ("", None),
    ],
)
def test_the_published_retriever_always_finds_something(query, found):
    assert tokens_history(TEXTS).find(query) == found
    assert tokens_history(TEXTS).find(query, now=(found or (9,))) == found  # the present memory too


def test_the_published_history_is_of_texts_and_may_hold_an_empty_one():
    held = tokens_history(["", "Anna", "Anna"])
    assert list(held.memories.values()) == [(1,), (2,)] and held.find("anna") == (2,)
    assert tokens_history([""]).find("anna") is None and tokens_history([]).find("anna") is None
    assert TokenHistory(str.split).add((1,), "a").add((), "").find("b") == ()  # the newest, of nothing


def tokenize(text):
    """As byte-level vocabularies write tokens, ``_`` for a blank's sign."""
    return text.replace("_", "\u0120").split()


LETTERS = st.lists(st.sampled_from(["_a", "a", "b", "_", "C"]), max_size=8).map(" ".join)


@given(st.lists(LETTERS, min_size=1, max_size=9, unique=True), LETTERS)
def test_the_published_order_is_that_of_scikit_learn_over_the_models_tokens(texts, query):
    fitted = TfidfVectorizer(tokenizer=lambda text: [token.replace("\u0120", "") for token in tokenize(text)])
    if not any(texts) or not query:
        return
    cosines = (fitted.fit_transform(texts) @ fitted.transform([query]).T).toarray()[:, 0]
    (number,) = tokens_history(texts, tokenize).find(query)
    assert cosines[number - 1] == pytest.approx(max(cosines), abs=1e-6)


def test_each_method_by_its_setting():
    assert histories(Config(agent="rememr1"))().score is recall.tfidf
    assert histories(Config(mem_recall="bm25"))().score is recall.bm25
    unknown = Config(agent="rememr1", mem_recall="embedding", mem_recall_model="/nowhere")
    with pytest.raises(ConfigError, match="MEM_RECALL_MODEL=/nowhere"):
        histories(unknown)
    with pytest.raises(ConfigError, match="MEM_RECALL_MODEL='/nowhere': no such folder"):
        with_local_models(unknown)
    with pytest.raises(ConfigError, match="MEM_RECALL_MODEL is empty"):
        check_agent(Config(agent="rememr1", mem_recall="embedding"))
