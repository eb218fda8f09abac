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
import sys
from collections.abc import Sequence
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
from ..system.one_line_errors import one_line_errors
from .files import CHAT, Row, add_option, parsed, stage_config, stage_file, stage_parser
from .orders import FULL, methods, shown
from .run_stage import AskingWorker, Stage, ask_all, endpoint, models_at

_AROUND = 1024
"""Tokens of question, instruction and chat template that a prompt has beside its sessions, at most."""


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    parser = stage_parser("chat-infer", "Answer from the chosen sessions.")
    add_option(parser, "model_name", "", "in the files' names and at BASE_URL; default: its folder's, or the only one")
    add_option(parser, "methods", "", "whose order of sessions, as in 'bge-m3 bm25 full my-ranker a_mem'")
    add_option(parser, "top_k", 10, "sessions shown at most; the method full has no such limit", positive_number)
    add_option(parser, "max_input_tokens", 8192, "tokens of the sessions", positive_number)
    add_option(parser, "full_input_tokens", 131072, "tokens of the sessions of the method full", positive_number)
    add_option(parser, "max_output_token", 4096, "tokens of a reply", positive_number)
    add_option(parser, "chat_concurrency", 64, "requests in flight", positive_number)
    add_option(parser, "chat_timeout", 300.0, "seconds for one attempt", float)
    add_option(parser, "chat_retries", 5, "further attempts on timeouts, connection errors, 429 and 5xx", whole_number)
    parser.add_argument("--model", default="", help="folder or id of a chat model to serve here, without BASE_URL")
    parser.add_argument("--prompts", default="", help="YAML file with another wording, as sessions/wording.yaml")
    given = parsed(parser, argv)
    config, chosen = stage_config(), methods(given)
    if bool(given.model) == bool(config.base_url):
        raise ConfigError(f"BASE_URL={config.base_url!r} --model {given.model!r}: expected one of them")
    model = local_folder(given.model, "--model") if given.model else None
    called = given.model_name or (model.resolve().name if model else _only_model(config.base_url))
    if model:
        config = _with_context(config, model, max(_tokens(given, method.order) for method in chosen)
                               + given.max_output_token)
    settings = {"model": called, "weights": model_hash(model) if model else "", "seed": config.seed,
                "eval_temperature": config.eval_temperature, "wording": load_wording(given.prompts).digest,
                "max_output_token": given.max_output_token}
    stages, orders = [], []
    for method in chosen:
        own = {"order": method.order, "top_k": given.top_k, "tokens": _tokens(given, method.order)}
        for data, source in method.files.items():
            output = stage_file(given.output_dir, data, CHAT, called, method.name)
            stages.append(Stage(source, output, AnswerWorker.adds, settings | own, given.limit))
            orders.append(method.order)
    with endpoint(config, model, called, Path(given.output_dir, called), stages) as server:
        chat = ChatSettings(**server, timeout_s=given.chat_timeout, concurrency=given.chat_concurrency,
                            retries=given.chat_retries, max_output_tokens=given.max_output_token,
                            temperature=config.eval_temperature)
        makers = [partial(AnswerWorker, chat, config, order, given.top_k, _tokens(given, order), given.prompts)
                  for order in orders]
        return ask_all(stages, makers, given, given.chat_concurrency)


class AnswerWorker(AskingWorker):
    name = "chat"
    adds = pa.schema([
        ("generated_text", pa.string()), ("predicted_answer", pa.string()),
        ("shown_session_idx", pa.list_(pa.int64())), ("shown_tokens", pa.int64()), ("api_status", pa.string()),
    ])

    def __init__(
        self, settings: ChatSettings, config: Config, order: str, top_k: int, tokens: int, prompts: str = ""
    ) -> None:
        super().__init__(settings, config)
        self._order, self._top_k, self._tokens = order, top_k, tokens
        self._wording = load_wording(prompts)

    def prepare(self, row: Row) -> tuple[str, Row]:
        asked = question_of(row, self._order)
        positions, tokens, history = shown(row, asked, self._order, self._top_k, self._tokens)
        text = self._wording.chat_prompt(asked.question, history, asked.language, asked.date, asked.options)
        return text, {"shown_session_idx": list(positions), "shown_tokens": tokens}

    def read(self, reply: Reply, added: Row) -> Row:
        return {"predicted_answer": answer_of(reply.text)}


def _only_model(url: str) -> str:
    """Raises ConfigError where there is not one."""
    names = sorted(models_at(url))
    if len(names) != 1:
        raise ConfigError(f"BASE_URL={url} serves {', '.join(names[:5]) or 'no model'}; name one with --model-name")
    return names[0]


def _tokens(given: argparse.Namespace, order: str) -> int:
    """Of the sessions that a method shows."""
    return int(given.full_input_tokens if order == FULL else given.max_input_tokens)


def _with_context(config: Config, model: Path, needed: int) -> Config:
    """With ENGINE_MAX_LEN for sessions and a reply of ``needed`` tokens. Raises ConfigError: there are not as many."""
    limit = min(filter(None, (config.engine_max_len, model_positions(model))), default=sys.maxsize)
    if needed >= limit:
        raise ConfigError(f"--max-input-tokens (--full-input-tokens) and --max-output-token, {needed}, leave no "
                          f"room for a question in {limit} tokens ({model}, ENGINE_MAX_LEN); lower one")
    return config.replace(engine_max_len=min(limit, needed + _AROUND))


if __name__ == "__main__":
    from . import answer  # workers import its classes by this name

    sys.exit(answer.main())
