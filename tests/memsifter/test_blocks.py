"""A stage over blocks of rows: killed anywhere it goes on, computes each row once, and writes the input's order."""

import fcntl
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.memsifter.blocks.block_reader import BlockReader
from mem_agent.memsifter.blocks.block_run import BlockError, Counts, OnRay
from mem_agent.memsifter.blocks.row_journal import RowJournal
from mem_agent.memsifter.blocks.run_blocks import rows_left
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.block_worker import ADDS, BLOCK, ROWS, lengths, texts, worked_on, write_rows
from mem_agent.tests.helpers.local_ray import needs_local_ray
from mem_agent.tests.helpers.patience import HANGS_AFTER_S


def found(folder):
    return pq.read_table(folder / "out.parquet").to_pydict()


def test_rows_keep_their_order_and_their_columns_and_a_bad_one_says_so(tmp_path):
    write_rows(tmp_path / "in.parquet", ["aa", "bad", "a"], own=[[1], None, []], length=["old"] * 3)
    assert lengths(tmp_path, block=2) == Counts(rows=3, computed=3)
    assert found(tmp_path) == {
        "text": ["aa", "bad", "a"], "own": [[1], None, []], "length": [2, None, 1], "status": ["ok", "bad row", "ok"],
    }
    assert sorted(p.name for p in tmp_path.glob("[!.]*")) == ["in.parquet", "log", "out.parquet"]


def test_killed_at_every_file_operation_it_ends_with_the_same_file(tmp_path):
    command = [sys.executable, "-m", "mem_agent.tests.helpers.block_worker", str(tmp_path), "20"]
    subprocess.run(command, check=True, timeout=HANGS_AFTER_S)
    folders = sorted(tmp_path.iterdir(), key=lambda folder: int(folder.name))
    kills = [int((folder / "kills").read_text()) for folder in folders]
    assert len(folders) > 15 and kills[0] > 1 and kills[-1] == 0, kills
    for folder, killed in zip(folders, kills, strict=True):
        assert not (folder / "out.parquet.parts").exists()
        assert found(folder) == {"text": texts(), "length": list(range(1, ROWS + 1)), "status": ["ok"] * ROWS}
        work = worked_on(folder)
        assert set(work) == set(texts()) and len(work) <= ROWS + killed, folder  # what was in hand, and no more


def test_a_finished_run_does_nothing_again(tmp_path):
    lengths(tmp_path, texts())
    before = (tmp_path / "out.parquet").stat().st_mtime_ns
    assert lengths(tmp_path) == Counts(ROWS, 0) and lengths(tmp_path).kept == ROWS
    assert len(worked_on(tmp_path)) == ROWS and (tmp_path / "out.parquet").stat().st_mtime_ns == before


@pytest.mark.parametrize("rows, again", [
    (texts(9), ["x" * 7, "x" * 8, "x" * 9]),  # 7 rows in blocks of 3: the last block was not full
    (texts()[:6], []),
    (["xx", *texts()[1:]], ["xx", "xx", "xxx"]),  # the first block changes
])
def test_only_blocks_whose_rows_changed_are_done_again(tmp_path, rows, again):
    lengths(tmp_path, texts())
    (tmp_path / "log").unlink()
    lengths(tmp_path, rows)
    assert worked_on(tmp_path) == again and found(tmp_path)["length"] == list(map(len, rows))


@pytest.mark.parametrize("rows, again", [
    (["xx", *texts()[1:]], []),  # equal to the second row, which is known
    ([*texts()[:2], "changed", *texts()[3:]], ["changed"]),
    (["new", *texts()], ["new"]),  # every block has other rows
    (texts()[::-1], []),
    ([*texts()[:4], "bad", *texts()[5:]], ["bad"]),
])
def test_with_a_status_only_rows_that_changed_are_done_again(tmp_path, rows, again):
    lengths(tmp_path, texts(), status="status")
    (tmp_path / "log").unlink()
    write_rows(tmp_path / "in.parquet", rows)
    assert left(tmp_path) == len(again)
    lengths(tmp_path, status="status")
    assert worked_on(tmp_path) == again
    assert found(tmp_path)["length"] == [None if text == "bad" else len(text) for text in rows]
    assert left(tmp_path) == again.count("bad")


