"""A stage over blocks of rows: killed anywhere it goes on, computes each row once, and writes the input's order."""

import fcntl
import re
import subprocess
import sys

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.sifter.blocks.block_reader import BlockReader, NoTable, read_rows
from mem_agent.sifter.blocks.block_run import BlockError, Counts, OnRay
from mem_agent.sifter.blocks.output_file import row_keys
from mem_agent.sifter.blocks.row_journal import RowJournal
from mem_agent.sifter.blocks.run_blocks import rows_left, run_blocks
from mem_agent.system.errors import ConfigError
from mem_agent.tests.helpers.block_worker import ADDS, BLOCK, ROWS, lengths, texts, worked_on, write_rows
from mem_agent.tests.helpers.footers import footers_in_memory, footers_parsed
from mem_agent.tests.helpers.local_ray import needs_local_ray
from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.tests.helpers.small_files import files_of_at_most


def found(folder):
    return pq.read_table(folder / "out.parquet").to_pydict()


def test_rows_keep_their_order_and_their_columns_and_a_bad_one_says_so(tmp_path):
    write_rows(tmp_path / "in.parquet", ["aa", "bad", "a"], own=[[1], None, []], length=["old"] * 3)
    assert lengths(tmp_path, block=2) == Counts(rows=3, computed=3)
    assert found(tmp_path) == {
        "text": ["aa", "bad", "a"], "own": [[1], None, []], "length": [2, None, 1], "status": ["ok", "bad row", "ok"],
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.parquet", "log", "out.parquet"]


def test_killed_at_every_file_operation_it_ends_with_the_same_file(tmp_path):
    command = [sys.executable, "-m", "mem_agent.tests.helpers.block_worker", str(tmp_path), "12"]
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


def test_parts_of_other_settings_are_told_and_left_alone(tmp_path, capsys):
    def stop(journal):
        raise BlockError("stop")

    write_rows(tmp_path / "in.parquet", texts())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mem_agent.sifter.blocks.run_blocks.join", lambda run, names: stop(None))
        with pytest.raises(BlockError, match="stop"):
            lengths(tmp_path, identity="v1")
    assert lengths(tmp_path, identity="v2").computed == ROWS
    assert "keeps unfinished parts of other settings" in capsys.readouterr().err
    (tmp_path / "out.parquet.parts" / ("\x1b]0;own\x07" + "x" * 200)).mkdir()
    assert lengths(tmp_path, identity="v2").computed == 0
    assert "parts of other settings (" in (told := capsys.readouterr().err) and "�]0;own�xxx" in told
    (tmp_path / "out.parquet").rename(tmp_path / "v2.parquet")
    assert lengths(tmp_path, identity="v1").computed == 0


def test_a_file_of_other_settings_stays(tmp_path):
    lengths(tmp_path, texts(), identity="model=a")
    with pytest.raises(BlockError, match=r"out.parquet: was made with other settings \(model=a\), not model=b; move"):
        lengths(tmp_path, identity="model=b")
    write_rows(tmp_path / "out.parquet", ["a"])
    with pytest.raises(BlockError, match=r"other settings \(something else\)"):
        lengths(tmp_path)


def test_two_runs_on_one_output_are_refused(tmp_path):
    with (tmp_path / ".out.parquet.lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BlockError, match=r"lengths: .*another run writes out.parquet"):
            lengths(tmp_path, texts())
    assert lengths(tmp_path).computed == ROWS


def cut(file):
    file.write_bytes(file.read_bytes()[:20])


def flip(file):
    """The last byte of the last column; length and footer stay as they are."""
    column = pq.read_metadata(file).row_group(0).column(pq.read_metadata(file).num_columns - 1)
    start = column.dictionary_page_offset or column.data_page_offset
    content = bytearray(file.read_bytes())
    content[start + column.total_compressed_size - 1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, flip])
def test_a_damaged_part_is_made_again(tmp_path, capsys, monkeypatch, damage):
    write_rows(tmp_path / "in.parquet", texts())
    with monkeypatch.context() as patch:
        patch.setattr("mem_agent.sifter.blocks.run_blocks.join", lambda run, names: None)
        lengths(tmp_path)
    part = min((tmp_path / "out.parquet.parts").rglob("*.parquet"))
    damage(part)
    assert lengths(tmp_path) == Counts(ROWS, 3) and "is damaged, and is made again" in capsys.readouterr().err
    assert found(tmp_path)["length"] == list(range(1, ROWS + 1))


def test_the_name_of_a_damaged_part_commands_no_terminal(tmp_path, capsys):
    lengths(tmp_path, texts()[:2], block=2, status="status")
    run = pq.read_table(tmp_path / "out.parquet").schema.metadata[b"mem_agent.run"].decode()
    (tmp_path / "out.parquet.parts" / run).mkdir(parents=True)
    (tmp_path / "out.parquet.parts" / run / "\x1b]0;own\x07.parquet").write_bytes(b"no table")
    lengths(tmp_path, texts()[1:3], block=2, status="status")
    assert "�]0;own�.parquet: is damaged" in capsys.readouterr().err


def test_a_damaged_output_or_input_is_named_with_the_remedy(tmp_path):
    lengths(tmp_path, texts())
    output = tmp_path / "out.parquet"
    flip(output)
    with pytest.raises(NoTable, match=r"out\.parquet: is damaged .*; delete it, and what wrote it makes it again"):
        lengths(tmp_path, limit=3)
    output.unlink()
    write_rows(tmp_path / "in.parquet", [f"{n:>400}" for n in range(ROWS)])
    content = (tmp_path / "in.parquet").read_bytes()
    (tmp_path / "in.parquet").write_bytes(content[:8] + bytes(100) + content[108:])
    with pytest.raises(NoTable, match=r"in\.parquet: is damaged"):
        lengths(tmp_path)


def test_parts_and_journals_of_other_kinds_are_as_if_they_were_not_there(tmp_path):
    lengths(tmp_path, ["a", "bad", "c"], block=2, status="status")
    group = pq.read_table(tmp_path / "out.parquet").schema.metadata[b"mem_agent.parts"].split()[0].decode()
    before = (tmp_path / "out.parquet").read_bytes()
    [keys, _] = row_keys(tmp_path / "out.parquet")
    (tmp_path / "out.parquet").unlink()
    strange = pa.table({"length": ["x", "y"], "status": ["ok", "ok"]})
    with pytest.raises(BlockError):
        run_blocks(tmp_path / "in.parquet", tmp_path / "out.parquet", broken, identity="v1", adds=ADDS, block=2,
                   describe="x", status="status")
    folder = next((tmp_path / "out.parquet.parts").iterdir())
    pq.write_table(strange, folder / f"{group}.parquet")
    pq.write_table(strange.replace_schema_metadata({"mem_agent.rows": keys[0]}), folder / "other.parquet")
    (folder / f"{group}.jsonl").write_bytes(orjson.dumps([keys[0], {"length": [1], "status": {"a": 1}}]) + b"\n")
    lengths(tmp_path, block=2, status="status")
    assert (tmp_path / "out.parquet").read_bytes() == before


def broken():
    raise BlockError("no worker")


@pytest.mark.parametrize(("name", "value"), [
    ("mem_agent.parts", b"a"), ("mem_agent.rows", b"0123"), ("mem_agent.parts", b"\xff\xfe"),
    *(("mem_agent.parts", b"000000-0123456789abcdef %s 000002-0123456789abcdef" % other)
      for other in (b"../../x", b"/nowhere/x", b"000001-0123456789abcdef/x", b"000000-0123456789abcdef")),
])
def test_an_output_that_says_of_other_rows_which_they_are_is_told(tmp_path, name, value):
    lengths(tmp_path, texts(), status="status")
    table = pq.read_table(tmp_path / "out.parquet")
    said = {**table.schema.metadata, name.encode(): value}
    pq.write_table(table.replace_schema_metadata(said), tmp_path / "out.parquet", row_group_size=3)
    with pytest.raises(NoTable, match=r"out\.parquet: says of other rows which they are; delete it"):
        lengths(tmp_path, status="status")


def test_what_a_worker_raises_ends_the_run_and_its_blocks_stay(tmp_path):
    write_rows(tmp_path / "in.parquet", [*texts(), 5 * "y", None])
    with pytest.raises(TypeError):
        lengths(tmp_path, journal=False)
    write_rows(tmp_path / "in.parquet", [*texts(), 5 * "y", ""])
    assert lengths(tmp_path, journal=False).computed == 3


def test_no_rows(tmp_path):
    assert lengths(tmp_path, pa.array([], pa.string())) == Counts(0, 0)
    assert found(tmp_path) == {"text": [], "length": [], "status": []}


@pytest.mark.parametrize("content, why", [(None, "no such file"), (b"PAR1 no", "no parquet file")])
def test_no_table(tmp_path, content, why):
    if content is not None:
        (tmp_path / "in.parquet").write_bytes(content)
    with pytest.raises(NoTable, match=f"in.parquet: {why}"):
        lengths(tmp_path)


@pytest.mark.parametrize("column", [
    pa.array([2**62], pa.timestamp("us")), pa.array([1], pa.timestamp("us", "Nowhere/Else")),
    pa.array([2**62], pa.duration("s")),
], ids=lambda column: str(column.type))
def test_a_value_that_python_cannot_hold_is_told_with_its_file(tmp_path, column):
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"question": ["q"], "when": column}), path)
    for read in (lambda: BlockReader(path, 4, 1).rows(0), lambda: list(read_rows(path, ["when"], 4))):
        with pytest.raises(NoTable, match=r"in\.parquet: is damaged"):
            read()


