"""The files of the pocket profile: whatever ends the command, training rows find their histories; none is held out."""

import json

import pytest

from mem_agent.data.document_store import DocumentStore, DocumentWriter, StoreError, store_folder
from mem_agent.pocket import prepare as pocket
from mem_agent.pocket.prepare import main, prepare

ROWS = 8


@pytest.fixture
def train(tmp_path, monkeypatch):
    """The sifter's training file of seed 1."""
    monkeypatch.setattr(pocket, "TRAIN_ROWS", ROWS)
    monkeypatch.setattr(pocket, "EVAL_ROWS", ROWS)
    prepare(tmp_path, 1, "sifter")
    return tmp_path / "train.jsonl"


def stored_histories(train):
    store = DocumentStore(store_folder(train))
    rows = [json.loads(line) for line in train.read_text().splitlines()]
    return sum(row["metadata"]["history_id"] in store for row in rows)


def test_rows_find_their_histories_whatever_ends_the_command(train, monkeypatch):
    old = train.read_bytes()
    for place, name in ((DocumentWriter, "commit"), (pocket, "replacing")):
        with monkeypatch.context() as interrupted, pytest.raises(KeyboardInterrupt):
            interrupted.setattr(place, name, interrupt)
            prepare(train.parent, 2, "sifter")
        assert train.read_bytes() == old and stored_histories(train) == ROWS
    prepare(train.parent, 2, "sifter")
    assert train.read_bytes() != old and stored_histories(train) == ROWS


def interrupt(*_):
    raise KeyboardInterrupt


def test_two_commands_do_not_write_one_file_at_once(train, monkeypatch):
    refused = []

    def another(path):
        with pytest.raises(StoreError, match="is writing this store; wait for it to end") as refusal:
            DocumentWriter(store_folder(path)).add("of another command")
        refused.append(refusal)
        return replacing(path)

    replacing = pocket.replacing
    monkeypatch.setattr(pocket, "replacing", another)
    prepare(train.parent, 2, "sifter")
    assert len(refused) == 1 and stored_histories(train) == ROWS


@pytest.mark.parametrize("seed", ["-999", "-1", "x"])
def test_no_seed_trains_on_what_is_held_out(tmp_path, seed, capsys):
    with pytest.raises(SystemExit):
        main(["--output", str(tmp_path / "data"), f"--seed={seed}"])
    assert f"argument --seed: '{seed}': allowed: a whole number at least 0" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
