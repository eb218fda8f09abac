"""What runs, evaluations and stores leave on disk, read again by whoever was given the folder."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import orjson

from mem_agent.config import Config
from mem_agent.data.document_store import DocumentStore, document_id
from mem_agent.data.manifest import read_manifest
from mem_agent.evaluation.results import METRICS, read_results
from mem_agent.report.training_run import _rollouts
from mem_agent.report.viewer.groups import groups_of
from mem_agent.report.viewer.pack import pack
from mem_agent.report.viewer.packed_documents import PackedDocuments
from mem_agent.report.viewer.terminal import listed, printed
from mem_agent.sifter.blocks.row_journal import read_journal
from mem_agent.sifter.session_log import SessionLog
from mem_agent.sifter.stores.record_store import RecordStore, key_of
from mem_agent.sifter.table.score_lines import (
    RETRIEVAL,
    Run,
    Scored,
    SifterScores,
    lines_of,
    read_scores,
    write_scores,
)
from mem_agent.tests.fuzz.target import Target, scratch, written
from mem_agent.tests.helpers.fake_results import plain_row
from mem_agent.tests.helpers.traces import group_of, hostile_group
from mem_agent.traces.trace import line_of

if TYPE_CHECKING:
    from mem_agent.training.journal import Journal

RUN = {"model": "m", "mode": "recurrent", "settings": {"seed": 1}, "samples": 1, "data": {"50": "d"},
       "questions": {"50": 2}, "model_name": "/runs/iter_0000009"}
MEMORIES = {"memories": [{"tokens": 3, "gold": True}, {"tokens": 4, "gold": None}]}
CONFIG = Config()


def _lines(*values: object) -> bytes:
    return b"".join(orjson.dumps(value) + b"\n" for value in values)


def _results(data: bytes) -> None:
    """``run.json`` up to a NUL, behind it the rows of length 50."""
    run, _, rows = data.partition(b"\0")
    written("results/run.json", run)
    written("results/50.jsonl", rows)
    for result in read_results([scratch() / "results"]):
        for cell in result.cells:
            for row in cell.rows:
                assert all(type(value) in (int, float) for value in row.scores.values()), METRICS
            assert cell.missing >= 0 and cell.task is not None
        assert result.run.checkpoint is None or result.run.checkpoint >= 0


def _metrics(data: bytes) -> None:
    _rollouts(written("metrics.jsonl", data))


def _manifest(data: bytes) -> None:
    written("files/a.json", b"x")
    read_manifest(written("files/manifest.json", data).parent).has("a.json", {"seed": 1})


def _documents(data: bytes) -> None:
    written("docs/documents.bin", b"Ann is here.Ben is.")
    written("docs/index.jsonl", data)
    store = DocumentStore(scratch() / "docs")
    try:
        store.get(document_id("Ann is here."))
    finally:
        store.close()


def _trajectories(data: bytes) -> None:
    """A file of traces as the viewer's page and the terminal show it."""
    for group in groups_of(written("run/trajectories/rollout_000012.jsonl", data)):
        pack(group, PackedDocuments())
        list(listed([group]))
        for text in printed(group, group.siblings[0], whole=True):
            assert "\x1b" not in text.plain


def _records(data: bytes) -> None:
    """``about.json``, ``keys.bin`` and ``values.bin``, each behind two bytes of its length."""
    for name in ("about.json", "keys.bin", "values.bin"):
        length = int.from_bytes(data[:2], "big")
        written(f"store/{name}", data[2 : 2 + length])
        data = data[2 + length :]
    store = RecordStore(scratch() / "store", "f", "float32")
    store.find([key_of("a"), key_of("b")])
    store.add([key_of("b")], np.ones((1, store._width or 4), np.float32))
    assert store.find([key_of("b")])[1].all()


@cache
def _stored() -> bytes:
    store = RecordStore(scratch() / "made", "f", "float32")
    store.add([key_of("a"), key_of("c")], np.ones((2, 4), np.float32))
    parts = [(store.folder / name).read_bytes() for name in ("about.json", "keys.bin", "values.bin")]
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)


