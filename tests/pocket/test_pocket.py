"""The tasks: honest documents and histories."""

import hashlib
import itertools
import json

import pytest

from mem_agent.data.document_store import DocumentStore, store_folder
from mem_agent.data.training_file import DataSource
from mem_agent.evaluation.questions import load_questions
from mem_agent.hooks.reader import question_of
from mem_agent.pocket.prepare import EVAL_SEED, FIRST_TRAIN_SEED, LENGTHS, prepare
from mem_agent.pocket.sifter import histories, stored

TRAIN_FILES = {"look-up": "86ad9d2ddf969d1e", "two-hop": "5a1116c3fa02f9da", "sifter": "2729f8268af34b0f"}
"""The beginning of SHA-256 of ``train.jsonl`` of seed 1: published figures are of these documents."""


@pytest.mark.parametrize("name", TRAIN_FILES)
def test_files_are_those_of_published_figures_and_evaluation_is_never_trained_on(name, tmp_path):
    prepare(tmp_path, 1, name)
    assert hashlib.sha256((tmp_path / "train.jsonl").read_bytes()).hexdigest()[:16] == TRAIN_FILES[name]
    source = DataSource(tmp_path / "train.jsonl", 1)
    read = [source.row(number) for number in range(len(source))]
    trained = {(row.metadata.get("context", ""), question_of(row)) for row in read}
    for length in LENGTHS[name]:
        held_out = {(entry.context, entry.question.text) for entry in load_questions(tmp_path, length)}
        assert held_out and not trained & held_out


# --- the sifter -----------------------------------------------------------------------------------------------------


def test_histories_have_what_the_reward_and_the_measure_need(tmp_path):
    prepare(tmp_path, 1, "sifter")
    documents = DocumentStore(store_folder(tmp_path / "train.jsonl"))
    with (tmp_path / "train.jsonl").open() as lines:
        rows = [json.loads(line) for line in lines]
    drawn = zip(rows, histories(FIRST_TRAIN_SEED + 1, 4096), strict=True)
    for row, history in itertools.islice(drawn, 0, None, 256):
        document = json.loads(documents.get(row["metadata"]["history_id"]))
        assert document == json.loads(stored(history))
        assert document["sessions"][history.gold][0]["content"].endswith(f" {history.answer}.")
    entries = json.loads((tmp_path / "eval_sifter.json").read_text())
    for entry, history in zip(entries, histories(EVAL_SEED, 200), strict=True):
        assert entry["input"] == history.prompt() and entry["metadata"]["gold"] == [history.gold]
