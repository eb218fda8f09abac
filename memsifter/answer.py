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
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pyarrow as pa

from ..checkpoints.hf_model import local_folder, model_positions
from ..config import Config, ConfigError
from ..evaluation.jobs import model_hash
from ..hooks.chat_model import ChatSettings, Reply
from ..sessions.ranking import answer_of
from ..sessions.records import question_of
from ..sessions.wording import load_wording
from ..system.command_line_types import positive_number, whole_number
from ..system.logging_setup import log_to_terminal
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from ..system.text import one_line
from .endpoint import (
    KEYS,
    NOWHERE,
    AskingWorker,
    Prompt,
    base_url,
    concurrency_of,
    failures_of,
    key,
    only_model,
    own_engines,
    wording_digest,
)
from .files import CHAT, FINISHED_WITH_FAILURES, OK, Part, Row, add_option, folder_name, stage_config, stage_parser
from .orders import Budget, Method, Order, methods, shown
from .run_stage import StageRun, cluster_of

ADDS = pa.schema([
    ("generated_text", pa.string()), ("predicted_answer", pa.string()), ("shown_session_idx", pa.list_(pa.int64())),
    ("shown_tokens", pa.int64()), ("api_status", pa.string()),
])
_AROUND = 1024
"""Tokens of question, instruction and chat template that a prompt has beside its sessions, at most."""


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    log_to_terminal(logging.ERROR)
    stop_on_signals()
    config, cluster = stage_config(), cluster_of(given.ray, given.workers)
    chosen = [(method, part) for method in methods(given) for part in method.parts(given)]
    for method, part in chosen:
        method.source(part, given.output_dir)  # says at once what is missing
    if given.model and config.base_url:
        raise ConfigError(f"--model {given.model} is served here, but BASE_URL is set; leave one of them out")
    if not (given.model or config.base_url):
        raise ConfigError("BASE_URL is not set: http://HOST:PORT or https://HOST/v1 of a chat model, its key in "
                          f"{KEYS[1]}; or name a model to serve here with --model")
    model = local_folder(given.model, "--model") if given.model else None
    url = base_url(config.base_url) if config.base_url else ""
    called = given.model_name or (model.resolve().name if model else only_model(url, key()))
    weights = model_hash(model) if model else ""
    runs = [_run_of(given, config, method, part, called, weights) for method, part in chosen]
    folder = Path(given.output_dir, folder_name(called))
    length = _engine_length(config, given, model, chosen) if model else 0
    failed = 0
    with own_engines(model, length, folder, runs) if model else nullcontext(url) as address:
        served = called if url else only_model(address, "") if address != NOWHERE else ""
        print(one_line(f"asking {served} at {address} as {called}"), file=sys.stderr)
        settings = ChatSettings(
            url=address, model=served, key=key() if url else "", timeout_s=given.chat_timeout,
            concurrency=concurrency_of(given.chat_concurrency, cluster.workers), retries=given.chat_retries,
            max_output_tokens=given.max_output_token, temperature=config.eval_temperature,
        )
        for (method, part), run in zip(chosen, runs, strict=True):
            make = partial(AnswerWorker, settings, config, method.order, _budget(given), given.prompts)
            said = run.run(make, cluster, settings.concurrency, f"{part} {method.name}")
            failed += said.total() - said[OK]
            print(f"{part} {method.name}: {said[OK]} of {said.total()} questions answered, {said.total() - said[OK]} "
                  f"failed -> {run.output}", flush=True)
            print("".join(f"{line}\n" for line in failures_of(said)), end="", file=sys.stderr)
    if failed:
        print(f"{failed} questions have no reply; run again to ask for them", file=sys.stderr)
    return FINISHED_WITH_FAILURES if failed else 0


