"""Fetching published files; the hub's library is a stand-in."""

import huggingface_hub
import pytest

from mem_agent.data.eval_files import main

HUB = {"eval_50.json": "[50]", "eval_25600.json": "[]"}


@pytest.fixture
def asked(monkeypatch):
    """What the hub's library is asked for."""
    calls = []

    def snapshot(dataset, *, repo_type, revision, allow_patterns, local_dir):
        calls.append((dataset, revision, allow_patterns))
        local_dir.mkdir(parents=True, exist_ok=True)
        for name in set(allow_patterns) & set(HUB):
            (local_dir / name).write_text(HUB[name])

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    return calls


def test_the_lengths_that_are_asked_for_or_all_are_fetched(tmp_path, asked, capsys):
    assert main(["--output", str(tmp_path), "--lengths", "50", "--dataset", "a/b", "--revision", "v1"]) == 0
    assert asked == [("a/b", "v1", ["eval_50.json"])] and (tmp_path / "eval_50.json").read_text() == "[50]"
    assert "hotpot_dev_distractor_v1.json" not in capsys.readouterr().out
    assert main(["--output", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{tmp_path / name}: there" for name in HUB]
    assert "hotpot_dev_distractor_v1.json" in lines[2]  # whose documents it names by number


def test_a_length_that_is_not_there_and_a_synthesised_file_are_named(tmp_path, asked, capsys):
    assert main(["--output", str(tmp_path), "--lengths", "50 100"]) == 1
    assert "eval_100.json" in capsys.readouterr().err
    (tmp_path / "eval_50.json").write_text("own")
    (tmp_path / "manifest.json").write_text('{"files": {"eval_50.json": {"source": {}}}}')
    assert main(["--output", str(tmp_path), "--lengths", "50"]) == 1
    assert "eval_50.json" in capsys.readouterr().err and (tmp_path / "eval_50.json").read_text() == "own"


def test_a_hub_that_does_not_answer_is_one_line(tmp_path, monkeypatch, capsys):
    def fails(*_, **__):
        raise ConnectionError("refused")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fails)
    assert main(["--output", str(tmp_path), "--dataset", "a/b"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "a/b" in line and "HF_ENDPOINT" in line
