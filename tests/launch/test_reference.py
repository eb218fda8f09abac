"""A reference model that two launches convert at once is there once, and whole, for both."""

import sys

from mem_agent.checkpoints.folders import TRACKER
from mem_agent.launch import reference


def test_the_launch_that_comes_second_takes_what_the_first_has_made(tmp_path, monkeypatch):
    folder, looked = tmp_path / "dist", reference.has_checkpoint
    make = f"import pathlib, sys; d = pathlib.Path(sys.argv[1]); d.mkdir(); (d / {TRACKER!r}).write_text('release')"
    command = [sys.executable, "-c", make, str(reference.draft_folder(folder))]

    def quicker(where):
        monkeypatch.setattr(reference, "has_checkpoint", looked)
        (folder / "release").mkdir(parents=True)
        (folder / TRACKER).write_text("release")
        return False

    monkeypatch.setattr(reference, "has_checkpoint", quicker)
    reference.convert_reference(command, "", folder, tmp_path)
    assert looked(folder) and [path.name for path in tmp_path.iterdir()] == ["dist"]
