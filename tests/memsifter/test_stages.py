"""A stage over rows: each is asked once, failed and changed ones again, and the output has the input's order; stage 1:
each text embedded once, similarities in the order of the sessions.
"""

from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.memsifter import embed
from mem_agent.memsifter.stages import Stage
from mem_agent.rewards.intrinsic.encoder import HashingEncoder
from mem_agent.rewards.sessions import embedded_text, render_session, row_of
from mem_agent.system.errors import ConfigError, MemAgentError
from mem_agent.tests.helpers.stage_rows import chinese_question, history_question, read_rows, write_rows
from mem_agent.tests.helpers.stages_here import HERE
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

ADDS = pa.schema({"length": pa.int64(), "said": pa.list_(pa.int64()), "status": pa.string()})
pytestmark = pytest.mark.usefixtures("folder")
TEXTS = ["x" * (number + 1) for number in range(50)]


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


def run(folder, texts=None, model="a", **columns):
    """The statuses, and what was asked."""
    (folder / "log").write_text("")
    if texts is not None:
        ids = [f"q-{text}" for text in texts]
        pq.write_table(pa.table({"question_id": ids, "question": texts, **columns}), folder / "in.parquet")
    stage = Stage(folder / "in.parquet", folder / "out.parquet", ADDS, {"model": model})
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


def test_what_a_worker_raises_ends_the_run_and_finished_rows_stay_but_not_a_line_that_was_cut(tmp_path):
    with pytest.raises(MemAgentError, match="gone"):
        run(tmp_path, [*TEXTS, "end"])
    (part,) = (tmp_path / "out.parquet.parts").glob("*.jsonl")
    finished = part.read_bytes().splitlines()
    assert 1 < len(finished) <= 50
    part.write_bytes(part.read_bytes()[:-5])
    assert len(run(tmp_path, TEXTS)[1]) == 50 - len(finished) + 1 and lengths(tmp_path) == list(map(len, TEXTS))
    with pytest.raises(ConfigError, match=r"out\.parquet.*model.*'a'.*'c'"):
        run(tmp_path, model="c")


# --- stage 1 ---------------------------------------------------------------------------------------------------------


def embed_all(splits="test"):
    return embed.main(["--output-dir", "out", "--embed-store-path", "store", "--embedding-model-name", "hashing",
                       "--tokenizer", "ranker", "--splits", splits])


def test_similarities_tokens_and_the_columns_of_the_input():
    rows = [row_of(history_question(0, own={"extra": 7})), row_of(chinese_question())]
    write_rows("data/toy/test.parquet", [rows[0], rows[1] | {"extra": 8}])
    assert embed_all() == 0
    found = read_rows("out/hashing/toy_test_embed.parquet")
    for row, asked in zip(found, (history_question(0), chinese_question()), strict=True):
        vectors = HashingEncoder().encode([asked.question, *map(embedded_text, asked.sessions)])
        assert row["similarities"] == pytest.approx(vectors[1:] @ vectors[0], abs=1e-6)
        count = [len(make_tokenizer()(f"{render_session(s, 99)}\n")["input_ids"]) for s in asked.sessions]
        assert row["session_tokens"] == count
        assert row["embed_status"] == "ok" and row["embedding_fingerprint"] == HashingEncoder.fingerprint
    assert [row["extra"] for row in found] == [7, 8]


def test_each_text_is_embedded_once_and_a_second_run_embeds_nothing(tmp_path, monkeypatch):
    embedded, encode = [], HashingEncoder.encode
    monkeypatch.setattr(HashingEncoder, "encode", lambda self, texts: embedded.extend(texts) or encode(self, texts))
    write_rows("data/toy/test.parquet", [row_of(history_question(n)) for n in range(40)])
    write_rows("data/toy/train.parquet", [row_of(history_question(n)) for n in (40, 5)])
    embed_all("test train")
    assert len(embedded) == len(set(embedded)) == 41 + 6
    (tmp_path / "out/hashing/toy_test_embed.parquet").unlink()
    embed_all()
    assert len(embedded) == 47 and len(read_rows("out/hashing/toy_test_embed.parquet")) == 40
