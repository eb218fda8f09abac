"""Control calls to the servers of a fleet: what the router is told, and an engine's weights.

Calls go straight to the server's own URL; the router would pass an engine's to whichever worker it likes. Every call
either did what it says or raises ``ControlError``; nothing here retries.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from ..rollout_client import GENERATE
from ..system.concurrency import watched
from ..system.errors import reason_of
from ..system.processes import FleetError
from ..system.text import one_line

CONTROL_TIMEOUT_S = 60.0
RELOAD_TIMEOUT_S, LOOK_EVERY_S = 600.0, 5.0
"""How long a reload may take, and how often the engine is checked meanwhile."""
HUNG_TIMEOUT_S = 40.0
"""An idle engine answers within milliseconds. A busy one answers between two steps, and on CPU a step of a long prompt
may take minutes."""
ADMIT_TIMEOUT_S = 60
"""For the router to see a new worker healthy; ``/add_worker`` answers then."""


class ControlError(FleetError):
    """A control call failed: the message names server, call and answer."""


@dataclass(frozen=True)
class Server:
    """The server at ``url``."""

    url: str
    session: aiohttp.ClientSession

    async def answers(self, path: str, timeout_s: float = 10.0) -> bool:
        """Whether it answers 200. An engine whose process hangs can still look healthy."""
        try:
            async with self.session.get(self.url + path, timeout=aiohttp.ClientTimeout(timeout_s)) as reply:
                return reply.status == 200
        except (aiohttp.ClientError, OSError):
            return False

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = CONTROL_TIMEOUT_S
    ) -> Any:
        """The answer's JSON; an empty object where it has no body."""
        where, timeout = f"{method} {self.url}{path}", aiohttp.ClientTimeout(timeout_s)
        try:
            request = self.session.request(method, self.url + path, json=body, timeout=timeout)
            async with request as reply:
                text = await reply.text()
        except (aiohttp.ClientError, OSError) as cause:
            raise ControlError(f"{where} failed: {reason_of(cause, 300)}") from cause
        if reply.status != 200:
            raise ControlError(f"{where} answered {reply.status}: {one_line(text, 300)}")
        return orjson.loads(text) if text and reply.content_type == "application/json" else {}


class EngineClient(Server):
    async def try_out(self, timeout_s: float) -> None:
        """Have a prompt read and a token decoded. No cache block is filled and no random number drawn by it."""
        params = {"max_tokens": 2, "temperature": 0, "ignore_eos": True}
        await self.call("POST", GENERATE, {"token_ids": [0, 0], "sampling_params": params}, timeout_s)

    async def load(self, folder: Path, version: str) -> None:
        """From whatever it serves to ``folder``'s weights as ``version``, with nothing cached from before; requests
        in flight return what they have. A ``ControlError`` leaves it paused, and this may be called again.
        """
        # It waits for the step that runs.
        await self._while_it_lives(self.call("POST", "/pause?mode=abort", timeout_s=RELOAD_TIMEOUT_S))
        await self.reload_weights(folder)
        await self.name_weights(version)
        await self.reset_prefix_cache()
        await self.call("POST", "/resume")

    async def reload_weights(self, folder: Path) -> None:
        """Load ``folder``'s safetensors in place. After a failure the weights are broken: keep it paused."""
        body = {"method": "reload_policy", "kwargs": {"weights_path": str(folder)}}
        await self._while_it_lives(self.call("POST", "/collective_rpc", body, RELOAD_TIMEOUT_S))

    async def name_weights(self, version: str) -> None:
        """Set the version, with which every later token is reported, and see that the server reports it."""
        await self.call("POST", "/update_weight_version", {"new_version": version})
        if (found := await self.weight_info()) != version:
            raise FleetError(f"engine {self.url} reports weight version {found!r} instead of {version!r}; "
                             "it is not a server of this fleet or does not support weight updates")

    async def weight_info(self, timeout_s: float = CONTROL_TIMEOUT_S) -> str:
        """The weight version, asked of the engine process itself: an answer proves that it is not hung."""
        reply = await self.call("GET", "/weight_info", timeout_s=timeout_s)
        return str(reply.get("weight_version"))

    async def reset_prefix_cache(self) -> None:
        """Forget key-value blocks of earlier weights. Refused while requests hold blocks, which raises."""
        reply = await self.call("POST", "/reset_prefix_cache")
        if reply.get("success") is not True:
            raise ControlError(f"engine {self.url}: /reset_prefix_cache was refused: {reply!s:.300}")

    async def _while_it_lives(self, call: Coroutine[Any, Any, Any]) -> None:
        """vLLM never answers a call whose engine process died of it, and its API server waits for the call to end."""

        async def look() -> None:
            if not await self.answers("/health", HUNG_TIMEOUT_S):
                raise ControlError(f"engine {self.url}: its engine process has died while it was given weights")

        await watched(call, look, LOOK_EVERY_S)
