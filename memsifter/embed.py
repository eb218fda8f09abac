"""Stage 1: ``mem-agent session-embedding``. How similar each session of a history is to the question.

    mem-agent session-embedding --datasets "locomo longmemeval_s" --splits "train test" --tokenizer Qwen/Qwen3-4B

Reads DATA_DIR/{data set}/{split}.parquet and writes ``OUTPUT_DIR/EMBEDDING_MODEL_NAME/{data set}_{split}_embed
.parquet``: all columns of its input, and

    similarities           cosine of each session's turns and the question, in the order of the sessions
    session_tokens         what each adds to a prompt, by --tokenizer, the ranker's (the embedding model's own)
    embedding_fingerprint  of the model's weights and of how much of a text it reads
    embed_status           "ok", or why the row has neither

Rows share histories, so each text is embedded once, whatever rows, splits or runs share it: first the texts without a
vector are gathered and embedded in batches on Ray, EMBED_STORE_PATH keeps their vectors, then every row's similarities
are a product. The first --max-seq-len tokens of a text count (512, as published). Killed at any moment, the same
command continues; vectors are kept batch by batch.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from ..rewards.intrinsic.encoder import HASHING, Encoder, encoder_folder, make_encoder
from ..sessions.records import BadRow, question_of
from ..sessions.wording import embedded_text
from ..system.command_line_types import positive_number
from ..system.errors import ConfigError
from ..system.files import folder_lock, remove
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_if_asked, stop_on_signals
from .files import EMBED, OK, Row, add_option, open_table, read_batches, source_parts, stage_parser
from .run_stage import Cluster, check_settings, cluster_of, connect, lost_workers, write_output
from .vectors import TokenCounter, VectorStore, text_key

ADDS = pa.schema([
    ("similarities", pa.list_(pa.float32())), ("session_tokens", pa.list_(pa.int64())),
    ("embedding_fingerprint", pa.string()), ("embed_status", pa.string()),
])
STATUS = "embed_status"
VARIABLE = "EMBEDDING_MODEL_NAME"
_TEXTS = pa.schema([("text", pa.string())])


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    stop_on_signals()
    chosen = source_parts(given)
    for part in chosen:
        part.source(given.data_dir)  # says at once what is missing
    cluster = cluster_of(given.ray, given.workers, given.gpus)
    model = _model(given)
    for part in chosen:
        store = Path(given.embed_store_path, part.dataset)
        output = part.file(given.output_dir, EMBED, given.embedding_model_name)
        counts = embed_file(model, store, part.source(given.data_dir), output, str(part), cluster, given.limit)
        print(f"{part}: {counts.embedded} texts embedded, {counts.known} were in {store}; {counts.rows} "
              f"questions, {counts.bad} bad rows -> {output}", flush=True)
    return 0


@dataclass(frozen=True)
class EmbeddingModel:
    """What texts are embedded and counted by; pickles."""

    name: str
    path: str
    """Folder of its weights; empty: found by name."""
    tokenizer: str
    batch: int = 32
    length: int = 512

    @cached_property
    def encoder(self) -> Encoder:
        return make_encoder(self.name, VARIABLE, path=self.path, batch=self.batch, length=self.length)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "encoder"}


@dataclass(frozen=True, slots=True)
class EmbedCounts:
    rows: int
    bad: int
    embedded: int
    known: int
    """Texts of these rows that had a vector before."""


def embed_file(
    model: EmbeddingModel, store: Path, source: Path, output: Path, data: str, cluster: Cluster | None = None,
    limit: int | None = None,
) -> EmbedCounts:
    """Write ``output``, with vectors and token counts kept in ``store``. Raises MemAgentError."""
    vectors, tokens = VectorStore(store, model.encoder), TokenCounter(store, model.tokenizer)
    settings = {"model": model.name, "weights": model.encoder.fingerprint, "tokenizer": tokens.fingerprint}
    output.parent.mkdir(parents=True, exist_ok=True)
    busy = f"{output.name}: another run writes it; wait for it to end, or choose another output"
    with folder_lock(output.parent, busy=busy, name=f".{output.name}.lock"):
        check_settings(output, settings)
        texts = output.with_name(f"{output.name}.texts.parquet")
        missing, known = gather_missing(source, texts, vectors, limit)
        with tqdm(total=missing, desc=f"{data} texts", unit="text", disable=None) as progress:
            for batch, values in embedded(texts, model, cluster or Cluster()) if missing else ():
                vectors.add(batch, values)
                progress.update(len(batch))
        remove(texts)
        similarities = Similarities(vectors, tokens)
        write_output(source, output, ADDS, similarities, settings, data, limit)
    statuses = similarities.statuses
    return EmbedCounts(statuses.total(), statuses.total() - statuses[OK], missing, known)


def gather_missing(source: Path, texts: Path, vectors: VectorStore, limit: int | None) -> tuple[int, int]:
    """Write the texts of ``source`` that have no vector, each once; how many, and how many have one."""
    seen: set[bytes] = set()
    missing = 0
    with pq.ParquetWriter(texts, _TEXTS, compression="zstd") as writer:
        for batch in read_batches(source, limit):
            stop_if_asked()
            new: dict[bytes, str] = {}
            for row in batch.to_pylist():
                new |= {text_key(text): text for text in _texts(row)}
            absent = vectors.missing(text for key, text in new.items() if key not in seen)
            seen |= new.keys()
            missing += len(absent)
            writer.write_table(pa.table({"text": absent}, schema=_TEXTS))
    return missing, len(seen) - missing


def _texts(row: Row) -> list[str]:
    try:
        asked = question_of(row, "stage 1")
    except BadRow:
        return []
    return [asked.question, *map(embedded_text, asked.sessions)]


def embedded(texts: Path, model: EmbeddingModel, cluster: Cluster) -> Iterator[tuple[list[str], Any]]:
    """Batches of texts with their vectors, by workers on Ray."""
    ray = connect(cluster)
    rows = open_table(texts).metadata.num_rows
    cpus = 1 if cluster.gpus else max(1, (os.cpu_count() or 1) // cluster.workers)
    # Vectors come block by block, and are kept as they come.
    found = ray.data.read_parquet(str(texts.absolute()), override_num_blocks=-(-rows // model.batch)).map_batches(
        TextWorker, fn_constructor_args=(model,), batch_size=None, num_cpus=cpus, num_gpus=cluster.gpus or None,
        compute=ray.data.ActorPoolStrategy(size=cluster.workers),
    )
    with lost_workers():
        for batch in found.iter_batches(batch_size=None):
            yield list(batch["text"]), np.stack(list(batch["vector"]))


class TextWorker:
    """In each worker process of Ray."""

    def __init__(self, model: EmbeddingModel) -> None:
        self._encoder = model.encoder

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch | {"vector": self._encoder.encode(list(batch["text"]))}


class Similarities:
    """The added columns of rows whose texts have vectors; questions about one history follow each other."""

    def __init__(self, vectors: VectorStore, tokens: TokenCounter) -> None:
        self._vectors, self._tokens = vectors, tokens
        self._fingerprint = vectors.fingerprint
        self._last: tuple[Any, Any, list[int]] = None, None, []
        self.statuses: Counter[str] = Counter()

    def __call__(self, rows: list[Row]) -> Iterator[Row]:
        stop_if_asked()
        for row in rows:
            try:
                added = self._row(row)
            except BadRow as error:
                added = {"similarities": [], "session_tokens": [], STATUS: f"bad row: {error}"}
            self.statuses[added[STATUS]] += 1
            yield added | {"embedding_fingerprint": self._fingerprint}

    def _row(self, row: Row) -> Row:
        asked = question_of(row, "embedding")
        if not asked.sessions:
            return {"similarities": [], "session_tokens": [], STATUS: OK}
        if self._last[0] != asked.sessions:
            texts = list(map(embedded_text, asked.sessions))
            self._last = asked.sessions, self._vectors.vectors(texts), self._tokens.sessions(asked.sessions)
        _, matrix, tokens = self._last
        question = self._vectors.vectors([asked.question])[0]
        return {"similarities": (matrix @ question).tolist(), "session_tokens": tokens, STATUS: OK}


def _model(given: argparse.Namespace) -> EmbeddingModel:
    name, path = given.embedding_model_name, given.embedding_model_path
    if Path(name).is_absolute():
        raise ConfigError(f"--embedding-model-name {name!r}: names files; give a plain name, and the folder with "
                          "--embedding-model-path")
    if name == HASHING and not given.tokenizer:
        raise ConfigError(f"--embedding-model-name {HASHING} has no tokenizer; name one with --tokenizer")
    tokenizer = given.tokenizer or str(encoder_folder(path or name, "--embedding-model-name"))
    return EmbeddingModel(name, path, tokenizer, given.batch_size, given.max_seq_len)


def _parser() -> argparse.ArgumentParser:
    parser = stage_parser("session-embedding", "Similarities of sessions.")
    add_option(parser, "data_dir", "data", "folder with {data set}/{split}.parquet, histories and questions")
    add_option(parser, "embed_store_path", "data/embedding_store", "vectors and token counts, by data set and model")
    parser.add_argument("--embedding-model-path", default="",
                        help="its sentence-transformers folder; else found by name")
    parser.add_argument("--tokenizer", help="folder or id of the tokenizer that session_tokens are by: the ranker's")
    parser.add_argument("--batch-size", type=positive_number, default=32, help="texts that are embedded at once (32)")
    parser.add_argument("--max-seq-len", type=positive_number, default=512, help="tokens read of a text (512)")
    parser.add_argument("--gpus", type=float, default=0.0, help="GPUs of each worker (0)")
    return parser


if __name__ == "__main__":
    from . import embed  # workers import its classes by this name

    sys.exit(embed.main())
