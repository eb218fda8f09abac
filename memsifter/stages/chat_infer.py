"""Stage 3: ``mem-agent chat-infer``. Answers from the sessions that methods choose, by a chat model.

    BASE_URL=https://HOST/v1 API_KEY=... mem-agent chat-infer --model-name gpt-x --methods "bge-m3 bm25 my-ranker"
    mem-agent chat-infer --model /models/chat --methods "full my-ranker"         engines are started for it

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
from ...config import Config, ConfigError
from ...evaluation.identity import model_hash
from ...hooks.chat_model import ChatClient, ChatSettings
from ...system.command_line_types import positive_number
from ...system.logging_setup import log_to_terminal
from ...system.one_line_errors import one_line_errors
from ...system.server_url import KEYS, chat_base, key_from
from ...system.signals import stop_on_signals
from ...system.text import one_line
from ..blocks.block_reader import read_table
from ..blocks.run_blocks import rows_left, run_blocks
from ..blocks.worker import OK
from ..stage_files import CHAT, Part, folder_name
from ..stage_options import FINISHED_WITH_FAILURES, ChatOptions, add_options, options_of, stage_config
from .chat_worker import ADDS, STATUS, ChatPlan, ChatWorker
from .own_engines import own_engines
from .shown_sessions import Method, Order, methods

_AROUND = 1024
"""Tokens of question, instruction and chat template that a prompt has beside its sessions, at most."""
Chosen = Sequence[tuple[Method, Part]]


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    log_to_terminal(logging.ERROR)
    stop_on_signals()
    config, options = stage_config(), options_of(ChatOptions, given)
    chosen = [(method, part) for method in methods(options) for part in method.parts(options)]
    for method, part in chosen:
        method.source(part, options)  # says at once what is missing
    if given.model and config.base_url:
        raise ConfigError(f"--model {given.model} is served here, but BASE_URL is set; leave one of them out")
    if given.model:
        failed = _served_here(config, options, given, chosen)
    else:
        failed = _run(_plan_at(config, options), chosen, given.limit)
    if failed:
        print(f"{failed} questions have no reply; run again to ask for them", file=sys.stderr)
    return FINISHED_WITH_FAILURES if failed else 0


def _plan_at(config: Config, options: ChatOptions) -> ChatPlan:
    """The model at BASE_URL; unless ``--model-name`` says, it is asked what the model is called there."""
    if not config.base_url:
        raise ConfigError("BASE_URL is not set: http://HOST:PORT or https://HOST/v1 of a chat model, its key in "
                          f"{KEYS[0]}; or name a model to serve here with --model")
    url = chat_base("BASE_URL", config.base_url, " or ".join(KEYS))
    served = options.model_name or asyncio.run(_only_model(url, key_from(os.environ)))
    options = replace(options, model_name=folder_name(served))
    return ChatPlan(config, options, Method("", Order.FULL), url, served, served)


def _served_here(config: Config, options: ChatOptions, given: argparse.Namespace, chosen: Chosen) -> int:
    """Answer what is missing by engines that are started for ``--model``; how many questions have no reply."""
    model = local_folder(given.model, "--model")
    name = options.model_name or model.resolve().name
    options = replace(options, model_name=folder_name(name))
    length = _engine_length(config, options, model, chosen)
    plan = ChatPlan(config, options, Method("", Order.FULL), "", "", f"{name} {model_hash(model)}")
    if not any(_left(plan, method, part, given.limit) for method, part in chosen):
        return _run(plan, chosen, given.limit)  # asks nobody
    with own_engines(model, length, Path(options.output_dir, options.model_name)) as server:
        url = chat_base("the engines", server, "")
        plan = replace(plan, url=url, served=asyncio.run(_only_model(url, "")))
        return _run(plan, chosen, given.limit)


async def _only_model(url: str, key: str) -> str:
    client = ChatClient(ChatSettings(url=url, model="", key=key, timeout_s=30.0))
    try:
        names = await client.served()
    finally:
        await client.close()
    if len(names) != 1:
        some = one_line(", ".join(sorted(names)[:5]), 200)
        raise ConfigError(f"BASE_URL={url} serves {len(names)} models ({some}); name one with --model-name")
    return names[0]


def _run(plan: ChatPlan, chosen: Chosen, limit: int | None) -> int:
    """Answer what is missing; how many questions have no reply."""
    if plan.url:
        print(one_line(f"asking {plan.served} at {plan.url} as {plan.options.model_name}"), file=sys.stderr)
    return sum(_run_one(replace(plan, method=method), part, limit) for method, part in chosen)


def _run_one(plan: ChatPlan, part: Part, limit: int | None) -> int:
    method, output = plan.method, _output(plan, part)
    counts = run_blocks(
        method.source(part, plan.options), output, partial(ChatWorker, plan), identity=plan.identity(), adds=ADDS,
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
    return rows_left(method.source(part, plan.options), _output(plan, part), identity=plan.identity(), adds=ADDS,
                     limit=limit, status=STATUS)


def _output(plan: ChatPlan, part: Part) -> Path:
    return part.file(plan.options.output_dir, CHAT, plan.options.model_name, plan.method.name)


def _engine_length(config: Config, options: ChatOptions, model: Path, chosen: Chosen) -> int:
    """Context of engines for ``model``. Raises ConfigError where the model cannot hold what is asked."""
    full = any(method.order is Order.FULL for method, _ in chosen)
    others = any(method.order is not Order.FULL for method, _ in chosen)
    shown = max(options.max_input_tokens * others, options.full_input_tokens * full)
    positions = model_positions(model) or sys.maxsize
    limit = config.engine_max_len or positions
    if shown + options.max_output_token >= limit or limit > positions:
        names = " and ".join(["--max-input-tokens"] * others + ["--full-input-tokens"] * full)
        raise ConfigError(
            f"sessions of {shown} tokens ({names}) and a reply of --max-output-token {options.max_output_token} leave "
            f"no room for a question in {min(limit, positions)} tokens ({model}, ENGINE_MAX_LEN); lower one of them"
        )
    return min(limit, shown + options.max_output_token + _AROUND)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent chat-infer", description="Answer from the chosen sessions.")
    parser.add_argument("--model", help="Hugging Face folder or id of a chat model that is served here, without "
                        "BASE_URL")
    add_options(parser, ChatOptions)
    parser.add_argument("--limit", type=positive_number, help="only so many questions of each file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
