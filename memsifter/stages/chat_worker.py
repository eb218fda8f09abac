"""Stage 3's work: a question with the sessions that a method chose, asked at any chat endpoint."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...agents.records import FailureKind
from ...config import Config
from ...hooks.chat_model import ChatClient, ChatFailed, ChatSettings
from ...sessions.answer import answer_of
from ...sessions.table import BadRow, question_of
from ...sessions.wording import load_wording
from ...system.server_url import key_from
from ..blocks.asking_worker import AskingWorker
from ..blocks.worker import OK, Row
from ..stage_options import ChatOptions, identity
from .shown_sessions import Method, shown

ADDS = pa.schema([
    ("generated_text", pa.string()), ("predicted_answer", pa.string()), ("shown_session_idx", pa.list_(pa.int64())),
    ("shown_tokens", pa.int64()), ("api_status", pa.string()),
])
STATUS = "api_status"
_NOTHING = {"generated_text": "", "predicted_answer": "", "shown_session_idx": [], "shown_tokens": 0}
_FIRST = 8
"""So many failures before any reply, of this run and of earlier ones, end the run."""


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """What a worker is made from; pickles, and has no key."""

    config: Config
    options: ChatOptions
    method: Method
    url: str
    served: str
    """The model's name at ``url``."""
    model: str
    """What it is called in the files, with whatever tells its weights apart."""

    def client(self) -> ChatClient:
        options = self.options
        return ChatClient(ChatSettings(
            url=self.url, model=self.served, key=key_from(os.environ) if self.config.base_url else "",
            concurrency=options.chat_concurrency, timeout_s=options.chat_timeout, retries=options.chat_retries,
            max_output_tokens=options.max_output_token, temperature=self.config.eval_temperature,
        ))

    def identity(self) -> str:
        """The address is not in it: a server may move."""
        names = {"full": ("full_input_tokens",), "memory": ()}.get(self.method.order, ("top_k", "max_input_tokens"))
        shared = {name: getattr(self.options, name) for name in ("max_output_token", *names)}
        return identity(
            self.options.prompts, **shared, eval_temperature=self.config.eval_temperature, seed=self.config.seed,
            model=self.model, method=self.method.name, order=self.method.order,
        )


class ChatWorker(AskingWorker):
    status = STATUS

    def __init__(self, plan: ChatPlan) -> None:
        super().__init__(stoppable=True)
        self._plan = plan
        self._client = plan.client()
        self._wording = load_wording(plan.options.prompts)

    async def ask(self, row: Row) -> Row:
        """Raises ChatFailed where the server is gone, or refuses what every row would ask."""
        try:
            added, prompt, name = await asyncio.to_thread(self.prepared, row)
        except BadRow as error:
            return {**_NOTHING, STATUS: f"bad row: {error}"}
        try:
            seed = self._plan.config.seed_for(f"{name}/chat")
            reply = await self._client.ask([{"role": "user", "content": prompt}], seed)
        except ChatFailed as failed:
            if failed.holds_for_all or failed.kind is FailureKind.CONNECTION or self._in_vain(failed):
                raise
            return {**added, STATUS: f"{failed.kind}: {failed}"}
        return {**added, "generated_text": reply, "predicted_answer": answer_of(reply), STATUS: OK}

    def _in_vain(self, failed: ChatFailed) -> bool:
        """Whether the rest would fail alike. A refusal comes at once, ahead of replies that are on their way."""
        counts = self._client.counts
        on_their_way = failed.kind is FailureKind.REJECTED and counts["asked"] > counts["failed"]
        return counts["failed"] >= _FIRST and not (counts["answered"] or self.answered_before or on_their_way)

    async def finish(self) -> None:
        await self._client.close()

    def prepared(self, row: Row) -> tuple[dict[str, Any], str, str]:
        """The columns without a reply, the prompt, and the question's name."""
        asked = question_of(row, str(self._plan.method.name))
        seen = shown(row, asked, self._plan.method, self._plan.options)
        prompt = self._wording.chat_prompt(asked.question, seen.history, asked.language, asked.date, asked.options)
        added = {**_NOTHING, "shown_session_idx": list(seen.positions), "shown_tokens": seen.tokens}
        return added, prompt, asked.id
