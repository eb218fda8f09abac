"""``mem-agent prepare --babilong``: documents that hide facts in a book, training and evaluation apart."""

import json
import re
from random import Random

import pytest

from mem_agent import prepare_data
from mem_agent.data import babilong
from mem_agent.data.babi import Story, read_babi
from mem_agent.data.rows import SourceRow
from mem_agent.rewards.babi import PEOPLE, PLACES, THINGS, read_fact
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

SENTENCE = "It was in the {} year that she told him about the old house on the hill."
BOOK = " ".join(SENTENCE.format(f"{side}{number}") for side in "ab" for number in range(60))
BABI = """1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Daniel went back to the hallway.
5 Where is Daniel? \thallway\t4
1 Sandra moved to the garden.
2 Sandra went to the office.
3 Where is Sandra? \toffice\t2
"""


@pytest.fixture
def prepare(tmp_path):
    make_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "book.txt").write_text(BOOK)

    def run(*flags, output="out"):
        folder = tmp_path / output
        code = prepare_data.main([
            "--babilong", "qa1,qa5", "--lengths", "0k,400", "--background", str(tmp_path / "book.txt"),
            "--tokenizer", str(tmp_path / "model"), "--output", str(folder), "--samples", "6", "--rows", "40",
            "--train-lengths", "300", *flags])
        train = folder / "train.jsonl"
        return code, folder, list(map(json.loads, train.read_text().splitlines())) if train.exists() else []

    return run


def entries(folder, name):
    return json.loads((folder / f"eval_{name}.json").read_text())


def test_files_hold_facts_in_order_between_sentences_and_the_two_sides_share_nothing(prepare):
    code, folder, train = prepare()
    assert code == 0 and len(train) == 40
    facts_alone, hidden = entries(folder, "qa1_0k"), entries(folder, "qa1_400")
    assert [entry["input"] for entry in facts_alone] == [entry["input"] for entry in hidden]  # at every length
    for short, long in zip(facts_alone, hidden, strict=True):
        facts = [f"{fact}." for fact in short["context"].rstrip(".").split(". ")]
        assert all(map(read_fact, facts)) and short["answers"][0] in short["context"]
        at = -1
        for fact in facts:
            assert (at := long["context"].find(fact, at + 1)) >= 0
        assert not any(f" a{number} " in long["context"] for number in range(60))
        assert long["task"] == "babilong" and long["metadata"] == {"babi": "qa1"}
    told = {entry["context"] for name in ("qa1_0k", "qa5_0k") for entry in entries(folder, name)}
    for row in train:
        assert " ".join(row["metadata"]["facts"]) not in told and not any(
            f" b{number} " in row["metadata"]["context"] for number in range(60))


def test_questions_share_documents_and_a_second_run_leaves_files_as_they_are(prepare):
    _, folder, train = prepare("--questions", "3", "--together", "2")
    documents = [row["metadata"]["context"] for row in train]
    runs = [documents.count(document) for document in dict.fromkeys(documents)]
    assert max(runs) == 3 and len(runs) < 40
    asked = entries(folder, "qa5_400")
    assert len({entry["context"] for entry in asked}) < 6 == len({entry["index"] for entry in asked})
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert prepare("--questions", "3", "--together", "2")[0] == 0
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert prepare("--seed", "7")[0] == 2


def test_a_document_has_the_wanted_tokens():
    count = lambda text: len(text.split())  # noqa: E731
    book = babilong.Book.of([SENTENCE.format(number) for number in range(5)], count)
    story = Story(("Mary went to the office.",), ())
    for tokens in (20, 47, 300):
        assert count(babilong.hidden(story, tokens, book, Random(1), count)) == tokens
    assert babilong.hidden(story, 3, book, Random(1), count) == story.facts[0]


def test_trainings_background_names_people_places_and_things_and_tells_no_fact():
    sentences = ["As for Ruth, she went to the city and then took the bread to her mother.", "They went to the city."]
    book = babilong.Book(sentences, [0, 15, 20])
    count = lambda text: len(text.split())  # noqa: E731
    text = babilong.hidden(Story((), ()), 2000, book, Random(1), count, renamed=True)
    for name in (*PEOPLE, *PLACES, *THINGS):
        assert name in text
    assert not any(map(read_fact, re.split(r"(?<=\.) ", text)))


def test_babis_own_files_and_published_samples(prepare, tmp_path, monkeypatch):
    files = tmp_path / "en-10k"
    files.mkdir()
    for side in ("train", "test"):
        (files / f"qa1_single-supporting-fact_{side}.txt").write_text(BABI)
    found = list(read_babi(files / "qa1_single-supporting-fact_test.txt"))
    assert [len(story.facts) for story in found] == [2, 3, 2]
    assert found[1].asked == (("Where is Daniel?", "hallway"),) and found[2].facts[0].startswith("Sandra")
    published = [{"input": "It rained. Mary went to the office.", "question": "Where is Mary? ", "target": "office"}]
    asked = []

    def hub(name, split, config=None):
        asked.append((name, split, config))
        return iter([SourceRow("row 1", row) for row in published])

    monkeypatch.setattr(babilong, "open_dataset", hub)
    _, folder, _ = prepare("--published", "RMT-team/babilong", output="hub")
    assert asked[0] == ("RMT-team/babilong", "qa1", "0k") and len(asked) == 4
    (entry,) = entries(folder, "qa1_400")
    assert (entry["input"], entry["answers"]) == ("Where is Mary?", ["office"])
    assert entry["context"] == published[0]["input"]


@pytest.mark.parametrize("flags", [
    ["--babilong", "qa9"], ["--lengths", "one"], ["--background", "absent.txt"], ["--babi", "absent"]])
def test_options_that_cannot_be_used_write_nothing(prepare, flags):
    code, folder, _ = prepare(*flags)
    assert code == 2 and not list(folder.glob("*.json*"))
