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
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from ..rewards.intrinsic.encoder import Encoder, encoder_folder, make_encoder
from ..sessions.records import BadRow, Session, question_of
from ..sessions.wording import embedded_text
from ..system.command_line_types import positive_number
from ..system.files import folder_lock
from ..system.one_line_errors import one_line_errors
from .files import EMBED, OK, SOURCE, Row, add_option, find_files, parsed, read_batches, stage_file, stage_parser
from .run_stage import BUSY, connect, parts_of, settle, write_output
from .vectors import TokenCounter, VectorStore, text_key

ADDS = pa.schema([
    ("similarities", pa.list_(pa.float32())), ("session_tokens", pa.list_(pa.int64())),
    ("embedding_fingerprint", pa.string()), ("embed_status", pa.string()),
])
VARIABLE = "EMBEDDING_MODEL_NAME"
_TEXTS = pa.schema([("text", pa.string())])


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    parser = stage_parser("session-embedding", "Similarities of sessions.")
    add_option(parser, "data_dir", "data", "folder with {data set}/{split}.parquet, histories and questions")
    add_option(parser, "embed_store_path", "data/embedding_store", "vectors and token counts, by data set and model")
    parser.add_argument("--embedding-model-path", default="", help="its sentence-transformers folder, else by name")
    parser.add_argument("--tokenizer", help="folder or id of the one that session_tokens are by: the ranker's")
    parser.add_argument("--batch-size", type=positive_number, default=32, help="texts that are embedded at once (32)")
    parser.add_argument("--max-seq-len", type=positive_number, default=512, help="tokens read of a text (512)")
    parser.add_argument("--gpus", type=float, default=0.0, help="GPUs of each worker (0)")
    given = parsed(parser, argv)
    sources = find_files(given, Path(given.data_dir), SOURCE)
    name, path = given.embedding_model_name, given.embedding_model_path
    encoder = make_encoder(name, VARIABLE, path=path, batch=given.batch_size, length=given.max_seq_len,
                           device=None if given.gpus else "cpu")
    tokenizer = given.tokenizer or str(encoder_folder(path or name, VARIABLE))
    for data, source in sources.items():
        store = Path(given.embed_store_path, data.partition("/")[0])
        output = stage_file(given.output_dir, data, EMBED, name)
        counts = embed_file(encoder, tokenizer, store, source, output, given)
        print(f"{data}: {counts.embedded} texts embedded, {counts.known} were in {store}; {counts.rows} questions, "
              f"{counts.bad} bad rows -> {output}", flush=True)
    return 0


class EmbedCounts(NamedTuple):
    rows: int
    bad: int
    embedded: int
    known: int
    """Texts of these rows that had a vector before."""


def embed_file(
    encoder: Encoder, tokenizer: str, store: Path, source: Path, output: Path, given: argparse.Namespace
) -> EmbedCounts:
    """Write ``output``, with vectors and token counts kept in ``store``. Raises MemAgentError.

    ``given``: ``ray``, ``workers``, ``gpus``, ``batch_size`` and ``limit``.
    """
    vectors, tokens = VectorStore(store, encoder), TokenCounter(store, tokenizer)
    texts = parts_of(output) / "texts.parquet"
    statuses: Counter[str] = Counter()

    @lru_cache(maxsize=1)  # questions about one history follow each other
    def of_history(sessions: tuple[Session, ...]) -> tuple[Any, list[int]]:
        return vectors.values(list(map(embedded_text, sessions))), tokens.sessions(sessions)

    def added(row: Row) -> Row:
        columns: Row = {"similarities": [], "session_tokens": [], "embed_status": OK}
        try:
            asked = question_of(row, "embedding")
            if asked.sessions:
                matrix, columns["session_tokens"] = of_history(asked.sessions)
                columns["similarities"] = (matrix @ vectors.values([asked.question])[0]).tolist()
        except BadRow as error:
            columns["embed_status"] = f"bad row: {error}"
        statuses[columns["embed_status"]] += 1
        return columns | {"embedding_fingerprint": vectors.fingerprint}

    with folder_lock(texts.parent, busy=BUSY):
        settle(output, {"model": encoder.name, "weights": vectors.fingerprint, "tokenizer": tokens.fingerprint})
        missing, known = gather_missing(source, texts, vectors, given.limit)
        with tqdm(total=missing, desc=f"{output.stem} texts", unit="text", disable=None) as progress:
            for batch, values in embedded(texts, encoder, given) if missing else ():
                vectors.add(batch, values)
                progress.update(len(batch))
        texts.unlink()
        write_output(source, output, ADDS, added, given.limit)
    return EmbedCounts(statuses.total(), statuses.total() - statuses[OK], missing, known)


def gather_missing(source: Path, texts: Path, vectors: VectorStore, limit: int | None) -> tuple[int, int]:
    """Write the texts of ``source`` that have no vector, each once; how many, and how many have one."""
    seen: set[bytes] = set()
    missing = 0
    with pq.ParquetWriter(texts, _TEXTS, compression="zstd") as writer:
        for batch in read_batches(source, limit=limit):
            new: dict[bytes, str] = {}
            for row in batch.to_pylist():
                with suppress(BadRow):
                    asked = question_of(row, "stage 1")
                    new |= {text_key(text): text for text in (asked.question, *map(embedded_text, asked.sessions))}
            absent = vectors.missing(text for key, text in new.items() if key not in seen)
            seen |= new.keys()
            missing += len(absent)
            writer.write_table(pa.table({"text": absent}, schema=_TEXTS))
    return missing, len(seen) - missing


def embedded(texts: Path, encoder: Encoder, given: argparse.Namespace) -> Iterator[tuple[list[str], Any]]:
    """Batches of texts with their vectors, by workers on Ray, as they come."""
    ray = connect(given)
    cpus = 1 if given.gpus else max(1, (os.cpu_count() or 1) // given.workers)
    blocks = -(-pq.read_metadata(texts).num_rows // given.batch_size)
    found = ray.data.read_parquet(str(texts.absolute()), override_num_blocks=blocks).map_batches(
        TextWorker, fn_constructor_args=(encoder,), batch_size=None, num_cpus=cpus, num_gpus=given.gpus or None,
        compute=ray.data.ActorPoolStrategy(size=given.workers),
    )
    for batch in found.iter_batches(batch_size=None):
        yield list(batch["text"]), np.stack(list(batch["vector"]))


class TextWorker:
    """In each worker process of Ray."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return batch | {"vector": self._encoder.encode(list(batch["text"]))}


if __name__ == "__main__":
    from . import embed  # workers import its classes by this name

    sys.exit(embed.main())
