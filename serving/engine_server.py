"""What runs inside an engine: the server that is started on CPU, and what any vLLM server of the pack loads.

``python -m mem_agent.serving.engine_server`` is vLLM's API server, whose engine process is forked instead of spawned.
A server is two processes, and a spawned engine process imports all of vLLM again, which is nearly half of a start; a
forked one has it already. vLLM spawns on CPU because a forked process inherits OpenMP's threads by name only; here the
fork comes before any were started, since a server has one OpenMP thread (``servers.engine_environment``). On CUDA,
which cannot be used after a fork, vLLM's own server is started.

``--worker-extension-cls mem_agent.serving.engine_server.PolicyReload`` reloads all weights, and ``--middleware
mem_agent.serving.engine_server.RequireKey`` guards the control calls.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ..rollout_client import GENERATE

KEY_VARIABLE = "MEM_AGENT_ENGINE_KEY"
OPEN = ("/health", "/ping", "/version", "/metrics", "/v1/models", "/v1/completions", "/v1/chat/completions", GENERATE)
"""What the router and its clients call, for which no key is needed."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class PolicyReload:
    """Mixed into vLLM's worker, whose ``model_runner`` it uses."""

    model_runner: Any

    def reload_policy(self, weights_path: str) -> None:
        """Load the folder's safetensors, the output layer included."""
        self.model_runner.reload_weights(weights_path=weights_path)
        repack_output_layer(self.model_runner.get_model())


def repack_output_layer(model: Any) -> None:
    """Make the packed copy of ``model``'s output layer again, if it has one.

    vLLM reloads the checkpoint's tensors in place. A model with tied embeddings has no tensor for its output layer,
    and on CPU that layer multiplies with a packed copy of the embedding made when the engine started; a reload leaves
    the copy as it was, and the engine then samples from old output weights without a word (vLLM 0.32).
    """
    head = getattr(model, "lm_head", None)
    if head is not None and hasattr(head, "quant_method"):
        head.quant_method.process_weights_after_loading(head)


class RequireKey:
    """An ASGI application around vLLM's: 401 without the key of its fleet to everything that is not ``OPEN``.

    vLLM's own ``--api-key`` guards ``/v1`` and generation, and leaves the control calls open, with which anybody could
    pause an engine or load weights. The router cannot have a key: vllm-router 0.1.17 checks none.
    """

    def __init__(self, app: Callable[[Message, Receive, Send], Awaitable[None]]) -> None:
        self._app = app
        self._expected = f"Bearer {os.environ[KEY_VARIABLE]}".encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        is_open = scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in OPEN)
        if is_open or secrets.compare_digest(given, self._expected):
            return await self._app(scope, receive, send)
        assert scope["type"] == "http", "vLLM's control calls are HTTP"
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"this server's control calls need the key of its run\n"})


def main() -> None:
    from vllm.entrypoints.launchers.api_server import entry
    from vllm.v1.engine import utils

    # VLLM_WORKER_MULTIPROC_METHOD does not do: vLLM's CPU platform sets it to spawn.
    utils.get_mp_context = lambda: multiprocessing.get_context("fork")
    gc.freeze()  # what is imported lives for good; a collection in either process would copy its pages
    entry.main()


if __name__ == "__main__":
    main()
