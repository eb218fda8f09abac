"""The model that stages 2 and 3 ask: at BASE_URL, or engines that are started for a stage and end with it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..agents.records import FailureKind
from ..config import ConfigError
from ..hooks.chat_model import ChatClient, ChatFailed, ChatSettings, Reply
from ..sessions import wording
from ..system import server_url
from ..system.errors import MemAgentError
from ..system.processes import ChildProcess, FleetError
from ..system.python_command import python_module
from ..system.server_url import chat_base, key_from, without_key
from ..system.signals import stop_if_asked
from ..system.text import one_line
from .files import OK, Row
from .run_stage import StageRun

KEYS = ("BASE_URL_KEY", *server_url.KEYS)
"""Variables of the key of the server at BASE_URL, the first one first."""
NOWHERE = "http://127.0.0.1:9"
"""In place of engines that nobody would ask."""
_FIRST = 8
"""So many failures before any reply, of this run and of earlier ones, end the run."""
_POLL_S = 0.2
_GRACE_S = 60.0


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str
    seed: int | None
    added: Row
    """Columns that are known before the reply."""
    shown: tuple[int, ...]
    """Positions in the history of the sessions that it shows."""


class AskingWorker(ABC):
    """A row to the columns that a model's reply adds; made once in each process."""

    adds: pa.Schema
    nothing: Row
    """The columns of a row without a prompt."""
    status: str

    def __init__(self, settings: ChatSettings, answered_before: bool) -> None:
        self._settings, self._answered_before = settings, answered_before
        self._client = ChatClient(settings)

    @abstractmethod
    def prepare(self, row: Row) -> Prompt:
        """Raises MemAgentError: a bad row."""

    @abstractmethod
    def read(self, reply: Reply, shown: tuple[int, ...]) -> Row:
        """The columns of a reply to a prompt that shows these sessions."""

    async def __call__(self, row: Row) -> Row:
        """Raises ChatFailed where the server is gone, or refuses what every row would ask."""
        try:
            prompt = await asyncio.to_thread(self.prepare, row)
        except MemAgentError as error:
            return {**self.nothing, self.status: f"bad row: {error}"}
        added = {**self.nothing, **prompt.added}
        try:
            (reply,) = await self._client.replies([{"role": "user", "content": prompt.text}], prompt.seed)
        except ChatFailed as failed:
            if failed.holds_for_all or failed.kind is FailureKind.CONNECTION or self._in_vain(failed):
                raise
            return {**added, self.status: f"{failed.kind}: {failed}"}
        reply = Reply(without_key(reply.text, self._settings.key), reply.cut)
        return {**added, **self.read(reply, prompt.shown), self.status: OK}

    def _in_vain(self, failed: ChatFailed) -> bool:
        """Whether the rest would fail alike. A refusal comes at once, ahead of replies that are on their way."""
        counts = self._client.counts
        on_their_way = failed.kind is FailureKind.REJECTED and counts["asked"] > counts["failed"]
        return counts["failed"] >= _FIRST and not (counts["answered"] or self._answered_before or on_their_way)


def base_url(url: str) -> str:
    """BASE_URL as OpenAI's clients take it. Raises ConfigError."""
    return chat_base("BASE_URL", url, " or ".join(KEYS))


def key() -> str:
    return key_from(os.environ, KEYS)


def served_at(url: str, key: str) -> dict[str, int]:
    """The models at ``url``, and the tokens of their contexts; 0 where it does not say. Raises ChatFailed."""
    async def listed() -> dict[str, int]:
        client = ChatClient(ChatSettings(url=url, model="", key=key, timeout_s=30.0))
        try:
            return await client.served()
        finally:
            await client.close()

    return asyncio.run(listed())


def only_model(url: str, key: str) -> str:
    """Raises ConfigError where there is not one."""
    names = sorted(served_at(url, key))
    if len(names) != 1:
        some = one_line(", ".join(names[:5]), 200)
        raise ConfigError(f"BASE_URL={url} serves {len(names)} models ({some}); name one with --model-name")
    return names[0]


@contextmanager
def own_engines(model: Path, length: int, folder: Path, runs: Sequence[StageRun]) -> Iterator[str]:
    """The address of ``mem-agent serve-engines`` with a context of ``length`` tokens, logging to ``folder``/logs; none
    where ``runs`` have nothing left to ask.

    Raises FleetError where it does not start.
    """
    left = [run.wanted() for run in runs]  # of all: other settings are refused before an engine starts
    if not any(left):
        yield NOWHERE
        return
    # The stage bounds prompts and replies by itself: the agent's own lengths must not refuse the context.
    own = {"SAVE_PATH": str(folder), "ENGINE_MAX_LEN": str(length), "AGENT": "chat", "EVAL_MODE": "recurrent",
           "MEM_MAX_QUESTION": "1", "MEM_MAX_FINAL": "1", "AGENT_ARGS": "", "RECIPE": os.devnull}
    log = folder / "logs" / "serve-engines.log"
    print(f"serving {model} with a context of {length} tokens; logs in {log.parent}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        url = Path(scratch, "url")
        command = python_module("mem_agent", "serve-engines", "--model", str(model), "--url-file", str(url))
        server = ChildProcess("serve-engines", command, os.environ | own, log)
        try:
            while not url.exists():
                if server.exit_code is not None:
                    raise FleetError(server.describe())
                stop_if_asked()
                time.sleep(_POLL_S)
            yield url.read_text().strip()
        finally:
            server.stop(_GRACE_S)


def wording_digest(prompts: str) -> str:
    """Of all that a model is asked around a history. Raises ConfigError: ``prompts`` is no wording."""
    wording.load_wording(prompts)
    texts = b"\n".join(Path(path).read_bytes() for path in (wording.OWN, prompts) if path)
    return hashlib.sha256(texts).hexdigest()[:12]


def concurrency_of(requests: int, workers: int) -> int:
    """Requests in flight of each of several workers."""
    return max(1, requests // workers)


def failures_of(statuses: dict[str, Any]) -> list[str]:
    """A line for each of the most frequent failures."""
    failed = sorted(((times, status) for status, times in statuses.items() if status != OK), reverse=True)
    return [f"failed: {times} x {one_line(status, 500)}" for times, status in failed[:4]]
