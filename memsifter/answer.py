"""Stage 3: ``mem-agent chat-infer``. Answers from the sessions that methods choose, by a chat model.

    BASE_URL=https://HOST/v1 API_KEY=... mem-agent chat-infer --model-name gpt-x --methods "bge-m3 bm25 my-ranker"
    mem-agent chat-infer --model /models/chat --methods "full my-ranker"         engines are started for it

Reads what stages 1 and 2 wrote below OUTPUT_DIR and writes ``OUTPUT_DIR/MODEL_NAME/METHOD/{data set}_{split}_chat
.parquet``: all columns of its input, and

    generated_text      the whole reply             shown_session_idx   positions in the history, ascending
    predicted_answer    what it answers             shown_tokens        of those sessions
    api_status          "ok", or why there is no reply

A failed row is counted, and asked again by the same command; a run that was killed continues, and asks nothing twice.

``--methods`` names whose order counts; OUTPUT_DIR is ``--output-dir``::

    bge-m3       OUTPUT_DIR/bge-m3/locomo_test_embed.parquet      by similarity
    my-ranker    OUTPUT_DIR/my-ranker/locomo_test_ranking.parquet what it named, then by similarity
    bm25, full   stage 1's file of the embedding model            by words in common; the newest, without top_k

The rule is that of training's reward and of the toolkit (``rewards.sessions.pack``): the first ``top_k`` of the order,
those of them that fit ``max_input_tokens``, shown in the order of time. Tokens are stage 1's counts of the sessions
alone. BM25 is Lucene's (k1 1.5, b 0.75), of turns and speakers' names; Chinese counts by characters, English without
stop words (``agents/recall.py``).

Stages 2 and 3 ask a chat endpoint: at BASE_URL, or engines that are started for them and end with them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..agents.records import FailureKind
from ..checkpoints.hf_model import local_folder, model_positions
from ..config import Config, ConfigError
from ..evaluation.questions import model_hash
from ..hooks.chat_model import ChatClient, ChatFailed, ChatSettings, Reply
from ..rewards.sessions import answer_of, by_score, completed, load_wording, pack, question_of, render_history
from ..system.cli import one_line_errors, positive_number
from ..system.errors import MemAgentError
from ..system.server_url import key_from, without_key
from ..system.text import one_line
from . import stages
from .stages import CHAT, EMBED, OK, RANKING, Row, Stage, StageParser
from .table import BM25, bm25_order

FULL = "full"
_AROUND = 1024
"""Tokens of question, instruction and chat template that a prompt has beside its sessions, at most."""
_EMPTY = {pa.string(): "", pa.int64(): 0}


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    parser = StageParser("chat-infer", "Answer from the chosen sessions.")
    parser.option("model_name", "", "in the files' names and at BASE_URL; default: its folder's")
    parser.option("methods", "", "whose order of sessions, as in 'bge-m3 bm25 full my-ranker'")
    parser.option("top_k", 10, "sessions shown at most; the method full has no such limit", positive_number)
    parser.option("max_input_tokens", 8192, "tokens of the sessions", positive_number)
    parser.option("full_input_tokens", 131072, "tokens of the sessions of the method full", positive_number)
    parser.option("max_output_token", 4096, "tokens of a reply", positive_number)
    parser.option("chat_concurrency", 64, "requests in flight", positive_number)
    parser.add_argument("--model", default="", help="folder or id of a chat model to serve here, without BASE_URL")
    parser.add_argument("--prompts", default="", help="YAML file with another wording, as rewards/wording.yaml")
    given = parser.parsed(argv)
    config, embedding = stages.stage_config(), given.embedding_model_name
    if bool(given.model) == bool(config.base_url):
        raise ConfigError(f"BASE_URL={config.base_url!r} --model {given.model!r}: expected one of them")
    model = local_folder(given.model, "--model") if given.model else None
    called = given.model_name or (model.resolve().name if model else "")
    if not called:
        raise ConfigError(f"--model-name: BASE_URL={config.base_url} may serve several models; name one")
    settings = {"model": called, "weights": model_hash(model) if model else "", "seed": config.seed,
                "eval_temperature": config.eval_temperature, "wording": load_wording(given.prompts).digest,
                "max_output_token": given.max_output_token}
    files, shows, most = [], [], 0
    for method in dict.fromkeys(given.methods.split() or [embedding]):
        by, kind = (embedding, EMBED) if method in (BM25, FULL, embedding) else (method, RANKING)
        order = method if method in (BM25, FULL) else kind
        tokens = given.full_input_tokens if order == FULL else given.max_input_tokens
        most = max(most, tokens)
        for data, source in stages.find_files(given, Path(given.output_dir, by), kind).items():
            output = stages.stage_file(given.output_dir, data, CHAT, called, method)
            own = settings | {"order": order, "top_k": given.top_k, "tokens": tokens}
            files.append(Stage(source, output, AnswerWorker.adds, own, given.limit))
            shows.append((order, given.top_k, tokens, given.prompts))
    if model:
        needed = most + given.max_output_token
        limit = min(filter(None, (config.engine_max_len, model_positions(model))), default=sys.maxsize)
        if needed >= limit:
            raise ConfigError(f"--max-input-tokens (--full-input-tokens) and --max-output-token, {needed}, leave no "
                              f"room for a question in {limit} tokens ({model}, ENGINE_MAX_LEN); lower one")
        config = config.replace(engine_max_len=min(limit, needed + _AROUND))
    with endpoint(config, model, called, Path(given.output_dir, called), files) as server:
        chat = ChatSettings(**server, concurrency=given.chat_concurrency, max_output_tokens=given.max_output_token,
                            temperature=config.eval_temperature)
        makers = [partial(AnswerWorker, chat, config, *show) for show in shows]
        return ask_all(files, makers, given, given.chat_concurrency)


# --- a chat endpoint ------------------------------------------------------------------------------------------------


class AskingWorker:
    """A row to the columns that a model's reply adds; made once in each process. A stage's own has ``adds``, and::

        prepare(row) -> tuple[str, Row]     a prompt, and the columns that are known before the reply; raises
                                            MemAgentError: a bad row
        read(reply, added) -> Row           the columns of a reply, beside those ``added``
    """

    adds: pa.Schema
    prepare: Callable[[Row], tuple[str, Row]]
    read: Callable[[Reply, Row], Row]

    def __init__(self, settings: ChatSettings, config: Config) -> None:
        self._key, self._client, self.config = settings.key, ChatClient(settings), config

    async def __call__(self, row: Row) -> Row:
        """Raises ChatFailed where the server is gone, or refuses what every row would ask."""
        status = self.adds.names[-1]
        added: Row = {field.name: _EMPTY.get(field.type, []) for field in self.adds}
        try:
            prompt, known = await asyncio.to_thread(self.prepare, row)
            added |= known
            seed = self.config.seed_for(f"{row.get('question_id')}/{status}")
            (reply,) = await self._client.replies([{"role": "user", "content": prompt}], seed)
        except ChatFailed as error:
            if error.holds_for_all or error.kind is FailureKind.CONNECTION:
                raise
            return added | {status: f"{error.kind}: {error}"}
        except MemAgentError as error:
            return added | {status: f"bad row: {error}"}
        reply = Reply(without_key(reply.text, self._key), reply.cut)
        return added | {"generated_text": reply.text, **self.read(reply, added), status: OK}


class AnswerWorker(AskingWorker):
    adds = pa.schema([
        ("generated_text", pa.string()), ("predicted_answer", pa.string()),
        ("shown_session_idx", pa.list_(pa.int64())), ("shown_tokens", pa.int64()), ("api_status", pa.string()),
    ])

    def __init__(
        self, settings: ChatSettings, config: Config, order: str, top_k: int, tokens: int, prompts: str = ""
    ) -> None:
        """``order``: BM25, FULL, which has no ``top_k``, or the kind of the rows' file, EMBED or RANKING."""
        super().__init__(settings, config)
        self._order, self._top_k, self._tokens = order, None if order == FULL else top_k, tokens
        self._wording = load_wording(prompts)

    def prepare(self, row: Row) -> tuple[str, Row]:
        asked = question_of(row, self._order)
        order: Sequence[int] = by_score(stages.of_sessions(row, "similarities", asked))
        if self._order == BM25:
            order = bm25_order(asked)
        elif self._order == FULL:  # the newest first: what a budget has to cut of a full context is its oldest part
            order = range(len(asked.sessions))[::-1]
        elif self._order == RANKING:
            order = completed(row["haystack_session_gen_rankings"], order)
        packed = pack(order[: self._top_k], stages.of_sessions(row, "session_tokens", asked), self._tokens)
        history = render_history([asked.sessions[position] for position in packed.shown])
        text = self._wording.chat_prompt(asked.question, history, asked.language, asked.date, asked.options)
        return text, {"shown_session_idx": list(packed.shown), "shown_tokens": packed.tokens}

    def read(self, reply: Reply, added: Row) -> Row:
        return {"predicted_answer": answer_of(reply.text)}


