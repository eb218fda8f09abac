"""A stand-in for an inference server, run as a process of its own: ``python stub_engine.py PORT JOURNAL [OPTION...]``.

It answers the control calls of ``mem_agent.serving.control`` and appends each to the JOURNAL file as ``PORT CALL``.
What it samples is a function of prompt and seed, as it is in a server whose requests have seeds.
Where its environment has an engine's key, control calls are refused without it, as by the real ones.
Options: ``dies`` prints a traceback and exits; ``dies-at-work`` fails its first request as vLLM does;
``never-healthy``; ``wrong-version`` reports another version than it was given; ``bad-reload=N`` fails the first N
reloads; ``dies-in-reload`` never answers the first and is unwell from then on; ``child`` starts a grandchild that
ignores SIGTERM, like a stuck engine core.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path

from aiohttp import web

STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"


def make_app(port: int, journal: Path, options: list[str]) -> web.Application:
    failures = sum(int(o.partition("=")[2]) for o in options if "bad-reload=" in o)
    state = {"version": "default", "failures": failures, "dead": False}

    async def health(_: web.Request) -> web.Response:
        return web.Response(status=503 if "never-healthy" in options or state["dead"] else 200)

    async def weight_info(_: web.Request) -> web.Response:
        version = "stale" if "wrong-version" in options else state["version"]
        return web.json_response({"weight_version": version})

    async def control(request: web.Request) -> web.Response:
        call = request.path.strip("/")
        body = await request.json() if request.can_read_body else {}
        if call == "collective_rpc":
            assert (Path(body["kwargs"]["weights_path"]) / "model.safetensors").is_file()
            call = body["method"]
        with journal.open("a") as file:
            file.write(f"{port} {call}\n")
        if call == "reload_policy" and "dies-in-reload" in options:
            state["dead"] = True
            await asyncio.Event().wait()
        if call == "reload_policy" and state["failures"]:
            state["failures"] -= 1
            return web.json_response({"error": "torn file"}, status=500)
        if call == "update_weight_version":
            state["version"] = body["new_version"]
        return web.json_response({"success": True, "results": [None]})

    async def generate(request: web.Request) -> web.Response:
        if "dies-at-work" in options:
            print("(EngineCore pid=7) ERROR 11-23 01:23:31 [core.py:1512] RuntimeError: Unsupported head_dim=20")
            print("(APIServer pid=6) ERROR 11-23 01:23:31 [async_llm.py:906] EngineDeadError: See root cause above",
                  flush=True)
            return web.json_response({"error": "EngineCore encountered an issue"}, status=500)
        body = await request.json()
        draw = random.Random(f"{body['token_ids']} {body.get('sampling_params', {}).get('seed')}")
        ids = [draw.randrange(20, 200) for _ in range(5)]
        choice = {"token_ids": ids, "logprobs": {"content": [{"token_id": i, "logprob": -0.01 * i} for i in ids]}}
        versions = [{"version": state["version"], "start": 0, "end": len(ids)}]
        choice |= {"finish_reason": "stop", "weight_versions": versions}
        return web.json_response({"port": port, "version": state["version"], "choices": [choice]})

    app = web.Application()
    app.add_routes([web.get("/health", health), web.get("/weight_info", weight_info),
                    web.post("/inference/v1/generate", generate)])
    for call in ("pause", "resume", "collective_rpc", "update_weight_version", "reset_prefix_cache"):
        app.router.add_post(f"/{call}", control)
    return app


def main() -> None:
    port, journal, options = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    if "child" in options:
        subprocess.Popen([sys.executable, "-c", STUBBORN])
    if "dies" in options:
        print("INFO loading")
        raise ValueError("no room for the KV cache")
    asyncio.set_event_loop(asyncio.new_event_loop())
    web.run_app(make_app(port, journal, options), host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main()
