"""The one-prompt baselines: what the prompt holds, what is cut, which passages are found."""

import json

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.evaluation.results import read_rows
from mem_agent.evaluation.retrieval import WORDS, Bm25, best, retriever_for, split_passages
from mem_agent.evaluation.run import engine_config, run
from mem_agent.tests.helpers.evaluations import CONFIG, RED, entry, make_model
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

PEOPLE = ("Anna", "Ben", "Carla", "Dan", "Eva", "Finn")
DOCUMENT = "\n\n".join(f"Document {i}:\n{name}\n{name} has the key number {i}." for i, name in enumerate(PEOPLE, 1))


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "model")


def test_passages_are_the_numbered_documents_with_what_stands_before_them():
    assert split_passages(DOCUMENT)[1] == "Document 2:\nBen\nBen has the key number 2."
    assert len(split_passages(DOCUMENT)) == 6
    assert split_passages("Preface\n\nDocument 1:\nA")[0] == "Preface"
    assert split_passages(" \n") == []


def test_running_text_is_cut_by_words():
    words = [f"w{i}" for i in range(2 * WORDS + 1)]
    passages = split_passages("  ".join(words))
    assert [len(p.split()) for p in passages] == [WORDS, WORDS, 1] and " ".join(passages).split() == words


def test_bm25_finds_the_rare_words_of_the_question():
    passages = split_passages(DOCUMENT)
    assert Bm25().rank("Which key does Carla have?", passages, 1) == [2]
    assert sorted(Bm25().rank("Ben or Eva?", passages, 2)) == [1, 4]
    assert Bm25().rank("Nothing of this", passages, 2) == [0, 1] and len(Bm25().rank("Eva", passages, 99)) == 6


PASSAGES = [
    "Anna Berg founded the red house in Oslo in 1871.",
    "The house of Oslo was painted red, red and red again.",
    "Ben Dahl, a painter, was born in Bergen.",
    "Carla wrote the history of Oslo and of the rivers around it, which fill the long valley behind the red hills.",
    "The key.",
    "Anna Berg and Ben Dahl met in 1871 at the river.",
]
# bm25s 0.3.16, method "lucene", of the same words.
ORDERS = [
    ("Who founded the red house?", [0, 1, 3, 2, 4, 5]),
    ("When did Anna Berg meet Ben Dahl?", [5, 2, 0, 1, 3, 4]),
    ("red red Oslo", [1, 0, 3, 2, 4, 5]),
    ("history of the river in Bergen", [2, 5, 3, 0, 1, 4]),
    ("What is the key to 1871?", [4, 0, 5, 1, 2, 3]),
]


@pytest.mark.parametrize("question,order", ORDERS)
def test_bm25_orders_as_the_library_does(question, order):
    assert Bm25().rank(question, PASSAGES, 6) == order


def test_equal_scores_keep_their_order():
    import numpy as np

    assert best(np.array([1.0, 3.0, 3.0, 0.0]), 3) == [1, 2, 0]


def test_an_embedding_retriever_needs_its_model():
    with pytest.raises(ConfigError, match="EVAL_EMBEDDING is not set"):
        retriever_for(Config(eval_retriever="embedding"))


def answer(tmp_path, model, **settings):
    """The row and the last prompt's text of one question about DOCUMENT."""
    data = [entry(0, context=DOCUMENT, input="Which key does Carla have?")]
    (tmp_path / "eval_50.json").write_text(json.dumps(data))
    router = FakeRouter(default=RED)
    with running_beside(router):
        config = engine_config(Config(**{**vars(CONFIG), **settings}), model)
        run(tmp_path, ["50"], model, f"http://127.0.0.1:{router.port}", config, tmp_path / "out", True)
    (row,) = read_rows(tmp_path / "out", "50")
    return row, make_tokenizer().decode(router.requests[-1]["token_ids"])


def test_direct_shows_the_whole_document_in_one_prompt(tmp_path, model):
    row, prompt = answer(tmp_path, model, eval_mode="direct")
    assert DOCUMENT in prompt and "Which key does Carla have?" in prompt
    assert row.counts["dropped_tokens"] == 0 and row.counts["turns"] == 1 and row.scores["em"] == 1.0
    assert row.memory_tokens == () and row.mode == "direct"


def test_direct_cuts_the_centre_of_what_does_not_fit_and_says_how_much(tmp_path, model):
    row, prompt = answer(tmp_path, model, eval_mode="direct", engine_max_len=256)
    counts = row.counts
    assert counts["prompt_tokens"] + CONFIG.mem_max_final == 256 and counts["dropped_tokens"] > 0
    assert "Anna" in prompt and "number 6." in prompt and "number 3." not in prompt
    assert counts["document_tokens"] == len(make_tokenizer().encode(DOCUMENT, add_special_tokens=False))


def test_rag_shows_the_best_passages_in_reading_order(tmp_path, model):
    row, prompt = answer(tmp_path, model, eval_mode="rag", eval_top_k=2, engine_max_len=1024)
    assert "Carla has the key" in prompt and prompt.count("has the key number") == 2
    assert prompt.index("Document 1:") < prompt.index("Document 3:")
    assert (row.counts["passages"], row.counts["retrieved"]) == (6, 2)


@pytest.mark.parametrize("mode,other", [("direct", "rag"), ("rag", "direct")])
def test_a_mode_may_be_worded(tmp_path, model, mode, other):
    (tmp_path / "p.yaml").write_text(
        f"{mode}: 'READ {{section}} THEN {{problem}} NOW'\n{other}: 'not {{section}} {{problem}}'"
    )
    _, prompt = answer(tmp_path, model, eval_mode=mode, mem_prompts=str(tmp_path / "p.yaml"), engine_max_len=1024)
    assert "READ Document 1:" in prompt and " THEN Which key does Carla have? NOW" in prompt
    assert "Solve the problem" not in prompt and "not " not in prompt


def test_a_question_without_room_for_a_document_fails_with_a_reason(tmp_path, model):
    row, _ = answer(tmp_path, model, eval_mode="direct", engine_max_len=40)
    assert (row.failure, row.scores["sub_em"]) == ("long_prompt", 0.0)
