"""Stage 1: ``mem-agent session-embedding``. How similar each session of a history is to the question.

    mem-agent session-embedding --datasets "locomo longmemeval_s" --splits "train test" --tokenizer Qwen/Qwen3-4B

Reads DATA_DIR/{data set}/{split}.parquet and writes ``OUTPUT_DIR/EMBEDDING_MODEL_NAME/{data set}_{split}_embed
.parquet``: all columns of its input, and

    similarities           cosine of each session's turns and the question, in the order of the sessions
    session_tokens         what each adds to a prompt, by --tokenizer, the ranker's (the embedding model's own)
    embedding_fingerprint  of the model's weights and of how much of a text it reads
    embed_status           "ok", or why the row has neither

Each text is embedded once, whatever rows, splits or runs share it: EMBED_STORE_PATH keeps its vector. The first
--max-seq-len tokens of a text count (512, as published). Killed at any moment, the same command continues.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ...config import ConfigError
from ...rewards.intrinsic.encoder import HASHING, encoder_folder
from ...system.command_line_types import positive_number
from ...system.one_line_errors import one_line_errors
from ...system.signals import stop_on_signals
from ..blocks.block_run import OnRay
from ..stage_files import EMBED, source_parts
from ..stage_options import EmbedOptions, add_options, options_of, stage_config
from .embed_stage import EmbedPlan, embed_part


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    stop_on_signals()
    options = options_of(EmbedOptions, given)
    chosen = source_parts(options)
    for part in chosen:
        part.source(options.data_dir)  # says at once what is missing
    address = given.ray if given.ray is not None else stage_config().ray_address
    ray = OnRay(address, given.workers, gpus=given.gpus) if address else None
    plan = _plan(options, given)
    for part in chosen:
        plan = plan.beside(Path(options.embed_store_path, part.dataset))
        output = part.file(options.output_dir, EMBED, options.embedding_model_name)
        source = part.source(options.data_dir)
        counts = embed_part(plan, source, output, limit=given.limit, ray=ray, describe=str(part))
        print(f"{part}: {counts.embedded} texts embedded, {counts.known} were in {plan.store}; {counts.rows} "
              f"questions, {counts.bad} bad rows -> {output}", flush=True)
    return 0


def _plan(options: EmbedOptions, given: argparse.Namespace) -> EmbedPlan:
    name, path = options.embedding_model_name, given.embedding_model_path
    if Path(name).is_absolute():
        raise ConfigError(f"--embedding-model-name {name!r}: names files; give a plain name, and the folder with "
                          "--embedding-model-path")
    if name == HASHING and not given.tokenizer:
        raise ConfigError(f"--embedding-model-name {HASHING} has no tokenizer; name one with --tokenizer")
    return EmbedPlan(
        store=Path(options.embed_store_path), model=name, path=path, batch=given.batch_size, length=given.max_seq_len,
        tokenizer=given.tokenizer or str(encoder_folder(path or name, "--embedding-model-name")),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent session-embedding", description="Similarities of sessions.")
    add_options(parser, EmbedOptions)
    parser.add_argument("--embedding-model-path", default="",
                        help="its sentence-transformers folder; else found by name")
    parser.add_argument("--tokenizer", help="folder or id of the tokenizer that session_tokens are by: the ranker's")
    parser.add_argument("--batch-size", type=positive_number, default=32, help="texts that are embedded at once (32)")
    parser.add_argument("--max-seq-len", type=positive_number, default=512, help="tokens read of a text (512)")
    parser.add_argument("--limit", type=positive_number, help="only so many questions of each file")
    parser.add_argument("--ray", metavar="ADDRESS", help="work on Ray Data: local, auto, HEAD:6379 or "
                        "ray://HEAD:10001 (default: RAY_ADDRESS; none: in this process)")
    parser.add_argument("--workers", type=positive_number, default=1, help="with --ray: processes that embed (1)")
    parser.add_argument("--gpus", type=float, default=0.0, help="with --ray: GPUs of each (0)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