def left(folder):
    return rows_left(folder / "in.parquet", folder / "out.parquet", identity="v1", adds=ADDS, block=BLOCK,
                     status="status")


def test_rows_of_an_interrupted_block_are_known_though_a_row_beside_them_changed(tmp_path):
    """Ended in its second block, at the fifth row; then the fourth is another."""
    write_rows(tmp_path / "in.parquet", [*texts()[:5], None])
    with pytest.raises(TypeError):
        lengths(tmp_path, status="status")
    assert worked_on(tmp_path) == [*texts()[:5], "None"] and not (tmp_path / "out.parquet").exists()
    (tmp_path / "log").unlink()
    lengths(tmp_path, [*texts()[:3], "changed", texts()[4], "y"], status="status")
    assert worked_on(tmp_path) == ["changed", "y"]


def test_fewer_rows_are_asked_for_and_the_others_stay_parts(tmp_path):
    lengths(tmp_path, texts())
    assert lengths(tmp_path, limit=3) == Counts(3, 0) and found(tmp_path)["length"] == [1, 2, 3]
    assert lengths(tmp_path) == Counts(ROWS, 0) and found(tmp_path)["length"] == list(range(1, ROWS + 1))
    assert not (tmp_path / "out.parquet.parts").exists()


def test_a_file_of_other_settings_stays(tmp_path):
    lengths(tmp_path, texts(), identity="model=a")
    with pytest.raises(BlockError, match="model=a"):
        lengths(tmp_path, identity="model=b")
    write_rows(tmp_path / "out.parquet", ["a"])
    with pytest.raises(BlockError, match=r"out\.parquet"):
        lengths(tmp_path)


def test_two_runs_on_one_output_are_refused(tmp_path):
    with (tmp_path / ".out.parquet.lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(MemAgentError, match=r"out\.parquet"):
            lengths(tmp_path, texts())
    assert lengths(tmp_path).computed == ROWS


def test_what_a_worker_raises_ends_the_run_and_its_blocks_stay(tmp_path):
    write_rows(tmp_path / "in.parquet", [*texts(), 5 * "y", None])
    with pytest.raises(TypeError):
        lengths(tmp_path, journal=False)
    write_rows(tmp_path / "in.parquet", [*texts(), 5 * "y", ""])
    assert lengths(tmp_path, journal=False).computed == 3


def test_no_rows(tmp_path):
    assert lengths(tmp_path, pa.array([], pa.string())) == Counts(0, 0)
    assert found(tmp_path) == {"text": [], "length": [], "status": []}


def test_blocks_in_any_order_across_row_groups(tmp_path):
    write_rows(tmp_path / "in.parquet", texts(50))  # row groups of 4
    reader = BlockReader(tmp_path / "in.parquet", 7, 48)
    for number in [0, 1, 6, 3, 3, 4, 6, 0]:
        assert [row["text"] for row in reader.rows(number)] == texts(50)[number * 7:min(number * 7 + 7, 48)]


def test_a_torn_line_of_a_journal_is_as_if_it_were_not_there(tmp_path):
    path = tmp_path / "rows.jsonl"
    keys = ["a0", "a1", "a2"]
    with RowJournal(path, keys) as journal:
        journal.keep(0, {"a": 1})
        journal.keep(2, {"a": [0.5]})
    path.write_bytes(path.read_bytes()[:-3])
    with RowJournal(path, keys) as journal:
        assert journal.done == {0: {"a": 1}}
        journal.keep(1, {"a": "é\n"})
    assert RowJournal(path, keys).done == {0: {"a": 1}, 1: {"a": "é\n"}}


@needs_local_ray
@pytest.mark.servers
def test_ray_writes_the_same_file_and_goes_on_where_one_process_was(tmp_path):
    rows = [*texts(40), "bad"]
    for name in ("here", "there", "both"):
        (tmp_path / name).mkdir()
    lengths(tmp_path / "here", rows)
    assert lengths(tmp_path / "there", rows, ray=OnRay("local")) == Counts(41, 41)
    lengths(tmp_path / "both", rows, limit=10)
    assert lengths(tmp_path / "both", ray=OnRay("local")) == Counts(41, 32)  # three whole blocks were there
    for name in ("there", "both"):
        assert found(tmp_path / name) == found(tmp_path / "here")
    assert len(worked_on(tmp_path / "both")) == 10 + 32
