"""A stand-in for the engines of slime and vime, which tells each request to a drill and answers oddly on order.

Run as a process of its own, by ``python -m mem_agent.tests.faults.host_engine --port N``; what else stands on its
command line (vime's for vLLM) is ignored. It speaks SGLang's generation call and vLLM's, takes weights by disk or
over gloo, and samples a function of prompt and seed: two runs that ask the same are answered the same, whatever was
trained meanwhile. Before an answer it stands still until the drill lets it go (``moments.py``), so a fault falls on
exactly the request that it is meant for. Orders are those of ``odd_answers.py``, and::

    reset      the connection is reset before anything was answered
    endless    an answer that goes on and on, a few bytes at a time
    late       an answer that comes after MEM_REQUEST_TIMEOUT
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
from pathlib import Path
from typing import Any

from aiohttp import web

from .moments import Announcer, Moment
from .odd_answers import GENERATE, ORDERS, SLOW_S, taken

EVALUATION_TEMPERATURE = 0.5
"""By which evaluations are known; training samples at 1."""
_ENDS = "stop"
_TOKENS = (20, 200)
_LATE_S = 600.0
_TRICKLE_S = 0.1
"""slime's router and vime's keep a whole answer in memory: one without end that came fast would take the machine's."""


class HostEngine:
    def __init__(self) -> None:
        self._announcer = Announcer()
        self._evaluates: bool | None = None
        self._updates = 0
        self._group: Any = None

    # --- generation -------------------------------------------------------------------------------------------------

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        params = body["sampling_params"]
        self._tell(params["temperature"] == EVALUATION_TEMPERATURE)
        order = taken(Path(os.environ[ORDERS]), GENERATE)
        if order == "error":
            return web.json_response({"error": "drill"}, status=500)
        if order == "garbage":
            return web.Response(text="<html>It works!</html>", content_type="text/html")
        if order in ("reset", "cut", "endless"):
            return await self._broken(request, order)
        await asyncio.sleep({"slow": SLOW_S, "late": _LATE_S}.get(order, 0.0))
        ids = sampled(body.get("input_ids") or body["token_ids"], params)
        return web.json_response(sglang(ids, self._updates) if "input_ids" in body else vllm(ids, self._updates))

    def _tell(self, evaluates: bool) -> None:
        """Stand still; turns are counted anew where an evaluation follows a rollout, or a rollout an evaluation."""
        if evaluates is not self._evaluates:
            self._announcer.begin(self._updates - 1)
        self._evaluates = evaluates
        self._announcer.announce(Moment.EVALUATION if evaluates else Moment.SAMPLING)

    async def _broken(self, request: web.Request, order: str) -> web.StreamResponse:
        assert request.transport is not None
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if order != "reset":
            await response.prepare(request)
            await response.write(b'{"choices": [')
        while order == "endless":
            await response.write(b"0, ")
            await asyncio.sleep(_TRICKLE_S)
        request.transport.abort()
        return response

    # --- weights ----------------------------------------------------------------------------------------------------

    async def begin_weights(self, request: web.Request) -> web.Response:
        """vLLM's and SGLang's word that an update of several parts begins."""
        self._new_weights()
        return done()

    async def weights_from_disk(self, request: web.Request) -> web.Response:
        self._new_weights()
        return done()

    def _new_weights(self) -> None:
        self._updates += 1
        self._evaluates = None

    async def join_group(self, request: web.Request) -> web.Response:
        from mem_agent.rehearsal.gloo_weights import WeightGroup

        info = (await request.json())["init_info"]
        members = info["master_port"], info["rank_offset"], info["world_size"]
        self._group = await asyncio.to_thread(WeightGroup, *members)
        return done()

    async def receive(self, request: web.Request) -> web.Response:
        import torch

        info = (await request.json())["update_info"]
        for dtype, shape in zip(info["dtype_names"], info["shapes"], strict=True):
            await asyncio.to_thread(self._group.broadcast, torch.empty(shape, dtype=getattr(torch, dtype)))
        return done()

    # --- the rest ---------------------------------------------------------------------------------------------------

    async def describe(self, request: web.Request) -> web.Response:
        return web.json_response({
            "served_model_name": "drill", "is_generation": True, "tp_size": 1, "pp_size": 1, "dp_size": 1, "nnodes": 1,
            "enable_memory_saver": False, "weight_version": str(self._updates), "loads": [{"num_running_reqs": 0}],
        })

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        for path in ("/generate", "/inference/v1/generate"):
            app.router.add_post(path, self.generate)
        app.router.add_post("/start_weight_update", self.begin_weights)
        app.router.add_post("/update_weights_from_disk", self.weights_from_disk)
        app.router.add_post("/init_weight_transfer_engine", self.join_group)
        app.router.add_post("/update_weights", self.receive)
        app.router.add_get("/{path:.*}", self.describe)
        app.router.add_post("/{path:.*}", self.describe)  # pauses, flushes and orders to abort: nothing is kept here
        return app


def sampled(prompt: list[int], params: dict[str, Any]) -> list[int]:
    seed = params.get("sampling_seed", params.get("seed"))
    draw = random.Random(f"{prompt} {seed}")
    most = params.get("max_new_tokens") or params["max_tokens"]
    return [draw.randrange(*_TOKENS) for _ in range(draw.randint(1, most))]


def log_probs_of(ids: list[int]) -> list[float]:
    return [-0.01 * token for token in ids]


def vllm(ids: list[int], version: int) -> dict[str, Any]:
    content = [{"token_id": token, "logprob": value} for token, value in zip(ids, log_probs_of(ids), strict=True)]
    versions = [{"version": str(version), "start": 0, "end": len(ids)}]
    choice = {"token_ids": ids, "logprobs": {"content": content}, "finish_reason": _ENDS, "weight_versions": versions}
    return {"choices": [choice]}


def sglang(ids: list[int], version: int) -> dict[str, Any]:
    log_probs = [[value, token, None] for token, value in zip(ids, log_probs_of(ids), strict=True)]
    meta = {"finish_reason": {"type": _ENDS}, "weight_version": str(version), "output_token_logprobs": log_probs}
    return {"text": "", "output_ids": ids, "meta_info": meta}


def done() -> web.Response:
    return web.json_response({"success": True, "ok": True, "results": [None]})


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True)
    options, _ = parser.parse_known_args()
    asyncio.set_event_loop(asyncio.new_event_loop())
    web.run_app(HostEngine().app(), host="127.0.0.1", port=options.port, print=None)


if __name__ == "__main__":
    main()
