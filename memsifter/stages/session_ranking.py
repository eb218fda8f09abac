"""Stage 2: ``mem-agent session-ranking``. A model ranks the sessions of each history that stage 1 finds similar.

    mem-agent session-ranking --model /models/ranker                                engines are started for it
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
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...checkpoints.hf_model import local_folder, model_settings
from ...evaluation.connect import connect
from ...evaluation.identity import model_hash
from ...system.command_line_types import positive_number
from ...system.logging_setup import log_to_terminal
from ...system.one_line_errors import one_line_errors
from ...system.signals import stop_on_signals
from ..blocks.block_run import OnRay
from ..blocks.run_blocks import rows_left, run_blocks
from ..stage_files import EMBED, RANKING, Part, parts
from ..stage_options import FINISHED_WITH_FAILURES, RankOptions, add_options, identity, options_of, stage_config
from .own_engines import own_engines
from .rank_worker import ADDS, KEYS, STATUS, RankPlan, RankWorker, settled
from .ranking_summary import summary

_DEFAULTS = {"MEM_MAX_QUESTION": 131072, "MEM_MAX_FINAL": 16384}
"""As published: 128k of prompt, 16k of reply (MemSifter, ``ray_vllm_infer.py``)."""
_OF_THE_MODEL = ("MEM_MAX_QUESTION", "MEM_MAX_FINAL", "MEM_THINKING")
_SHARED = ("mem_max_question", "mem_max_final", "mem_thinking", "eval_temperature", "eval_top_p", "seed")
"""Settings that two runs have in common where their rows belong together."""


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    log_to_terminal(logging.ERROR)
    stop_on_signals()
    stage_config(_DEFAULTS)  # bad settings end it before a model is downloaded
    model = local_folder(given.model, "--model")
    options = options_of(RankOptions, given)
    options = replace(options, model_name=options.model_name or model.resolve().name)
    chosen = parts(options, EMBED, options.embedding_model_name)
    for part in chosen:
        part.made(options.output_dir, EMBED, options.embedding_model_name)  # says at once what is missing
    plan = _plan(options, model, given.served_model or options.model_name)
    address = given.ray if given.ray is not None else plan.config.ray_address
    ray = OnRay(address, given.workers) if address else None
    if plan.config.base_url or not sum(_left(plan, part, given.limit) for part in chosen):
        failed = sum(_run(plan, part, given.limit, ray) for part in chosen)
    else:
        with own_engines(model, plan.config.engine_max_len, Path(options.output_dir, options.model_name)) as url:
            failed = sum(_run(replace(plan, url=url), part, given.limit, ray) for part in chosen)
    if failed:
        print(f"{failed} questions have no reply; run again to ask for them", file=sys.stderr)
    return FINISHED_WITH_FAILURES if failed else 0


def _plan(options: RankOptions, model: Path, served: str) -> RankPlan:
    """The model is asked as it was trained, within the context of the server at BASE_URL where that says so."""
    config = stage_config(_DEFAULTS | _own_settings(model)).replace(
        hf_ckpt=str(model), agent="chat", agent_args="", task="qa", task_args="", eval_mode="recurrent",
    )
    length = asyncio.run(connect("", model, config, KEYS, served)).max_tokens if config.base_url else 0
    return RankPlan(settled(config, options.prompts, model, length), options, model, served)


def _own_settings(model: Path) -> dict[str, Any]:
    """Of a ranker that this pack converted."""
    own = model_settings(model)
    return {name: own[name] for name in _OF_THE_MODEL if name in own} if own.get("AGENT") == "chat" else {}


def _run(plan: RankPlan, part: Part, limit: int | None, ray: OnRay | None) -> int:
    """Rank what is missing; how many questions have no reply."""
    output = _output(plan, part)
    run_blocks(
        _source(plan, part), output, partial(RankWorker, plan, stoppable=ray is None), identity=_identity(plan),
        adds=ADDS, describe=f"{part} {plan.options.model_name}", limit=limit, ray=ray, status=STATUS, data=str(part),
    )
    told, failed = summary(output)
    print(f"{part}: {told} -> {output}", flush=True)
    return failed


def _left(plan: RankPlan, part: Part, limit: int | None) -> int:
    return rows_left(_source(plan, part), _output(plan, part), identity=_identity(plan), adds=ADDS, limit=limit,
                     status=STATUS)


def _source(plan: RankPlan, part: Part) -> Path:
    return part.made(plan.options.output_dir, EMBED, plan.options.embedding_model_name)


def _output(plan: RankPlan, part: Part) -> Path:
    return part.file(plan.options.output_dir, RANKING, plan.options.model_name)


def _identity(plan: RankPlan) -> str:
    shared = {name: getattr(plan.config, name) for name in _SHARED}
    return identity(plan.options.prompts, **shared, rank_top_k=plan.options.rank_top_k, model=model_hash(plan.model))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent session-ranking", description="Rank the sessions of histories.")
    parser.add_argument("--model", default=os.environ.get("MODEL_PATH", ""),
                        help="Hugging Face folder or id of the ranker; it is served here unless BASE_URL is set")
    parser.add_argument("--served-model", default="", help="its name at BASE_URL (default: --model-name)")
    add_options(parser, RankOptions)
    parser.add_argument("--limit", type=positive_number, help="only so many questions of each file")
    parser.add_argument("--ray", metavar="ADDRESS",
                        help="work on Ray Data: local, auto or HEAD:6379 (default: RAY_ADDRESS; none: one process)")
    parser.add_argument("--workers", type=positive_number, default=1, help="with --ray: processes that ask (1)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
