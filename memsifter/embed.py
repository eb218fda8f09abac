"""Stage 1: ``mem-agent session-embedding``. How similar each session of a history is to the question.

    mem-agent session-embedding --datasets "locomo longmemeval_s" --splits "train test" --tokenizer Qwen/Qwen3-4B

Reads DATA_DIR/{data set}/{split}.parquet and writes ``OUTPUT_DIR/EMBEDDING_MODEL_NAME/{data set}_{split}_embed
.parquet``: all columns of its input, and

    similarities           cosine of each session's turns and the question, in the order of the sessions
    session_tokens         what each adds to a prompt, by --tokenizer, the ranker's (the embedding model's own)
    embedding_fingerprint  of the model's weights and of how much of a text it reads
    embed_status           "ok", or why the row has neither

Rows share histories, so each text is embedded once, whatever rows, splits or runs share it. The first --max-seq-len
tokens of a text count (512, as published). Killed at any moment, the same command continues; vectors are kept::

    EMBED_STORE_PATH/locomo/all-MiniLM-L6-v2-3f2a9c10/values.sqlite     vectors of one model, float32, of length 1

by 16 bytes of SHA-256 of their texts. Another model has another folder, by its name and the fingerprint of its weights
and of how much of a text it reads, so two models can share a folder, and are never mixed.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..checkpoints.hf_model import load_vocabulary, local_folder, tokenizer_hash
from ..rewards.intrinsic.encoder import Encoder, Vectors, encoder_folder, make_encoder
from ..rewards.sessions import BadRow, Session, embedded_text, question_of, render_session
from ..system.cli import one_line_errors, positive_number
from . import stages
from .stages import EMBED, OK, SOURCE, Row, Stage, StageParser

VARIABLE = "EMBEDDING_MODEL_NAME"


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    parser = StageParser("session-embedding", "Similarities of sessions.")
    parser.option("data_dir", "data", "folder with {data set}/{split}.parquet, histories and questions")
    parser.option("embed_store_path", "data/embedding_store", "vectors, by data set and model")
    parser.add_argument("--embedding-model-path", default="", help="its sentence-transformers folder, else by name")
    parser.add_argument("--tokenizer", help="folder or id of the one that session_tokens are by: the ranker's")
    parser.add_argument("--max-seq-len", type=positive_number, default=512, help="tokens read of a text (512)")
    parser.add_argument("--gpus", type=float, default=0.0, help="GPUs of each worker (0)")
    given = parser.parsed(argv)
    sources = stages.find_files(given, Path(given.data_dir), SOURCE)
    name, path = given.embedding_model_name, given.embedding_model_path
    encoder = make_encoder(name, VARIABLE, path=path, length=given.max_seq_len,
                           device=None if given.gpus else "cpu")
    tokenizer = given.tokenizer or str(encoder_folder(path or name, VARIABLE))
    settings = {"model": encoder.name, "weights": encoder.fingerprint,
                "tokenizer": tokenizer_hash(local_folder(tokenizer, "--tokenizer", weights=False))}
    threads = max(1, (os.cpu_count() or 1) // given.workers)
    resources = {"num_gpus": given.gpus} if given.gpus else {"num_cpus": threads}
    for data, source in sources.items():
        store = Path(given.embed_store_path, data.partition("/")[0])
        output, vectors = stages.stage_file(given.output_dir, data, EMBED, name), VectorStore(store, encoder)
        stage, before = Stage(source, output, EmbedWorker.adds, settings, given.limit, resources), len(vectors)
        statuses = stage.run(partial(EmbedWorker, encoder, tokenizer, store), given, given.workers)
        print(f"{data}: {len(vectors) - before} texts embedded, others were in {store}; {statuses.total()} questions, "
              f"{statuses.total() - statuses[OK]} bad rows -> {output}", flush=True)
    return 0


class EmbedWorker:
    """In each worker process of Ray: one row after the other."""

    adds = pa.schema([
        ("similarities", pa.list_(pa.float32())), ("session_tokens", pa.list_(pa.int64())),
        ("embedding_fingerprint", pa.string()), ("embed_status", pa.string()),
    ])

    def __init__(self, encoder: Encoder, tokenizer: str, store: Path) -> None:
        self._vectors, self._tokens = VectorStore(store, encoder), TokenCounter(tokenizer)

    async def __call__(self, row: Row) -> Row:
        added: Row = {"similarities": [], "session_tokens": [], "embed_status": OK,
                      "embedding_fingerprint": self._vectors.fingerprint}
        try:
            asked = question_of(row, "embedding")
        except BadRow as error:
            return added | {"embed_status": f"bad row: {error}"}
        if asked.sessions:
            vectors = self._vectors.values([asked.question, *map(embedded_text, asked.sessions)])
            added["similarities"] = (vectors[1:] @ vectors[0]).tolist()
            added["session_tokens"] = self._tokens.sessions(asked.sessions)
        return added


# --- vectors and tokens of texts ------------------------------------------------------------------------------------


class VectorStore:
    """Vectors of one model by text, in one sqlite file; processes and threads may share it."""

    def __init__(self, folder: Path, encoder: Encoder) -> None:
        name = encoder.name.replace("/", "-")
        self.fingerprint, self._encoder = encoder.fingerprint, encoder
        folder /= self.fingerprint if self.fingerprint.startswith(name) else f"{name}-{self.fingerprint}"
        folder.mkdir(parents=True, exist_ok=True)
        self._base = sqlite3.connect(folder / "values.sqlite", timeout=60, check_same_thread=False)
        with self._base:
            self._base.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
        self.close = self._base.close

    def __len__(self) -> int:
        return int(self._base.execute("SELECT COUNT(*) FROM vectors").fetchone()[0])

    def values(self, texts: Sequence[str]) -> Vectors:
        """[texts, width]; what is missing is computed, each text once, and on disk when this returns."""
        if missing := [text for text in dict.fromkeys(texts) if not self._value(text)]:
            vectors = self._encoder.encode(missing).astype("float32")
            rows = zip(map(_key, missing), map(bytes, vectors), strict=True)
            with self._base:
                self._base.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
        return np.stack([np.frombuffer(self._value(text), "float32") for text in texts])

    def _value(self, text: str) -> bytes:
        found = self._base.execute("SELECT value FROM vectors WHERE key = ?", (_key(text),)).fetchone()
        return found[0] if found else b""


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


class TokenCounter:
    """Tokens of rendered sessions by one tokenizer."""

    def __init__(self, tokenizer: str) -> None:
        """``tokenizer``: a model's folder or id. Raises ConfigError."""
        vocabulary = load_vocabulary(local_folder(tokenizer, "--tokenizer", weights=False))
        self.count = lru_cache(2**14)(lambda text: len(vocabulary.encode_text(text)))

    def sessions(self, sessions: Sequence[Session]) -> list[int]:
        """What each adds to a history of them all: the session rendered, and the newline behind it.

        Its number has as many digits as the history's last one, so that no number that it is shown under costs more.
        """
        number = 10 ** max(2, len(str(len(sessions) - 1))) - 1
        return [self.count(f"{render_session(session, number)}\n") for session in sessions]
