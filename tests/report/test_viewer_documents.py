"""Documents of the page of trajectories: what is made of one is in proportion to its length, however many name it."""

import random
from zlib import decompress

import orjson
import pytest

from mem_agent.report.viewer import packed_documents, write_viewer
from mem_agent.report.viewer.budget import choose, written
from mem_agent.report.viewer.facts import facts_of
from mem_agent.report.viewer.groups import Place
from mem_agent.report.viewer.pack import PackedGroup
from mem_agent.report.viewer.packed_documents import CUTS, PackedDocument, PackedDocuments
from mem_agent.tests.helpers.traces import write
from mem_agent.traces.trace import Trace, TraceDocument


def words(seed, count=90):
    drawn = random.Random(seed)
    return " ".join(f"w{drawn.randrange(10**6)}" for _ in range(count))


@pytest.fixture
def counted(monkeypatch):
    """What was deflated, and the sections that were searched."""
    made = {"deflated": [], "_cut": []}
    for name, into in made.items():
        monkeypatch.setattr(packed_documents, name, noting(getattr(packed_documents, name), into))
    return made


def noting(function, into):
    def call(first, *others):
        into.append(first)
        return function(first, *others)

    return call


def test_a_document_is_whole_once_and_cut_for_each_set_of_answers(counted):
    document = TraceDocument(id="d", sections=tuple(f"{words(at, 400)} gold{at}" for at in range(20)))
    documents = PackedDocuments()
    asked = [("gold1",), ("gold2",), ("gold1",), ("nowhere",)]
    keys = [documents.key_of(document, "hash", facts_of(golds)) for golds in asked]
    assert keys[0] == keys[2] and len({*keys}) == 3 == len(documents.by_key)
    assert counted["deflated"].count(document.sections) == 1 and len(counted["_cut"]) == 3 * 20
    for golds, key in zip(asked, keys, strict=True):
        found = documents.by_key[key]
        cut = orjson.loads(decompress(found.cut))
        whole = [section for section in cut if isinstance(section, str)]
        assert whole == [section for section in document.sections if section.endswith(f" {golds[0]}")]
        assert orjson.loads(decompress(found.whole)) == list(document.sections) and found.content == "hash"


@pytest.mark.parametrize(("sections", "golds"), [
    ((words(0, 9_000),), "nowhere"), (tuple(f"{words(at, 40)} gold{at}" for at in range(200)), "gold"),
    ((words(0, 3),), "nowhere"),
], ids=["short forms", "forms nearly as long as the whole", "nothing to cut"])
def test_behind_so_many_forms_a_document_is_whole(counted, sections, golds):
    document, documents = TraceDocument(id="d", sections=sections), PackedDocuments()
    keys = [documents.key_of(document, "hash", facts_of([f"{golds}{at}"])) for at in range(200)]
    assert keys[-1] == "hash" and len(counted["_cut"]) <= CUTS * len(sections)
    assert counted["deflated"].count(sections) <= 1 + (len(sections[0]) < 240) * CUTS
    found = documents.by_key["hash"]
    assert found.cut is found.whole
    cuts = [each.cut for key, each in documents.by_key.items() if key != "hash"]
    assert sum(map(len, cuts)) < len(found.whole)


def test_a_document_that_questions_cut_differently_is_in_the_page_once(tmp_path):
    sections = (words(1, 200), words(2, 200))
    golds = [section.split()[3] for section in sections]
    questions = [Trace(id=gold, question_id=gold, golds=(gold,), document="d") for gold in golds]
    write(tmp_path, "50", [TraceDocument(id="d", sections=sections), *questions])
    page = write_viewer(tmp_path, tmp_path / "view.html").read_text()
    assert page.count('<script type="text/plain"') == len(("index", "document", "texts", "texts"))


def test_the_whole_of_several_forms_is_paid_for_once():
    documents = {name: PackedDocument(name, bytes(300), bytes(30), "whole") for name in "ab"}
    groups = [PackedGroup({"siblings": [0]}, Place(0), (name,), bytes(60), None) for name in "ab"]
    room = 2 * (written(bytes(60)) + written(bytes(30)))
    assert choose(groups, documents, room).whole == frozenset()
    more = written(bytes(300)) - written(bytes(30))
    assert choose(groups, documents, room + more - 1).whole == frozenset()
    assert choose(groups, documents, room + more).whole == {"a", "b"}


def test_a_document_that_is_not_cut_is_whole_in_every_choice():
    documents = {"whole": PackedDocument("whole", bytes(300), bytes(300), "whole")}
    groups = [PackedGroup({"siblings": [0]}, Place(at), ("whole",), bytes(60), None) for at in range(2)]
    room = 2 * written(bytes(60)) + written(bytes(300))
    for given, kept in ((room, 2), (room - 1, 1)):
        found = choose(groups, documents, given)
        assert (len(found.groups), found.whole) == (kept, {"whole"})