def models_at(url: str) -> dict[str, int]:
    """The models at BASE_URL, and the tokens of their contexts; 0 where it does not say. Raises ChatFailed."""
    return asyncio.run(ChatClient(ChatSettings(url=url, model="", key=key_from(os.environ), timeout_s=30.0)).served())


@contextmanager
def endpoint(
    config: Config, model: Path | None, called: str, folder: Path, files: Sequence[Stage]
) -> Iterator[dict[str, Any]]:
    """``url``, ``model`` and ``key`` of ChatSettings: ``called`` at BASE_URL, else engines of ``model`` with a context
    of ENGINE_MAX_LEN tokens, which log to ``folder``/logs; none where ``files`` have nothing left.

    Raises FleetError where they do not start; before, ConfigError of other settings.
    """
    statuses = {status for file in files for status in file.statuses().values()}
    if config.base_url or model is None or statuses <= {OK}:
        yield {"url": config.base_url or "http://127.0.0.1:9", "model": called, "key": key_from(os.environ)}
        return
    from ..serving.fleet import Fleet  # which imports torch
    from ..serving.servers import SERVED_NAME

    print(f"serving {model}, {config.engine_max_len} tokens; logs in {folder}/logs", file=sys.stderr)
    fleet = Fleet(config, model, run_folder=folder)
    with asyncio.Runner() as loop:
        loop.run(fleet.__aenter__())
        try:
            yield {"url": fleet.url, "model": SERVED_NAME}
        finally:
            loop.run(fleet.stop())


def ask_all(
    files: Sequence[Stage], makers: Sequence[Callable[[], stages.Work]], given: argparse.Namespace, concurrency: int
) -> int:
    """Run a stage on every file, with its worker, and say what became of it; the exit code."""
    failed = 0
    for file, make in zip(files, makers, strict=True):
        statuses = file.run(make, given, concurrency)
        count, answered = statuses.total(), statuses.pop(OK, 0)
        print(f"{answered} of {count} questions answered, {count - answered} failed -> {file.output}", flush=True)
        for status, times in statuses.most_common(4):
            print(f"failed: {times} x {one_line(status, 500)}", file=sys.stderr)
        failed += count - answered
    return stages.FINISHED_WITH_FAILURES if failed else 0