def test_columns_of_one_name_are_told_before_any_row_is_worked_on(tmp_path):
    twice = pa.Table.from_arrays([pa.array(["a"])] * 3, names=["text", "note", "note"])
    pq.write_table(twice, tmp_path / "in.parquet")
    with pytest.raises(NoTable, match=r"in\.parquet: has several columns of the name note; "):
        lengths(tmp_path)
    assert worked_on(tmp_path) == []


def test_a_table_that_says_it_has_more_rows_than_it_has_is_told(tmp_path):
    """The number stands in the footer several times, of the file, its groups and their columns."""
    path = tmp_path / "in.parquet"
    pq.write_table(pa.table({"a": list(range(61))}), path, use_dictionary=False)
    whole = path.read_bytes()
    said, more = b"\x16\x7a", b"\x16\x7c"  # 61 and 62, as the format writes them
    places = [at for at in range(len(whole)) if whole[at:at + 2] == said]
    refused = 0
    for changed in [*([at] for at in places), places]:
        for at in changed:
            path.write_bytes(whole[:at] + more + whole[at + 2:] if len(changed) == 1 else whole.replace(said, more))
        try:
            assert len(BlockReader(path, 64, 62).rows(0)) == 62
        except NoTable as error:
            refused += "it has no row" in str(error) or "it says that it has a row" in str(error)
    assert refused >= 2, places


