"""A stage over rows: each is asked once, failed and changed ones again, and the output has the input's order."""

import asyncio
import fcntl
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.memsifter.run_stage import Cluster, OtherSettings, StageRun, read_parts
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.stages_here import without_ray

ADDS = pa.schema({"length": pa.int64(), "said": pa.list_(pa.int64()), "status": pa.string()})
TEXTS = ["x" * (number + 1) for number in range(50)]


@pytest.fixture(autouse=True)
def here(monkeypatch):
    without_ray(monkeypatch)


class Lengths:
    """Writes down every text that it is asked for; ``bad`` fails, ``end`` ends the run."""

    def __init__(self, log, any_known):
        self.log = log

    async def __call__(self, row):
        with self.log.open("a") as log:
            log.write(f"{row['text']}\n")
        await asyncio.sleep(0)
        if row["text"] == "end":
            raise MemAgentError("the server is gone")
        bad = row["text"] == "bad"
        return {"length": None if bad else len(row["text"]), "said": [1], "status": "bad row" if bad else "ok"}


def run(folder, texts=None, settings=None, limit=None, **columns):
    if texts is not None:
        pq.write_table(pa.table({"text": pa.array(texts, pa.string()), **columns}), folder / "in.parquet")
    settings = settings or {"model": "a"}
    stage = StageRun(folder / "in.parquet", folder / "out.parquet", ADDS, "status", settings, "d/test", limit)
    return stage.run(partial(Lengths, folder / "log"), Cluster(), 4, "lengths")


def asked(folder):
    """What has been asked since the last call."""
    if not (folder / "log").exists():
        return []
    texts = (folder / "log").read_text().split()
    (folder / "log").unlink()
    return texts


def lengths(folder):
    return pq.read_table(folder / "out.parquet")["length"].to_pylist()


def test_rows_keep_their_order_and_their_columns_and_a_bad_one_says_so(tmp_path):
    assert run(tmp_path, ["aa", "bad", "a"], own=[[1], None, []], length=["old"] * 3) == {"ok": 2, "bad row": 1}
    assert pq.read_table(tmp_path / "out.parquet").to_pydict() == {
        "text": ["aa", "bad", "a"], "own": [[1], None, []], "length": [2, None, 1], "said": [[1]] * 3,
        "status": ["ok", "bad row", "ok"],
    }
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["in.parquet", "log", "out.parquet"]


@pytest.mark.parametrize("rows, again", [
    (TEXTS, []), (TEXTS[:6], []), (TEXTS[::-1], []), (["new", *TEXTS], ["new"]),
    ([*TEXTS[:2], "changed", *TEXTS[3:]], ["changed"]), ([*TEXTS[:4], "bad"], ["bad"]),
])
def test_only_rows_that_changed_are_asked_again(tmp_path, rows, again):
    run(tmp_path, TEXTS)
    assert len(asked(tmp_path)) == 50
    run(tmp_path, rows)
    assert asked(tmp_path) == again and lengths(tmp_path) == [None if text == "bad" else len(text) for text in rows]
    run(tmp_path)
    assert asked(tmp_path) == [text for text in again if text == "bad"]


def test_rows_that_are_not_asked_for_today_are_known_tomorrow(tmp_path):
    run(tmp_path, TEXTS)
    asked(tmp_path)
    run(tmp_path, limit=3)
    assert lengths(tmp_path) == [1, 2, 3]
    run(tmp_path)
    assert lengths(tmp_path) == [len(text) for text in TEXTS] and asked(tmp_path) == []
    assert not (tmp_path / "out.parquet.parts").exists()


def test_other_settings_are_refused_while_it_runs_and_after_it(tmp_path):
    with pytest.raises(MemAgentError, match="gone"):
        run(tmp_path, [*TEXTS, "end"])
    with pytest.raises(OtherSettings, match=r"out\.parquet.*'a'.*'b'"):
        run(tmp_path, TEXTS, {"model": "b"})
    run(tmp_path)
    with pytest.raises(OtherSettings, match=r"out\.parquet.*'a'.*'b'"):
        run(tmp_path, TEXTS, {"model": "b"})
    pq.write_table(pa.table({"text": ["of somebody else"]}), tmp_path / "out.parquet")
    with pytest.raises(OtherSettings, match=r"out\.parquet"):
        run(tmp_path)


def test_what_a_worker_raises_ends_the_run_and_finished_rows_stay(tmp_path):
    with pytest.raises(MemAgentError, match="gone"):
        run(tmp_path, [*TEXTS, "end"])
    finished = [key for key, _ in read_parts(tmp_path / "out.parquet.parts")]
    asked(tmp_path)
    run(tmp_path, TEXTS)
    assert 0 < len(finished) and len(asked(tmp_path)) == 50 - len(finished)


def test_a_line_that_a_kill_cut_is_as_if_it_were_not_there(tmp_path):
    with pytest.raises(MemAgentError):
        run(tmp_path, [*TEXTS, "end"])
    (file,) = (tmp_path / "out.parquet.parts").glob("*.jsonl")
    before = len(list(read_parts(file.parent)))
    file.write_bytes(file.read_bytes()[:-5])
    assert len(list(read_parts(file.parent))) == before - 1
    assert run(tmp_path, TEXTS)["ok"] == 50


def test_two_runs_on_one_output_are_refused(tmp_path):
    with (tmp_path / ".out.parquet.lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(MemAgentError, match=r"out\.parquet"):
            run(tmp_path, TEXTS)
    assert run(tmp_path)["ok"] == 50


def test_no_rows(tmp_path):
    assert run(tmp_path, []) == {} and pq.read_table(tmp_path / "out.parquet").column_names == ["text", *ADDS.names]
