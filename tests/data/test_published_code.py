"""Evaluation files beside those of the published scripts, on the same raw rows (see ``helpers.published_code``)."""

import json

import pytest

from mem_agent.data.synthesize import main
from mem_agent.evaluation.questions import load_questions
from mem_agent.tests.helpers.published_code import run_published
from mem_agent.tests.helpers.raw_hotpotqa import OWN, flashrag, raw_rows, split_documents

MEMAGENT = ("MEMAGENT_ROOT", ("taskutils/memory_data", "taskutils/memory_eval"))
REMEMR1 = ("REMEMR1_ROOT", ("taskutils/data_synthesis",))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published")
    rows = raw_rows(80)
    (folder / "hotpotqa_dev.json").write_text(json.dumps(rows))
    (folder / "flashrag.json").write_text(json.dumps([flashrag(row) for row in rows]))
    return folder


def read(path):
    return json.loads(path.read_text())


def synthesize(raw, output, *flags):
    return main(["--raw", str(raw), "--output", str(output), *flags])


def test_documents_by_number_are_those_that_memagent_reads(folder):
    run_published(*MEMAGENT, """
import json, random
import different_docs_eval as files, ruler_hqa_over1m as over
random.seed(42)
qas, docs = files.read_hotpotqa("hotpotqa_dev.json")
order = [3, 70, 0, *range(20, 60)]
files.generate_dataset(order, "eval_12800", 12800, qas, docs)
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


def test_the_published_layout_is_memagents_but_for_the_strangers(folder, tmp_path):
    run_published(*MEMAGENT, """
import json, random
import different_docs_eval as files
random.seed(42)
qas, docs = files.read_hotpotqa("hotpotqa_dev.json")
files.generate_dataset(list(range(5, 45)), "eval_60", 60, qas, docs)
""", folder)
    published, raw = folder / "eval_60.json", folder / "hotpotqa_dev.json"
    flags = ("--lengths", "60", "--published-layout", "--published-questions", str(published))
    assert synthesize(raw, tmp_path, *flags) == 0
    rows = read(raw)
    for theirs, ours in zip(read(published), read(tmp_path / "eval_60.json"), strict=True):
        assert (ours["input"], ours["answers"]) == (theirs["input"], theirs["answers"])
        own = {f"{title}\n{''.join(text)}" for title, text in rows[theirs["index"]]["context"]}
        places = [[(at, text) for at, text in enumerate(split_documents(entry["context"])) if text in own]
                  for entry in (theirs, ours)]
        assert places[0] == places[1] and len(places[0]) == OWN


def test_the_subsets_of_distant_evidence_are_rememr1s(folder, tmp_path):
    run_published(*REMEMR1, """
import json
given = {"dev": json.load(open("flashrag.json"))}
import process_test as files
qas, docs = files.read_dataset("hotpotqa")
for n in (400, 600):
    files.generate_dataset(len(qas) + 1, f"remem_{n}", "hotpotqa", n, qas, docs)
""", folder)
    count = str(len(read(folder / "remem_400.json")))
    flags = ("--lengths", "400 600", "--published-layout", "--distant-evidence", "--questions", count)
    assert synthesize(folder / "flashrag.json", tmp_path, *flags) == 0
    compared = 0
    for subset in ("400_min_distance_100", "400_min_distance_200", "600_min_distance_100", "600_min_distance_200",
                   "600_min_distance_400"):
        paths = folder / f"remem_{subset}.json", tmp_path / f"eval_{subset}.json"
        assert paths[0].exists() == paths[1].exists()
        if not paths[0].exists():
            continue
        theirs, ours = ({entry["id"]: entry for entry in read(path)} for path in paths)
        assert theirs.keys() == ours.keys()
        for name, entry in ours.items():
            assert entry["evidence"] == theirs[name]["evidence_idx"]
            assert entry["min_distance"] == theirs[name]["min_distance"]
            texts = [split_documents(each["context"]) for each in (entry, theirs[name])]
            assert [texts[0][at] for at in entry["evidence"]] == [texts[1][at] for at in entry["evidence"]]
        compared += len(ours)
    assert compared > 20