def test_blocks_in_any_order_across_row_groups(tmp_path):
    write_rows(tmp_path / "in.parquet", texts(50))  # row groups of 4
    reader = BlockReader(tmp_path / "in.parquet", 7, 48)
    for number in [0, 1, 6, 3, 3, 4, 6, 0]:
        assert [row["text"] for row in reader.rows(number)] == texts(50)[number * 7:min(number * 7 + 7, 48)]


def test_a_pass_over_the_blocks_parses_the_footer_once(tmp_path, monkeypatch):
    """A block of its own parsed it, and what each parsed stayed in memory: a file of many groups took their square."""
    write_rows(tmp_path / "in.parquet", texts(50))
    parsed = footers_parsed(monkeypatch)
    reader = BlockReader(tmp_path / "in.parquet", 3, 50)
    with footers_in_memory() as left:
        assert [row["text"] for number in range(17) for row in reader.rows(number)] == texts(50)
        assert left() <= 1
    assert parsed.total() == 1


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


def test_an_answer_that_a_full_disk_has_not_taken_leaves_nothing_that_the_next_could_join(tmp_path):
    path = tmp_path / "rows.jsonl"
    with RowJournal(path, ["a0", "a1"]) as journal:
        with pytest.raises(OSError, match=re.escape(str(path))), files_of_at_most(20):
            journal.keep(0, {"reply": "paid for"})
        assert path.read_bytes() == b"" and journal.done == {}
        journal.keep(1, {"reply": "paid for as well"})
    assert RowJournal(path, ["a0", "a1"]).done == {1: {"reply": "paid for as well"}}


def test_a_torn_line_is_ended_before_another_is_kept_though_the_disk_was_full(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'["a0", {"a')
    with RowJournal(path, ["a0", "a1"]) as journal:
        with pytest.raises(OSError, match="File too large"), files_of_at_most(10):
            journal.keep(1, {"a": 1})
        journal.keep(1, {"a": 1})
    assert RowJournal(path, ["a0", "a1"]).done == {1: {"a": 1}}


def test_lines_of_a_journal_that_are_no_results_are_not_there(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'[[0], {}]\n["a1", "x"]\nnull\n\xff\n[0, {}]\n["a2", {"a": 1}]\n')
    assert RowJournal(path, ["a0", "a1", "a2"]).done == {2: {"a": 1}}


def test_a_path_with_a_blank_starts_no_ray(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(sys, "executable", "/some pack/bin/python")
    with pytest.raises(ConfigError, match="/some pack/bin/python: Ray starts no workers from a path with a blank"):
        lengths(tmp_path, texts(), ray=OnRay("local"))


def test_a_job_server_is_no_cluster(tmp_path):
    pytest.importorskip("ray")
    with pytest.raises(ConfigError, match=r"RAY_ADDRESS=http://head:8265: is a job server's"):
        lengths(tmp_path, texts(), ray=OnRay("http://head:8265"))


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
