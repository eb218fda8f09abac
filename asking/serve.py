"""An OpenAI-compatible endpoint in front of a memory agent: ``mem-agent serve MODEL [--port P] [--url URL]``

::

    mem-agent serve runs/mine/hf/iter_0000099
    READY http://127.0.0.1:8080/v1        model iter_0000099

Engines are started for the model, unless ``--url`` names a server that has it; how the agent reads is in the model's
own settings. It listens on this machine alone unless there is a key. Prints one line ``READY URL`` on standard output
once it answers; on SIGTERM or SIGINT it stops all that it started and exits with 0. Exit code 2 is a bad argument or
setting, 1 engines that cannot start or stay up.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import NoReturn

import uvicorn
from fastapi import FastAPI

from ..checkpoints.hf_model import config_for_model, local_folder
from ..config import Config, ConfigError
from ..rollout_client import close_clients
from ..serving.servers import REQUEST_TIMEOUT_S
from ..system.command_line_types import port_number, positive_number, whole_number
from ..system.logging_setup import log_to_terminal
from ..system.one_line_errors import one_line_errors
from ..system.server_url import is_loopback
from ..system.signals import run_stoppable
from .api import Service
from .reader import reader_at

KEY_VARIABLE = "MEM_AGENT_API_KEY"
LOGS = Path("runs/serve")
CHECK_EVERY_S = 10.0


@one_line_errors("nothing is left running", codes={ConfigError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    log_to_terminal(logging.INFO)
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it tells of every oddity of a file
    Config.from_env()  # bad settings end it before a model is downloaded
    keys = read_keys(options.api_key_file, os.environ)
    if not keys and not is_loopback(options.host):
        raise ConfigError(f"--host {options.host}: other machines may only ask with a key; set {KEY_VARIABLE} or "
                          "--api-key-file, or leave --host out")
    with bound_socket(options.host, options.port) as sock:
        model = local_folder(options.model, "MODEL")
        config, model_says = config_for_model(model)
        if model_says:
            print(model_says, file=sys.stderr)
        try:
            run_stoppable(_serve(options, config, model, keys, sock))
        except KeyboardInterrupt:
            return 0  # it serves until it is told to stop


async def _serve(
    options: argparse.Namespace, config: Config, model: Path, keys: tuple[str, ...], sock: socket.socket
) -> NoReturn:
    name = Path(os.path.abspath(options.model)).name  # "." has none of its own
    async with reader_at(options.url, model, config, LOGS, served_model=options.served_model) as served:
        origins = tuple(origin.rstrip("/").lower() for origin in options.allow_origin)  # as browsers send them
        service = Service(served.reader, name, served.healthy, keys, origins, options.concurrency, options.timeout,
                          options.document_tokens)
        # What lives as long as the server is never searched for garbage again, which would stop every stream for a
        # quarter of a second.
        gc.collect()
        gc.freeze()
        try:
            async with listening(service.app(), sock):
                shown = f"[{options.host}]" if ":" in options.host else options.host
                print(f"READY http://{shown}:{sock.getsockname()[1]}/v1        model {name}", flush=True)
                while True:
                    await asyncio.sleep(CHECK_EVERY_S)
                    if served.fleet:
                        await served.fleet.ensure_alive(REQUEST_TIMEOUT_S)
        finally:
            gc.unfreeze()  # else libraries print a page about what of theirs is not released
            await close_clients()


class _Server(uvicorn.Server):
    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()  # signals are run_stoppable's


@asynccontextmanager
async def listening(app: FastAPI, sock: socket.socket) -> AsyncIterator[None]:
    """``app`` answers on ``sock`` inside; at the end its requests have a second before they are cancelled."""
    server = _Server(uvicorn.Config(app, log_config=None, log_level="warning", timeout_graceful_shutdown=1))
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    try:
        while not (server.started or serving.done()):
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await serving


def bound_socket(host: str, port: int) -> socket.socket:
    """Raises ConfigError where nothing can listen now: engines take minutes, and would have started for nothing."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        reason = error.strerror
        raise ConfigError(f"--host {host} --port {port}: {reason}; name another (--port 0 takes a free one)") from None
    return sock


def read_keys(file: Path | None, env: Mapping[str, str]) -> tuple[str, ...]:
    """Those of ``--api-key-file``, one a line, else that of MEM_AGENT_API_KEY. Raises ConfigError: an empty file."""
    text = file.read_text(encoding="utf-8") if file else env.get(KEY_VARIABLE, "")
    keys = tuple(line.strip() for line in text.splitlines() if line.strip())
    if file and not keys:
        raise ConfigError(f"--api-key-file {file}: no key in it; write one a line")
    return keys


def _parser() -> argparse.ArgumentParser:
    description = "An OpenAI-compatible endpoint whose model is a memory agent."
    parser = argparse.ArgumentParser(prog="mem-agent serve", description=description)
    add = parser.add_argument
    add("model", metavar="MODEL", help="Hugging Face folder or id of the model")
    add("--host", default="127.0.0.1", help="address to listen on; others than this machine's need a key (127.0.0.1)")
    add("--port", type=port_number, default=8080, help="0: a free one (8080)")
    add("--url", default="", help="a server that has the model (default: engines started for it)")
    add("--served-model", default="", help="the model's name there (default: the only one)")
    add("--api-key-file", type=Path, help=f"keys that clients may use, one a line (default: that in {KEY_VARIABLE})")
    add("--allow-origin", action="append", default=[], metavar="ORIGIN",
        help="a web page's origin that may ask, https://HOST; * for any; may be repeated")
    add("--concurrency", type=positive_number, default=64,
        help="documents that are read at once; further requests get 429 (64)")
    add("--timeout", type=float, default=600.0, help="seconds for one request; 0: no limit (600)")
    add("--document-tokens", type=whole_number, default=1_000_000,
        help="tokens of all documents of a request; longer ones are refused; 0: no limit (1000000)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
