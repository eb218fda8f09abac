"""A stand-in for an inference server, run as a process of its own: ``python stub_engine.py PORT JOURNAL [OPTION...]``.

It answers the control calls of ``mem_agent.serving.control`` and appends each to the JOURNAL file as ``PORT CALL``.
Options: ``dies`` prints a traceback and exits; ``never-healthy``; ``dies-in-reload`` never answers a reload and is
unwell from then on.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web


def make_app(port: int, journal: Path, options: list[str]) -> web.Application:
    state = {"version": "default", "dead": "never-healthy" in options}

    async def health(_: web.Request) -> web.Response:
        return web.Response(status=503 if state["dead"] else 200)

    async def weight_info(_: web.Request) -> web.Response:
        return web.json_response({"weight_version": state["version"]})

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
        if call == "update_weight_version":
            state["version"] = body["new_version"]
        return web.json_response({"success": True})

    async def generate(_: web.Request) -> web.Response:
        return web.json_response({"version": state["version"]})

    app = web.Application()
    app.add_routes([web.get("/health", health), web.get("/weight_info", weight_info),
                    web.post("/inference/v1/generate", generate)])
    for call in ("pause", "resume", "collective_rpc", "update_weight_version", "reset_prefix_cache"):
        app.router.add_post(f"/{call}", control)
    return app


def main() -> None:
    port, journal, options = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    if "dies" in options:
        raise ValueError("no room for the KV cache")
    web.run_app(make_app(port, journal, options), host="127.0.0.1", port=port, print=None)


if __name__ == "__main__":
    main()
