"""Stage 2: ``mem-agent session-ranking``. A model ranks the sessions of each history that stage 1 finds similar.

    mem-agent session-ranking --model /models/ranker --url http://127.0.0.1:8000     its server was started for this
    BASE_URL=https://HOST/v1 mem-agent session-ranking --model org/ranker            tokens are counted with --model

Reads ``OUTPUT_DIR/EMBEDDING_MODEL_NAME/{data set}_{split}_embed.parquet`` and writes
``OUTPUT_DIR/MODEL_NAME/{data set}_{split}_ranking.parquet``: its columns, and

    generated_text                 the whole reply
    prefiltered_session_idx        positions in the history that the prompt showed, ascending
    haystack_session_gen_rankings  positions in the history that the reply names, best first
    ranking_error                  why the reply is no valid ranking, or empty
    rank_status                    "ok", or why there is no reply; asked again by the same command

The model is asked as it was trained (AGENT=chat): one message of at most MEM_MAX_QUESTION tokens (131072, or what its
context leaves), a reply of MEM_MAX_FINAL (16384). A model that this pack converted brings its own.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...checkpoints.hf_model import local_folder, model_settings
from ...config import Config, ConfigError
from ...evaluation.connect import connect
from ...evaluation.identity import model_hash
from ...system.command_line_types import positive_number
from ...system.logging_setup import log_to_terminal
from ...system.one_line_errors import one_line_errors
from ...system.signals import stop_on_signals
from ..blocks.block_run import OnRay
from ..blocks.run_blocks import rows_left, run_blocks
from ..stage_files import EMBED, RANKING, Part, parts
from .rank_worker import ADDS, KEYS, STATUS, RankPlan, RankWorker, settled
from .ranking_summary import summary
from .stage_settings import FINISHED_WITH_FAILURES, identity, stage_config

_DEFAULTS = {"MEM_MAX_QUESTION": 131072, "MEM_MAX_FINAL": 16384}
"""As published: 128k of prompt, 16k of reply (MemSifter, ``ray_vllm_infer.py``)."""
_OF_THE_MODEL = ("MEM_MAX_QUESTION", "MEM_MAX_FINAL", "MEM_THINKING")
_SHAPING = ["mem_max_question", "mem_max_final", "mem_thinking", "rank_top_k", "eval_temperature", "eval_top_p",
            "seed"]


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    log_to_terminal(logging.ERROR)
    stop_on_signals()
    config = stage_config(_DEFAULTS)  # bad settings end it before a model is downloaded
    model = local_folder(options.model, "MODEL_PATH")
    config = _asked_as_trained(stage_config(_DEFAULTS | _own_settings(model)))
    config = replace(config, hf_ckpt=str(model), model_name=config.model_name or model.resolve().name)
    chosen = parts(config, EMBED, config.embedding_model_name)
    for part in chosen:
        part.made(config, EMBED, config.embedding_model_name)
    if not (options.check or options.url or config.base_url):
        raise ConfigError("no server: start one with mem-agent serve-engines and name it with --url, or set BASE_URL; "
                          "scripts/infer/session_ranking.sh does it all")
    plan = RankPlan(settled(config, model, _length(config, model, options)), model, options.url or "")
    if options.check:
        own = plan.config
        left = sum(_left(plan, part, options.limit) for part in chosen)
        print(own.engine_max_len, own.mem_max_question, own.mem_max_final, left)
        return 0
    address = options.ray if options.ray is not None else config.ray_address
    ray = OnRay(address, options.workers) if address else None
    failed = sum(_run(plan, part, options.limit, ray) for part in chosen)
    if failed:
        print(f"{failed} questions have no reply; run again to ask for them", file=sys.stderr)
    return FINISHED_WITH_FAILURES if failed else 0


def _own_settings(model: Path) -> dict[str, Any]:
    """Of a ranker that this pack converted."""
    own = model_settings(model)
    return {name: own[name] for name in _OF_THE_MODEL if name in own} if own.get("AGENT") == "chat" else {}


def _asked_as_trained(config: Config) -> Config:
    return replace(config, agent="chat", agent_args="", task="qa", task_args="", eval_mode="recurrent",
                   eval_model=config.eval_model or config.model_name)


def _length(config: Config, model: Path, options: argparse.Namespace) -> int:
    """The context of a foreign server, where it says so."""
    if options.check or options.url:
        return 0
    return asyncio.run(connect("", model, config, KEYS)).max_tokens


def _run(plan: RankPlan, part: Part, limit: int | None, ray: OnRay | None) -> int:
    """Rank what is missing; how many questions have no reply."""
    output = part.file(plan.config, RANKING, plan.config.model_name)
    run_blocks(
        _source(plan, part), output, partial(RankWorker, plan, stoppable=ray is None), identity=_identity(plan),
        adds=ADDS, describe=f"{part} {plan.config.model_name}", limit=limit, ray=ray, status=STATUS,
        data=str(part),
    )
    told, failed = summary(output)
    print(f"{part}: {told} -> {output}", flush=True)
    return failed


def _left(plan: RankPlan, part: Part, limit: int | None) -> int:
    return rows_left(_source(plan, part), part.file(plan.config, RANKING, plan.config.model_name),
                     identity=_identity(plan), adds=ADDS, limit=limit, status=STATUS)


def _source(plan: RankPlan, part: Part) -> Path:
    return part.made(plan.config, EMBED, plan.config.embedding_model_name)


def _identity(plan: RankPlan) -> str:
    return identity(plan.config, _SHAPING, model=model_hash(plan.model))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent session-ranking", description="Rank the sessions of histories.")
    parser.add_argument("--model", required=True, help="Hugging Face folder or id of the ranker, or of its tokenizer")
    parser.add_argument("--url", help="server that was started for this, http://HOST:PORT; else BASE_URL")
    parser.add_argument("--limit", type=positive_number, help="only so many questions of each file")
    parser.add_argument("--ray", metavar="ADDRESS",
                        help="work on Ray Data: local, auto or HEAD:6379 (default: RAY_ADDRESS; none: one process)")
    parser.add_argument("--workers", type=positive_number, default=1, help="with --ray: processes that ask (1)")
    parser.add_argument("--check", action="store_true",
                        help="only check settings and files; print the context length, the tokens of prompt and of "
                        "reply that a server needs, and how many questions have no reply yet")
    return parser


if __name__ == "__main__":
    sys.exit(main())
