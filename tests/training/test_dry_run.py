"""DRY_RUN=1 for the embedded host: every problem at once, and nothing is written."""

import json

import pytest

from mem_agent.checkpoints.folders import CheckpointError
from mem_agent.config import Config
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.training import train

GOOD = {"prompt": "Which key?", "label": "red", "metadata": {"context": "The key is red."}}
BAD = [
    {"prompt": "Which key?", "metadata": {"context": "The key is red."}},
    {"prompt": "which key " * 400, "label": "red", "metadata": {"context": "The key is red."}},
    {"prompt": "Which key?", "label": "red", "metadata": {}},
]


@pytest.fixture
def dry_run(tmp_path, monkeypatch, capsys):
    def run(rows, **env):
        (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = {"HF_CKPT": str(tmp_path / "model"), "TRAIN_DATA": str(tmp_path / "train.jsonl"),
                 "SAVE_PATH": str(tmp_path / "run"), "DATA_ROOT": str(tmp_path), "LENGTH": "50",
                 "MEM_CHUNK_TOKENS": "64", "MEM_MAX_MEMORY": "32", "MEM_MAX_FINAL": "32", "MEM_MAX_QUESTION": "64"}
        given |= env
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        code = train.main(["--dry-run", "--evaluate"])
        told = capsys.readouterr()
        return code, told.out, told.err.splitlines()

    make_tiny_model(tmp_path / "model")
    capsys.readouterr()  # its progress
    return run


def test_what_would_start_and_nothing_is_written(dry_run, tmp_path):
    (tmp_path / "eval_50.json").write_text("[]")
    before = sorted(tmp_path.iterdir())
    code, out, errors = dry_run([GOOD] * 3, NUM_ROLLOUT="7", NUM_ENGINES="2")
    assert (code, errors) == (0, [])
    assert all(text in out for text in ("NUM_ROLLOUT=7", "engines: 2", "trainer processes: ", "3 training rows"))
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "train.jsonl"])


def test_every_problem_is_told_at_once(dry_run, tmp_path):
    code, _, errors = dry_run([GOOD, *BAD], HOST="local", FULLY_ASYNC="1", TASK="no.py:Such", TRACKER="none",
                              MEM_CHUNK_TOKENS="100000", EVAL_DATA="none.jsonl", TORCH_DIST="/none")
    told = "\n".join(errors)
    assert code == 1 and all(line.startswith("error: ") for line in errors)
    named = ("FULLY_ASYNC", "eval_50.json", "no.py", "MEM_CHUNK_TOKENS", "EVAL_DATA", "TORCH_DIST")
    assert all(text in told for text in named)
    code, _, errors = dry_run([GOOD], FULLY_ASYNC="0", TASK="qa", EVAL_DATA="", TORCH_DIST="", HF_CKPT="",
                              TRAIN_DATA=str(tmp_path / "none.jsonl"))
    assert code == 1 and any("HF_CKPT" in line for line in errors) and any("none.jsonl" in line for line in errors)
    assert dry_run([GOOD], HF_CKPT="/no/such/model")[0] == 1


def test_a_model_that_cannot_train_is_refused_before_anything_starts(tmp_path, dry_run):
    (tmp_path / "eval_50.json").write_text("[]")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"use_sliding_window": True}))
    code, _, errors = dry_run([GOOD])
    assert code == 1 and "use_sliding_window" in "".join(errors)
    with pytest.raises(CheckpointError, match="use_sliding_window"):
        train.checked(Config.from_env())


def test_faults_of_some_rows_are_warnings_and_those_of_all_are_problems(dry_run, tmp_path):
    (tmp_path / "eval_50.json").write_text("[]")
    code, out, errors = dry_run([GOOD, *BAD])
    assert (code, errors) == (0, [])
    assert [f"row {number}" in out for number in (1, 2, 3, 4)] == [False, True, True, True]
    assert "MEM_MAX_QUESTION" in out
    code, _, errors = dry_run(BAD[:1] * 3)
    assert code == 1 and "row 1" in errors[0]
    assert dry_run([BAD[0] | {"metadata": {"context": "Red.", "replies": ["Red.", "red"]}}], LOSS="sft")[0] == 0
