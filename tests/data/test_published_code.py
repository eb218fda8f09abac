"""Evaluation files beside those of the published scripts, on the same raw rows (see ``helpers.published_code``)."""

import json

import pytest

from mem_agent.data.synthesize import main
from mem_agent.evaluation.questions import load_questions
from mem_agent.tests.helpers.published_code import run_published
from mem_agent.tests.helpers.raw_hotpotqa import OWN, flashrag, raw_rows, split_documents

MEMAGENT = ("MEMAGENT_ROOT", ("taskutils/memory_data", "taskutils/memory_eval"))
REMEMR1 = ("REMEMR1_ROOT", ("taskutils/data_synthesis",))


@pytest.fixture
def folder(tmp_path):
    rows = raw_rows(80)
    (tmp_path / "hotpotqa_dev.json").write_text(json.dumps(rows))
    (tmp_path / "flashrag.json").write_text(json.dumps(list(map(flashrag, rows))))
    return tmp_path


def read(path):
    return json.loads(path.read_text())


def synthesize(raw, *flags):
    return main(["--raw", str(raw), "--output", str(raw.parent / "ours"), "--published-layout", *flags])


def test_documents_by_number_and_the_published_layout_are_memagents_but_for_the_strangers(folder):
    run_published(*MEMAGENT, """
import json, random
import different_docs_eval as files, ruler_hqa_over1m as over
random.seed(42)
qas, docs = files.read_hotpotqa("hotpotqa_dev.json")
order = [3, 70, 0, *range(20, 60)]
for n in (60, 12800):
    files.generate_dataset(order, f"eval_{n}", n, qas, docs)
files.QAS, files.DOCS = qas, docs
json.dump([files.generate_index_only(index, 50) for index in order], open("eval_50.json", "w"))
over.DOCS = docs
for n in (50, 12800):
    texts = [over.set_context(entry)["context"] for entry in json.load(open(f"eval_{n}.json"))]
    json.dump(texts, open(f"texts_{n}.json", "w"))
""", folder)
    for length in ("50", "12800"):
        entries = list(load_questions(folder, length))
        assert [entry.context for entry in entries] == read(folder / f"texts_{length}.json") and len(entries) == 43
        assert [entry.question.id for entry in entries][:3] == ["3", "70", "0"]
    published, raw = folder / "eval_60.json", folder / "hotpotqa_dev.json"
    assert synthesize(raw, "--lengths", "60", "--published-questions", str(published)) == 0
    rows = read(raw)
    for theirs, ours in zip(read(published), read(folder / "ours" / "eval_60.json"), strict=True):
        assert (ours["input"], ours["answers"]) == (theirs["input"], theirs["answers"])
        own = {f"{title}\n{''.join(text)}" for title, text in rows[theirs["index"]]["context"]}
        places = [[(at, text) for at, text in enumerate(split_documents(entry["context"])) if text in own]
                  for entry in (theirs, ours)]
        assert places[0] == places[1] and len(places[0]) == OWN


def test_the_subsets_of_distant_evidence_are_rememr1s(folder):
    run_published(*REMEMR1, """
import json
given = {"dev": json.load(open("flashrag.json"))}
import process_test as files
qas, docs = files.read_dataset("hotpotqa")
files.generate_dataset(len(qas) + 1, "eval_600", "hotpotqa", 600, qas, docs)
""", folder)
    count = str(len(read(folder / "eval_600.json")))
    assert synthesize(folder / "flashrag.json", "--lengths", "600", "--distant-evidence", "--questions", count) == 0
    subsets = {path.name for path in folder.glob("eval_600_*")}
    assert subsets == {path.name for path in folder.glob("ours/eval_600_*")} and len(subsets) == 2
    for name in subsets:
        theirs, ours = ({entry["id"]: entry for entry in read(path / name)} for path in (folder, folder / "ours"))
        assert theirs.keys() == ours.keys()
        for other, own in ((theirs[name], ours[name]) for name in ours):
            assert (own["evidence"], own["min_distance"]) == (other["evidence_idx"], other["min_distance"])
            texts = [split_documents(entry["context"]) for entry in (own, other)]
            assert [texts[0][at] for at in own["evidence"]] == [texts[1][at] for at in own["evidence"]]
