"""Stage 1: ``mem-agent session-embedding``. How similar each session of a history is to the question.

    EMBEDDING_MODEL_NAME=bge-m3 DATASETS="locomo longmemeval_s" SPLITS="train test" mem-agent session-embedding
    mem-agent session-embedding --data-dir data --dataset locomo --split test --tokenizer Qwen/Qwen3-4B

Reads DATA_DIR/{data set}/{split}.parquet and writes ``OUTPUT_DIR/EMBEDDING_MODEL_NAME/{data set}_{split}_embed
.parquet``: all columns of its input, and

    similarities           cosine of each session's turns and the question, in the order of the sessions
    session_tokens         what each adds to a prompt, by the tokenizer (the model's own unless --tokenizer says; a
                           file that is there stays with its own unless --tokenizer alone asks for another)
    embedding_fingerprint  of the model's weights and of how much of a text it reads
    embed_status           "ok", or why the row has neither

Each text is embedded once, whatever rows, splits or runs share it: EMBED_STORE_PATH keeps its vector. The first
--max-seq-len tokens of a text count (512, as published). Killed at any moment, the same command continues.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...config import Config, ConfigError
from ...hooks.intrinsic import HASHING, encoder_folder
from ...system.command_line_types import positive_number
from ...system.one_line_errors import one_line_errors
from ...system.signals import stop_on_signals
from ..blocks.block_run import OnRay
from ..stage_files import EMBED, source_parts
from ..stores.embedding_store import VARIABLE
from .embed_stage import EmbedPlan, embed_part
from .stage_settings import stage_config


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    stop_on_signals()
    config = _config(options)
    chosen = source_parts(config)
    for part in chosen:
        part.source(config)  # says at once what is missing
    address = options.ray if options.ray is not None else config.ray_address
    ray = OnRay(address, options.workers, gpus=options.gpus) if address else None
    plan = _plan(config, options)
    for part in chosen:
        plan = plan.beside(Path(config.embed_store_path, part.dataset))
        output = part.file(config, EMBED, config.embedding_model_name)
        counts = embed_part(plan, part.source(config), output, limit=options.limit, ray=ray, describe=str(part))
        print(f"{part}: {counts.embedded} texts embedded, {counts.known} were in {plan.store}; {counts.rows} "
              f"questions, {counts.bad} bad rows -> {output}", flush=True)
    return 0


def _config(options: argparse.Namespace) -> Config:
    given = {"data_dir": options.data_dir, "output_dir": options.output_dir, "splits": " ".join(options.split or ()),
             "datasets": " ".join(options.dataset or ()), "embed_store_path": options.embed_store_path,
             "embedding_model_name": options.embedding_model_name}
    return replace(stage_config(), **{name: value for name, value in given.items() if value})


def _plan(config: Config, options: argparse.Namespace) -> EmbedPlan:
    name, path = config.embedding_model_name, options.embedding_model_path or ""
    if Path(name).is_absolute():
        raise ConfigError(f"{VARIABLE}={name!r}: names files; give a plain name, and the folder with "
                          "--embedding-model-path")
    if name == HASHING and not options.tokenizer:
        raise ConfigError(f"{VARIABLE}={HASHING} has no tokenizer; name one with --tokenizer")
    return EmbedPlan(
        store=Path(config.embed_store_path), model=name, path=path, batch=options.batch_size,
        length=options.max_seq_len, device=options.device,
        tokenizer=options.tokenizer or str(encoder_folder(path or name, VARIABLE)),
        keeps_counts=options.keep_counts or not options.tokenizer,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent session-embedding", description="Similarities of sessions.")
    parser.add_argument("--data-dir", help="in place of DATA_DIR")
    parser.add_argument("--dataset", nargs="+", help="in place of DATASETS")
    parser.add_argument("--split", nargs="+", help="in place of SPLITS")
    parser.add_argument("--output-dir", help="in place of OUTPUT_DIR")
    parser.add_argument("--embed-store-path", help="in place of EMBED_STORE_PATH")
    parser.add_argument("--embedding-model-name", help="in place of EMBEDDING_MODEL_NAME")
    parser.add_argument("--embedding-model-path", help="its sentence-transformers folder; else it is found by name")
    parser.add_argument("--tokenizer", help="folder or id of the tokenizer that session_tokens are by: the ranker's")
    parser.add_argument("--keep-counts", action="store_true", help="files that are there stay with the tokenizer that "
                        "has counted them, and --tokenizer is for new ones; so it is without --tokenizer")
    parser.add_argument("--batch-size", type=positive_number, default=32, help="texts that are embedded at once (32)")
    parser.add_argument("--max-seq-len", type=positive_number, default=512, help="tokens read of a text (512)")
    parser.add_argument("--device", help="cpu or cuda; else a GPU where there is one")
    parser.add_argument("--limit", type=positive_number, help="only so many questions of each file")
    parser.add_argument("--ray", metavar="ADDRESS", help="work on Ray Data: local, auto, HEAD:6379 or "
                        "ray://HEAD:10001 (default: RAY_ADDRESS; none: in this process)")
    parser.add_argument("--workers", type=positive_number, default=1, help="with --ray: processes that embed (1)")
    parser.add_argument("--gpus", type=float, default=0.0, help="with --ray: GPUs of each (0)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
