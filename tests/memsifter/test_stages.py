"""A stage over rows: each is asked once, failed and changed ones again, and the output has the input's order."""

from functools import partial

import filelock
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.memsifter.stages import Stage
from mem_agent.system.errors import ConfigError, MemAgentError
from mem_agent.tests.helpers.stages_here import HERE, without_ray

ADDS = pa.schema({"length": pa.int64(), "said": pa.list_(pa.int64()), "status": pa.string()})
TEXTS = ["x" * (number + 1) for number in range(50)]


@pytest.fixture(autouse=True)
def here(monkeypatch):
    without_ray(monkeypatch)


class Lengths:
    """Writes down every text that it is asked for; ``bad`` fails, ``end`` ends the run."""

    def __init__(self, log):
        self.log = log

    async def __call__(self, row):
        with self.log.open("a") as log:
            log.write(f"{row['question']}\n")
        if row["question"] == "end":
            raise MemAgentError("the server is gone")
        return {"length": len(row["question"]), "said": [1], "status": "bad row" if row["question"] == "bad" else "ok"}


def run(folder, texts=None, settings=None, limit=None, **columns):
    """The statuses, and what was asked."""
    (folder / "log").write_text("")
    if texts is not None:
        ids = [f"q-{text}" for text in texts]
        pq.write_table(pa.table({"question_id": ids, "question": texts, **columns}), folder / "in.parquet")
    stage = Stage(folder / "in.parquet", folder / "out.parquet", ADDS, settings or {"model": "a"}, limit)
    said = stage.run(partial(Lengths, folder / "log"), HERE, 4)
    return said, (folder / "log").read_text().split()


def lengths(folder):
    return pq.read_table(folder / "out.parquet")["length"].to_pylist()


def test_rows_keep_their_order_and_their_columns_and_a_bad_one_says_so(tmp_path):
    assert run(tmp_path, ["aa", "bad", "a"], own=[[1], None, []], length=["old"] * 3)[0] == {"ok": 2, "bad row": 1}
    assert pq.read_table(tmp_path / "out.parquet").to_pydict() == {
        "question_id": ["q-aa", "q-bad", "q-a"], "question": ["aa", "bad", "a"], "own": [[1], None, []],
        "length": [2, 3, 1], "said": [[1]] * 3, "status": ["ok", "bad row", "ok"]}


@pytest.mark.parametrize("rows, again", [
    (TEXTS[5::-1], []), (["new", *TEXTS], ["new"]), ([*TEXTS[:4], "bad"], ["bad"])])
def test_only_new_and_failed_rows_are_asked_again(tmp_path, rows, again):
    assert run(tmp_path, TEXTS)[1] == TEXTS
    assert run(tmp_path, rows)[1] == again and lengths(tmp_path) == list(map(len, rows))
    assert run(tmp_path)[1] == [text for text in again if text == "bad"]


def test_rows_that_are_not_asked_for_today_are_known_tomorrow(tmp_path):
    run(tmp_path, TEXTS)
    assert run(tmp_path, limit=3) == ({"ok": 3}, []) and lengths(tmp_path) == [1, 2, 3]
    assert run(tmp_path) == ({"ok": 50}, [])


def test_a_row_that_an_earlier_stage_ranks_anew_is_asked_again(tmp_path):
    run(tmp_path, TEXTS[:3], haystack_session_gen_rankings=[[1], [], [2]])
    assert run(tmp_path, TEXTS[:3], haystack_session_gen_rankings=[[1], [3], [2]])[1] == [TEXTS[1]]


def test_what_a_worker_raises_ends_the_run_and_finished_rows_stay_but_not_a_line_that_was_cut(tmp_path):
    with pytest.raises(MemAgentError, match="gone"):
        run(tmp_path, [*TEXTS, "end"])
    (part,) = (tmp_path / "out.parquet.parts").glob("*.jsonl")
    finished = part.read_bytes().splitlines()
    assert 1 < len(finished) <= 50
    part.write_bytes(part.read_bytes()[:-5])
    assert len(run(tmp_path, TEXTS)[1]) == 50 - len(finished) + 1 and lengths(tmp_path) == list(map(len, TEXTS))


def test_other_settings_are_refused_once_there_is_a_result(tmp_path):
    with pytest.raises(MemAgentError, match="gone"):
        run(tmp_path, ["end"])
    with pytest.raises(MemAgentError, match="gone"):
        run(tmp_path, [*TEXTS, "end"], {"model": "b"})
    for texts in (TEXTS, None):
        with pytest.raises(ConfigError, match=r"out\.parquet.*model.*'b'.*'c'"):
            run(tmp_path, settings={"model": "c"})
        run(tmp_path, texts, {"model": "b"})


def test_two_runs_on_one_output_are_refused_and_no_rows_are_none(tmp_path):
    (tmp_path / "out.parquet.parts").mkdir()
    with filelock.FileLock(tmp_path / "out.parquet.parts" / ".lock"), pytest.raises(MemAgentError, match=r"out\.parq"):
        run(tmp_path, TEXTS)
    assert run(tmp_path, pa.array([], pa.string()))[0] == {}
    assert pq.read_table(tmp_path / "out.parquet").column_names == ["question_id", "question", *ADDS.names]
