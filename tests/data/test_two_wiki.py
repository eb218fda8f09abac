"""2WikiMultiHopQA's raw files (train.json, dev.json of its authors): prepared and synthesised as HotpotQA's."""

import json

import pytest

from mem_agent.data.eval_files import main as synthesize
from mem_agent.prepare_data import main as prepare
from mem_agent.tests.helpers.question_rows import rows_of
from mem_agent.tests.helpers.raw_hotpotqa import split_documents


def raw_row(number):
    """The official shape: sentences without blanks between them, triples as evidence, up to four supporting facts."""
    film, director, other = f"Film {number} (film)", f"Director {number}", f"Other {number}"
    context = [[film, [f"Film {number} is a film.", f"It was made by Director {number}."]],
               [other, ["It holds nothing."]],
               [director, [f"Director {number} was born in 19{number:02}.", f"He is from Town {number}."]]]
    return {"_id": f"{number:032x}", "type": "compositional", "question": f"Where is the director of {number} from?",
            "context": context, "supporting_facts": [[film, 1], [director, 1]],
            "evidences": [[film, "director", director], [director, "place of birth", f"Town {number}"]],
            "answer": f"Town {number}", "entity_ids": "Q1_Q2", "evidences_id": [["Q1", "director", "Q2"]],
            "answer_id": "Q2"}


def put(path, rows):
    path.write_text(json.dumps(rows))
    return path


@pytest.fixture
def raw(tmp_path):
    return put(tmp_path / "dev.json", [raw_row(number) for number in range(40)])


TEXT = "Film 7 (film)\nFilm 7 is a film. It was made by Director 7."


def test_prepared_rows_have_the_paragraphs_with_blanks_between_sentences(raw, tmp_path):
    assert prepare(["--input", str(raw), "--output", str(tmp_path / "train.jsonl")]) == 0
    row = rows_of(tmp_path / "train.jsonl")[7]
    assert (row["label"], row["metadata"]["id"], row["metadata"]["type"]) == ("Town 7", f"{7:032x}", "compositional")
    assert split_documents(row["metadata"]["context"]) == [
        TEXT, "Other 7\nIt holds nothing.", "Director 7\nDirector 7 was born in 1907. He is from Town 7.",
    ]


def test_synthesised_files_have_the_same_paragraphs_and_their_evidence(raw, tmp_path):
    flags = ["--raw", str(raw), "--output", str(tmp_path / "out"), "--lengths", "60", "--questions", "40",
             "--processes", "1", "--distant-evidence", "20"]
    assert synthesize(flags) == 0
    entries = {entry["id"]: entry for entry in json.loads((tmp_path / "out" / "eval_60.json").read_text())}
    entry = entries[f"{7:032x}"]
    assert entry["supporting"] == ["Film 7 (film)", "Director 7"] and entry["answers"] == ["Town 7"]
    assert TEXT in split_documents(entry["context"])
    for far in json.loads((tmp_path / "out" / "eval_60_min_distance_20.json").read_text()):
        titles = [text.split("\n")[0] for text in split_documents(far["context"])]
        film, director = (titles[place] for place in far["evidence"])
        assert (film.split()[0], director.split()[0]) == ("Film", "Director")
