"""Subsets of distant evidence: who belongs to one, and the files of them."""

import json

import pytest

from mem_agent.data.distant_evidence import Places, places_of
from mem_agent.data.eval_files import main
from mem_agent.tests.helpers.question_rows import MUSIQUE, put
from mem_agent.tests.helpers.raw_hotpotqa import raw_rows, split_documents

# By hand from the rule in ``distant_evidence``: falling, least gap between neighbours.
PLACES = [
    ((250, 10), True, 240),
    ((10, 250), False, 240),
    ((900, 500, 399), True, 101),
    ((900, 399, 500), False, 101),
    ((250, 10, 250), False, 0),
    ((250, 250), True, 0),
    ((7,), True, 0),
    ((), True, 0),
]


@pytest.mark.parametrize(("places", "falling", "distance"), PLACES)
def test_places_and_their_distance(places, falling, distance):
    found = Places(places)
    assert (found.falling, found.distance) == (falling, distance)
    assert found.belongs_to(100) == (falling and distance >= 100) and not found.belongs_to(241 + 700)


def test_places_are_those_of_the_documents_in_the_order_of_the_facts():
    assert places_of((5, 9, 5), (7, 9, 8, 5)).places == (3, 1, 3)


@pytest.fixture
def raw(tmp_path):
    path = tmp_path / "raw.json"
    path.write_text(json.dumps(raw_rows(60, real=False)))
    return path


def synthesize(raw, output, *flags):
    return main(["--raw", str(raw), "--output", str(output), "--processes", "1", "--lengths", "300", *flags])


def entries(output, name):
    return json.loads((output / f"eval_{name}.json").read_text())


def test_a_subset_holds_questions_whose_evidence_is_far_apart_last_fact_first(raw, tmp_path):
    out = tmp_path / "out"
    assert synthesize(raw, out, "--questions", "12", "--distant-evidence", "100") == 0
    rows = {row["_id"]: row for row in raw_rows(60, real=False)}
    found = entries(out, "300_min_distance_100")
    assert 0 < len(found) <= 12
    for entry in found:
        facts = [title for title, _ in rows[entry["id"]]["supporting_facts"]]
        titles = [text.split("\n")[0] for text in split_documents(entry["context"])]
        assert entry["evidence"] == [titles.index(title) for title in facts] and len(titles) == 300
        assert entry["evidence"][0] - entry["evidence"][1] == entry["min_distance"] >= 100
    plain = tmp_path / "plain"
    assert synthesize(raw, plain, "--questions", "12") == 0
    assert (plain / "eval_300.json").read_bytes() == (out / "eval_300.json").read_bytes()


def test_five_times_as_many_questions_are_looked_at(raw, tmp_path):
    assert synthesize(raw, tmp_path / "out", "--questions", "12", "--distant-evidence", "20") == 0
    assert len(entries(tmp_path / "out", "300_min_distance_20")) == 12  # of 60; of 12 about a third would do
    source = json.loads((tmp_path / "out" / "manifest.json").read_text())["files"]
    assert source["eval_300_min_distance_20.json"]["source"]["min_distance"] == 20


def test_the_same_command_keeps_subsets_and_says_which_are_empty(raw, tmp_path, capsys):
    flags = ("--questions", "12", "--distant-evidence", "20 298", "--published-layout")
    assert synthesize(raw, tmp_path / "out", *flags) == 0 == synthesize(raw, tmp_path / "out", *flags)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == f"{tmp_path}/out/eval_300_min_distance_20.json: there"
    assert lines[-1].endswith("min_distance_298.json: not written, no question has its evidence that far apart")


def test_without_numbers_they_are_the_papers_as_far_as_they_fit(raw, tmp_path):
    assert synthesize(raw, tmp_path / "out", "--questions", "12", "--distant-evidence") == 0
    names = {path.name for path in (tmp_path / "out").glob("eval_*")}
    assert names == {"eval_300.json", "eval_300_min_distance_100.json", "eval_300_min_distance_200.json"}


WRONG = [
    (("--distant-evidence", "300"), "--distant-evidence 300: there is no such distance in 300 documents"),
    (("--lengths", "100", "--distant-evidence"), "--distant-evidence 100: there is no such distance in 100 documents"),
    (("--distant-evidence", "far"), "length 'far'"),
    (("--distant-evidence", "20", "--published-questions", "/eval_50.json"), "give one of the two"),
]


@pytest.mark.parametrize(("flags", "reason"), WRONG)
def test_wrong_use_is_one_line(raw, tmp_path, capsys, flags, reason):
    assert synthesize(raw, tmp_path / "out", *flags) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and reason in errors[0] and not (tmp_path / "out").exists()


def test_data_without_facts_in_an_order_is_refused(tmp_path, capsys):
    raw = put(tmp_path / "musique.jsonl", MUSIQUE)
    flags = ("--questions", "1", "--lengths", "2", "--distant-evidence", "1")
    assert synthesize(raw, tmp_path / "out", *flags) == 1
    assert "no question has two supporting facts in an order; give HotpotQA" in capsys.readouterr().err