def _session_log(data: bytes) -> None:
    SessionLog(written("toolkit/sessions.jsonl", data)).close()


def _row_journal(data: bytes) -> None:
    dict(read_journal(written("rows.journal", data)))


def _scores(data: bytes) -> None:
    read_scores(written("sifter.json", data))


@cache
def _scored() -> bytes:
    run = Run(measure=RETRIEVAL, part="locomo/test", method="m", rows=[Scored("a", "k", {"ndcg@10": 0.5})])
    write_scores(scratch() / "made.json", SifterScores(tuple(lines_of(run, 1))))
    return (scratch() / "made.json").read_bytes()


def _journal(data: bytes) -> None:
    """A record, and what it hands to the trainer."""
    from mem_agent.training.rows import rows_from_train_data

    for aside in (scratch() / "rollouts").glob("*.json.*"):  # each damaged record leaves one
        aside.unlink()
    written("rollouts/rollout_0000003.json", data)
    found = _opened(scratch()).read(3)
    if found is not None:
        assert isinstance(found.next_group, int)
        rows_from_train_data(found.train_data, 9)


@cache
def _opened(folder: Path) -> Journal:
    from mem_agent.training.journal import Journal

    return Journal(folder, CONFIG)


@cache
def _journalled() -> tuple[bytes, bytes]:
    """As older versions wrote it, without a hash that any change contradicts; and with one."""
    from mem_agent.training.journal import Rollout

    columns = {"tokens": [[1, 2, 3], [4, 5]], "response_lengths": [2, 1], "loss_masks": [[1, 0], [1]],
               "rollout_log_probs": [[-0.5, -1.0], [-0.1]], "rewards": [0.5, -0.5], "rollout_ids": [0, 1],
               "rollout_mask_sums": [1, 1]}
    _opened(scratch()).write(3, Rollout(columns, 4, {"reward": 0.5}))
    record = (scratch() / "rollouts" / "rollout_0000003.json").read_bytes()
    head = record.index(b",") + 1
    return b"{" + record[head:], record


def _memory(data: bytes) -> None:
    from mem_agent.rewards.intrinsic.state_file import reading

    with reading(written("reward/memory.npz", data)) as archive:
        archive.array("texts"), list(archive.pieces("codes", [1, 1]))


@cache
def _memory_file() -> bytes:
    from mem_agent.rewards.intrinsic.state_file import write

    path = scratch() / "made.npz"
    write(path, {"seen": 2}, {"texts": np.arange(3, dtype=np.uint8), "codes": np.ones((2, 4), np.float32)})
    return path.read_bytes()


_TRACES = b"".join(line_of(record) for record in [*group_of(), *hostile_group()])
TARGETS = (
    Target("results", _results, (orjson.dumps(RUN) + b"\0" + _lines(plain_row("a", **MEMORIES), plain_row("b")),),
           (b"\0", b"\n", b"null", b"iter_0000009", b"NaN", b"1e999")),
    Target("run_metrics", _metrics, (_lines({"rollout": 0, "reward": 0.5}, {"rollout": 1, "reward": None}),)),
    Target("manifest", _manifest, (
        orjson.dumps({"files": {"a.json": {
            "source": {"seed": 1}, "sha256": hashlib.sha256(b"x").hexdigest(), "bytes": 1}}}), b'{"files": {}}')),
    Target("document_store", _documents, (_lines({"id": document_id("Ann is here."), "offset": 0, "bytes": 12}),)),
    Target("traces", _trajectories, (_TRACES,), (b"[", b"null", b"</script>", b"\\u001b", b"silver", b"the ")),
    Target("record_store", _records, (_stored(),)),
    Target("session_log", _session_log, (_lines({"id": "s", "date": "d", "turns": [["user", "Hi."]]}),), (b"\n",)),
    Target("row_journal", _row_journal, (_lines(["k", {"a": 1}]),), (b"\n",)),
    Target("sifter_scores", _scores, (_scored(),)),
    Target("journal", _journal, _journalled()),
    Target("reward_memory", _memory, (_memory_file(),)),
)