class AnswerWorker(AskingWorker):
    adds = ADDS
    nothing = {"generated_text": "", "predicted_answer": "", "shown_session_idx": [], "shown_tokens": 0}
    status = "api_status"

    def __init__(self, settings: ChatSettings, config: Config, order: Order, budget: Budget, prompts: str = "",
                 answered_before: bool = False) -> None:
        super().__init__(settings, answered_before)
        self._config, self._order, self._budget = config, order, budget
        self._wording = load_wording(prompts)

    def prepare(self, row: Row) -> Prompt:
        asked = question_of(row, str(self._order))
        seen = shown(row, asked, self._order, self._budget)
        text = self._wording.chat_prompt(asked.question, seen.history, asked.language, asked.date, asked.options)
        added = {"shown_session_idx": list(seen.positions), "shown_tokens": seen.tokens}
        return Prompt(text, self._config.seed_for(f"{asked.id}/chat"), added, seen.positions)

    def read(self, reply: Reply, shown: tuple[int, ...]) -> Row:
        return {"generated_text": reply.text, "predicted_answer": answer_of(reply.text)}


def _run_of(given: argparse.Namespace, config: Config, method: Method, part: Part, called: str, weights: str
            ) -> StageRun:
    """The server's address is no setting: it may move."""
    budgets = {"full": ["full_input_tokens"], "memory": []}.get(method.order, ["top_k", "max_input_tokens"])
    settings = {
        "model": called, "weights": weights, "method": method.name, "order": str(method.order),
        "eval_temperature": config.eval_temperature, "seed": config.seed, "wording": wording_digest(given.prompts),
        **{name: getattr(given, name) for name in ("max_output_token", *budgets)},
    }
    return StageRun(method.source(part, given.output_dir), part.file(given.output_dir, CHAT, called, method.name),
                    ADDS, AnswerWorker.status, settings, str(part), given.limit)


def _budget(given: argparse.Namespace) -> Budget:
    return Budget(given.top_k, given.max_input_tokens, given.full_input_tokens)


def _engine_length(
    config: Config, given: argparse.Namespace, model: Path, chosen: Sequence[tuple[Method, Part]]
) -> int:
    """Context of engines for ``model``. Raises ConfigError where the model cannot hold what is asked."""
    orders = {method.order for method, _ in chosen}
    budgets = {"--full-input-tokens": given.full_input_tokens} if Order.FULL in orders else {}
    budgets |= {"--max-input-tokens": given.max_input_tokens} if orders - {Order.FULL} else {}
    shown = max(budgets.values())
    positions = model_positions(model) or sys.maxsize
    limit = min(config.engine_max_len or positions, positions)
    if shown + given.max_output_token >= limit:
        raise ConfigError(
            f"sessions of {shown} tokens ({' and '.join(sorted(budgets))}) and a reply of --max-output-token "
            f"{given.max_output_token} leave no room for a question in {limit} tokens ({model}, ENGINE_MAX_LEN); "
            "lower one of them"
        )
    return min(limit, shown + given.max_output_token + _AROUND)


def _seconds(text: str) -> float:
    if not 0 < (value := float(text)) < float("inf"):
        raise ValueError(text)
    return value


def _parser() -> argparse.ArgumentParser:
    parser = stage_parser("chat-infer", "Answer from the chosen sessions.")
    parser.add_argument("--model", help="Hugging Face folder or id of a chat model that is served here, without "
                        "BASE_URL")
    add_option(parser, "model_name", "", "the model's name in the files' names and at BASE_URL; default: its "
               "folder's, or that of the only model at BASE_URL")
    add_option(parser, "methods", "", "whose order of sessions, separated by blanks: an embedding model, a ranker, "
               "bm25, full or a folder of *_retrieved_memory.parquet; default: the embedding model's")
    add_option(parser, "top_k", 10, "sessions that are shown at most; the method full has no such limit",
               positive_number)
    add_option(parser, "max_input_tokens", 8192, "tokens of the sessions", positive_number)
    add_option(parser, "full_input_tokens", 131072, "tokens of the sessions of the method full", positive_number)
    add_option(parser, "max_output_token", 4096, "tokens of a reply", positive_number)
    add_option(parser, "chat_concurrency", 64, "requests in flight", positive_number)
    add_option(parser, "chat_timeout", 300.0, "seconds for one attempt", _seconds)
    add_option(parser, "chat_retries", 5, "further attempts on timeouts, connection errors, 429 and 5xx", whole_number)
    parser.add_argument("--prompts", default="", metavar="YAML",
                        help="file with another wording, in the shape of sessions/wording.yaml")
    return parser


if __name__ == "__main__":
    from . import answer  # workers import its classes by this name

    sys.exit(answer.main())
