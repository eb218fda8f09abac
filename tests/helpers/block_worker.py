"""A stage for tests of blocks: the length of each row's text, with a log of every row that was worked on.

``python -m mem_agent.tests.helpers.block_worker FOLDER STEP`` kills a run of it at its STEP-th file operation and
every STEP-th after, each time in a forked process, until one ends; then it does so for STEP + 1 in another folder, and
so on until STEP is longer than a run.
"""

import os
import signal
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mem_agent.memsifter.blocks.run_blocks import run_blocks
from mem_agent.memsifter.blocks.worker import Worker

ADDS = pa.schema({"length": pa.int64(), "status": pa.string()})
ROWS, BLOCK = 7, 3


class Lengths(Worker):
    """Keeps each row's result at once; a row whose text is ``bad`` fails."""

    def __init__(self, log, journal=True):
        self.log, self.journal = log, journal

    def __call__(self, rows, journal):
        added = []
        for position, row in enumerate(rows):
            if position not in journal.done:
                with open(self.log, "a") as log:
                    log.write(f"{row['text']}\n")
                bad = row["text"] == "bad"
                result = {"length": None if bad else len(row["text"]), "status": "bad row" if bad else "ok"}
                if not self.journal:
                    added.append(result)
                    continue
                journal.keep(position, result)
            added.append(journal.done[position])
        return added


def write_rows(path, texts, **more):
    pq.write_table(pa.table({"text": texts, **more}), path, row_group_size=4)


def lengths(folder, texts=None, *, identity="v1", block=BLOCK, journal=True, **options):
    """A run in ``folder``; its counts."""
    if texts is not None:
        write_rows(folder / "in.parquet", texts)
    return run_blocks(
        folder / "in.parquet", folder / "out.parquet", lambda: Lengths(folder / "log", journal), identity=identity,
        adds=ADDS, block=block, describe="lengths", **options,
    )


def worked_on(folder):
    """The texts that were worked on, in order."""
    return (folder / "log").read_text().split() if (folder / "log").exists() else []


def texts(count=ROWS):
    return ["x" * (number + 1) for number in range(count)]


def _die_at(folder, step):
    seen = 0

    def hook(event, arguments):
        nonlocal seen
        if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir") and str(folder) in str(arguments[0]):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _killed(folder, step):
    child = os.fork()
    if child == 0:
        _die_at(folder, step)
        lengths(folder)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def main(root, step):
    while True:
        folder = root / str(step)
        folder.mkdir()
        write_rows(folder / "in.parquet", texts())
        kills = 0
        while _killed(folder, step):
            kills += 1
        (folder / "kills").write_text(str(kills))
        if not kills:
            return
        step += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
