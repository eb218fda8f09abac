"""Stage 3: ``mem-agent chat-infer``. Answers from the sessions that METHODS choose, by a chat model.

    BASE_URL=https://HOST/v1 API_KEY=... MODEL_NAME=gpt-x METHODS="bge-m3 bm25 my-ranker" mem-agent chat-infer

Reads what stages 1 and 2 wrote below OUTPUT_DIR and writes ``OUTPUT_DIR/MODEL_NAME/METHOD/{data set}_{split}_chat
.parquet``: all columns of its input, and

    generated_text      the whole reply             shown_session_idx   positions in the history, ascending
    predicted_answer    what it answers             shown_tokens        of those sessions
    api_status          "ok", or why there is no reply

A failed row is counted, and asked again by the same command; a run that was killed continues, and asks nothing twice.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...checkpoints.hf_model import local_folder, model_positions
from ...client.chat_client import ChatClient
from ...client.chat_settings import KEYS, ChatSettings, key_from
from ...config import Config, ConfigError
from ...evaluation.identity import model_hash
from ...system.command_line_types import positive_number
from ...system.logging_setup import log_to_terminal
from ...system.one_line_errors import one_line_errors
from ...system.server_url import chat_base
from ...system.signals import stop_on_signals
from ...system.text import one_line
from ..blocks.block_reader import read_table
from ..blocks.run_blocks import rows_left, run_blocks
from ..blocks.worker import OK
from ..stage_files import CHAT, Part, folder_name
from .chat_worker import ADDS, STATUS, ChatPlan, ChatWorker
from .shown_sessions import Method, Order, methods
from .stage_settings import FINISHED_WITH_FAILURES, stage_config

_AROUND = 1024
"""Tokens of question, instruction and chat template that a prompt has beside its sessions, at most."""


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    log_to_terminal(logging.ERROR)
    stop_on_signals()
    config = stage_config()
    model = local_folder(options.model, "CHAT_MODEL_PATH") if options.model else None
    chosen = [(method, part) for method in methods(config) for part in method.parts(config)]
    for method, part in chosen:
        method.source(part, config)  # says at once what is missing
    if options.check:
        if model is None:
            raise ConfigError("--check is for a model that is served here: name its folder with --model")
        plan = _plan(config, model, "http://unused", "unused")
        left = sum(_left(plan, method, part, options.limit) for method, part in chosen)
        print(_engine_length(config, model, chosen), left)
        return 0
    plan = _plan(config, model, options.url or "")
    print(one_line(f"asking {plan.served} at {plan.url} as {_folder(plan)}"), file=sys.stderr)
    failed = sum(_run(plan, method, part, options.limit) for method, part in chosen)
    if failed:
        print(f"{failed} questions have no reply; run again to ask for them", file=sys.stderr)
    return FINISHED_WITH_FAILURES if failed else 0


def _plan(config: Config, model: Path | None, own: str, served: str = "") -> ChatPlan:
    """``own`` is the address of a server that was started for this, else BASE_URL; unless ``served`` says, it is asked
    what the model is called there."""
    method = Method("", Order.FULL)  # each run sets its own
    if model is not None:
        if not own:
            raise ConfigError("--model is served at --url; for BASE_URL set MODEL_NAME instead")
        name = config.model_name or model.resolve().name
        config, url = replace(config, model_name=folder_name(name)), chat_base("--url", own, KEYS[0])
        served = served or asyncio.run(_only_model(url, "", is_own=True))
        return ChatPlan(config, method, url, served, f"{name} {model_hash(model)}", own=True)
    if not (own or config.base_url):
        raise ConfigError("BASE_URL is not set: http://HOST:PORT or https://HOST/v1 of a chat model, its key in "
                          f"{KEYS[0]}; or name a model to serve with CHAT_MODEL_PATH")
    url = chat_base("--url" if own else "BASE_URL", own or config.base_url, " or ".join(KEYS))
    served = served or config.model_name or asyncio.run(_only_model(url, key_from(os.environ)))
    config = replace(config, model_name=folder_name(served))
    return ChatPlan(config, method, url, served, served)


async def _only_model(url: str, key: str, is_own: bool = False) -> str:
    client = ChatClient(ChatSettings(url=url, model="", key=key, timeout_s=30.0, is_own=is_own))
    try:
        names = await client.served()
    finally:
        await client.close()
    if len(names) != 1:
        some = one_line(", ".join(sorted(names)[:5]), 200)
        raise ConfigError(f"BASE_URL={url} serves {len(names)} models ({some}); name one with MODEL_NAME")
    return names[0]


def _run(plan: ChatPlan, method: Method, part: Part, limit: int | None) -> int:
    """Answer what is missing; how many questions have no reply."""
    plan = replace(plan, method=method)
    output = _output(plan, part)
    counts = run_blocks(
        method.source(part, plan.config), output, partial(ChatWorker, plan), identity=plan.identity(), adds=ADDS,
        describe=f"{part} {method.name}", limit=limit, status=STATUS, data=str(part),
    )
    said = Counter(read_table(output, [STATUS])[STATUS].to_pylist())
    failed = counts.rows - said[OK]
    print(f"{part} {method.name}: {said[OK]} of {counts.rows} questions answered, {failed} failed -> {output}",
          flush=True)
    for status, times in said.most_common(4):
        if status != OK:
            print(f"failed: {times} x {one_line(str(status), 500)}", file=sys.stderr)
    return failed


def _left(plan: ChatPlan, method: Method, part: Part, limit: int | None) -> int:
    plan = replace(plan, method=method)
    return rows_left(method.source(part, plan.config), _output(plan, part), identity=plan.identity(), adds=ADDS,
                     limit=limit, status=STATUS)


def _output(plan: ChatPlan, part: Part) -> Path:
    return part.file(plan.config, CHAT, plan.config.model_name, plan.method.name)


def _folder(plan: ChatPlan) -> Path:
    return Path(plan.config.output_dir, plan.config.model_name)


def _engine_length(config: Config, model: Path, chosen: Sequence[tuple[Method, Part]]) -> int:
    """Context of a server for ``model``. Raises ConfigError where the model cannot hold what is asked."""
    full = any(method.order is Order.FULL for method, _ in chosen)
    others = any(method.order is not Order.FULL for method, _ in chosen)
    shown = max(config.max_input_tokens * others, config.full_input_tokens * full)
    positions = model_positions(model) or sys.maxsize
    limit = config.engine_max_len or positions
    if shown + config.max_output_token >= limit or limit > positions:
        names = " and ".join(["MAX_INPUT_TOKENS"] * others + ["FULL_INPUT_TOKENS"] * full)
        raise ConfigError(
            f"sessions of {shown} tokens ({names}) and a reply of MAX_OUTPUT_TOKEN={config.max_output_token} leave no "
            f"room for a question in {min(limit, positions)} tokens ({model}, ENGINE_MAX_LEN); lower one of them"
        )
    return min(limit, shown + config.max_output_token + _AROUND)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent chat-infer", description="Answer from the chosen sessions.")
    parser.add_argument("--url", help="server that was started for this, http://HOST:PORT; else BASE_URL")
    parser.add_argument("--model", help="Hugging Face folder or id of the model that --url serves")
    parser.add_argument("--limit", type=positive_number, help="only so many questions of each file")
    parser.add_argument("--check", action="store_true",
                        help="only check settings and files; print the context length that a server for --model needs "
                        "and how many questions have no reply yet")
    return parser


if __name__ == "__main__":
    sys.exit(main())
