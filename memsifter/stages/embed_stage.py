"""Stage 1's work on one file: first the texts that have no vector yet, each once; then every row's similarities.

The first pass writes the missing texts to a table beside the output and embeds that block by block, on Ray Data where
there is one: rows share histories, and workers that took rows would embed them side by side. The second multiplies.
Both go on where they were killed: the first by the store, the second by its parts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...rewards.intrinsic.encoder import Encoder
from ...sessions.records import HistoryQuestion
from ...sessions.render import embedded_text
from ...sessions.table import BadRow, question_of
from ...system.files import folder_lock, replacing
from ..blocks.block_reader import BlockReader, open_table, read_table
from ..blocks.block_run import OnRay
from ..blocks.row_journal import RowJournal
from ..blocks.run_blocks import run_blocks
from ..blocks.worker import OK, Row, Worker
from ..stores.embedding_store import EmbeddingStore, TokenCounter, embedding_model
from ..stores.record_store import key_of

ADDS = pa.schema([
    ("similarities", pa.list_(pa.float32())), ("session_tokens", pa.list_(pa.int64())),
    ("embedding_fingerprint", pa.string()), ("embed_status", pa.string()),
])
STATUS = "embed_status"
_TEXTS = pa.schema([("text", pa.string())])
_EMBEDDED = pa.schema([("embedded", pa.bool_())])
_ROWS = 16
"""Of a block: a row may hold a million tokens."""


@dataclass(frozen=True)
class EmbedPlan:
    """What workers are made from; pickles."""

    store: Path
    """STORE/data set."""
    model: str
    path: str
    tokenizer: str
    batch: int = 32
    length: int = 512

    def beside(self, store: Path) -> EmbedPlan:
        """The same into another store; a model that was loaded serves it as well."""
        other = replace(self, store=store)
        if "encoder" in vars(self):
            vars(other)["encoder"] = self.encoder
        return other

    @cached_property
    def encoder(self) -> Encoder:
        return embedding_model(self.model, path=self.path, batch=self.batch, length=self.length)

    def vectors(self) -> EmbeddingStore:
        return EmbeddingStore(self.store, self.encoder, self.batch)

    def tokens(self) -> TokenCounter:
        return TokenCounter(self.store, self.tokenizer)

    @property
    def identity(self) -> str:
        return f"embedding model={self.model} {self.encoder.fingerprint} tokenizer={self.tokens().fingerprint}"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "encoder"}


@dataclass(frozen=True, slots=True)
class EmbedCounts:
    rows: int
    bad: int
    embedded: int
    known: int
    """Texts of these rows that had a vector before."""


def embed_part(
    plan: EmbedPlan, source: Path, output: Path, *, describe: str, limit: int | None = None, ray: OnRay | None = None
) -> EmbedCounts:
    """Raises MemAgentError."""
    busy = f"another run embeds {output.name}; wait for it to end, or choose another output"
    with folder_lock(output.parent, busy=busy, name=f".{output.name}.texts.lock"):
        embedded, known = _embed_missing(plan, source, output, describe, limit, ray)
        run_blocks(
            source, output, partial(SimilarityWorker, plan), identity=plan.identity, adds=ADDS, block=_ROWS,
            describe=f"{describe} similarities", limit=limit, ray=ray, data=describe,
        )
    said = read_table(output, [STATUS])[STATUS].to_pylist()
    return EmbedCounts(len(said), sum(status != OK for status in said), embedded, known)


def _embed_missing(
    plan: EmbedPlan, source: Path, output: Path, describe: str, limit: int | None, ray: OnRay | None
) -> tuple[int, int]:
    """How many texts were embedded, and how many had a vector."""
    folder = output.with_name(f"{output.name}.texts")
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed: what it embedded is in the store
    folder.mkdir(parents=True)
    missing = known = 0
    with (
        replacing(folder / "texts.parquet") as file,
        pq.ParquetWriter(file, _TEXTS, compression="zstd") as writer,
    ):
        for texts, there in _missing_texts(plan, source, limit):
            known += there
            missing += len(texts)
            if texts:
                writer.write_table(pa.table({"text": texts}, schema=_TEXTS))
    if missing:
        run_blocks(
            folder / "texts.parquet", folder / "done.parquet", partial(EmbedWorker, plan), identity=plan.identity,
            adds=_EMBEDDED, block=max(256, plan.batch), describe=f"{describe} texts", ray=ray,
        )
    shutil.rmtree(folder)
    return missing, known


def _missing_texts(plan: EmbedPlan, source: Path, limit: int | None) -> Iterator[tuple[list[str], int]]:
    """Texts that are seen for the first time and have no vector, a block of rows at a time, and how many have one."""
    store = plan.vectors()
    seen: set[bytes] = set()
    read = _Reading(str(source))
    total = open_table(source).metadata.num_rows
    rows = total if limit is None else min(total, limit)
    reader = BlockReader(source, _ROWS, rows)
    for block in range(-(-rows // _ROWS)):
        texts: dict[bytes, str] = {}
        for row in reader.rows(block):
            try:
                asked, sessions = read(row)
            except BadRow:
                continue
            texts |= {key_of(text): text for text in (asked.question, *sessions)}
        new = [text for key, text in texts.items() if key not in seen]
        seen |= texts.keys()
        missing = store.missing(new)
        yield missing, len(new) - len(missing)


class EmbedWorker(Worker):
    """Puts the texts of a block into the store."""

    def __init__(self, plan: EmbedPlan) -> None:
        self._store = plan.vectors()

    def __call__(self, rows: list[Row], journal: RowJournal) -> list[Row]:
        self._store.embed([row["text"] for row in rows])
        return [{"embedded": True}] * len(rows)


class SimilarityWorker(Worker):
    """Similarities and token counts of rows whose texts are in the store."""

    def __init__(self, plan: EmbedPlan) -> None:
        self._store, self._tokens = plan.vectors(), plan.tokens()
        self._read = _Reading("embedding")
        self._of_sessions = lru_cache(maxsize=2)(self._matrix)
        self._of_tokens = lru_cache(maxsize=2)(self._tokens.sessions)

    def __call__(self, rows: list[Row], journal: RowJournal) -> list[Row]:
        return [self._row(row) for row in rows]

    def _row(self, row: Row) -> Row:
        try:
            asked, texts = self._read(row)
        except BadRow as error:
            return {"similarities": [], "session_tokens": [], "embedding_fingerprint": self._store.fingerprint,
                    STATUS: f"bad row: {error}"}
        question = self._store.vectors([asked.question])[0]
        similar = self._of_sessions(texts) @ question if texts else np.empty(0, np.float32)
        return {
            "similarities": similar.tolist(), "session_tokens": self._of_tokens(asked.sessions),
            "embedding_fingerprint": self._store.fingerprint, STATUS: OK,
        }

    def _matrix(self, texts: tuple[str, ...]) -> npt.NDArray[np.float32]:
        return self._store.vectors(texts)


class _Reading:
    """The question of a row, and the embedded texts of its sessions; a history that rows share is read once."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._last: tuple[Any, tuple[Any, ...]] | None = None

    def __call__(self, row: Row) -> tuple[HistoryQuestion, tuple[str, ...]]:
        """Raises BadRow."""
        asked = question_of(row, self._where)
        key = row["haystack_sessions"]
        if self._last is None or self._last[0] != key:
            self._last = (key, tuple(map(embedded_text, asked.sessions)))
        return asked, self._last[1]
