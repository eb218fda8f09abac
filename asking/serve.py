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
import gc
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import uvicorn

from ..config import ConfigError
from ..serving.servers import REQUEST_TIMEOUT_S
from ..system.cli import log_to_terminal, one_line_errors, positive_number, run_stoppable, whole_number
from ..system.concurrency import watched
from ..system.server_url import is_loopback
from .app import Service
from .reader import reader_at

KEY_VARIABLE = "MEM_AGENT_API_KEY"


@one_line_errors("nothing is left running", codes={ConfigError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    log_to_terminal(logging.INFO)
    keys = read_keys(options.api_key_file, os.environ)
    if not keys and not is_loopback(options.host):
        raise ConfigError(f"--host {options.host}: other machines need a key; set {KEY_VARIABLE} or --api-key-file")
    with listening_socket(options.host, options.port) as sock:
        with suppress(KeyboardInterrupt):  # it serves until it is told to stop
            run_stoppable(_serve(options, keys, sock))
    return 0


async def _serve(options: argparse.Namespace, keys: Sequence[str], sock: socket.socket) -> None:
    async with reader_at(options.model, options.url, options.served_model, Path("runs/serve")) as reader:
        name = Path(os.path.abspath(options.model)).name  # "." has none of its own
        service = Service(reader, name, keys, options.allow_origin, options.concurrency, options.timeout,
                          options.document_tokens)
        gc.freeze()  # what lives as long as the server is never searched again, which would stop every stream
        shown = f"[{options.host}]" if ":" in options.host else options.host
        print(f"READY http://{shown}:{sock.getsockname()[1]}/v1        model {name}", flush=True)
        serving, fleet = server(service).serve([sock]), reader.fleet
        await (watched(serving, partial(fleet.ensure_alive, REQUEST_TIMEOUT_S), every_s=10.0) if fleet else serving)


def server(service: Service) -> uvicorn.Server:
    """At its end requests have a second before they are cancelled."""
    return uvicorn.Server(uvicorn.Config(
        service.app(), log_config=None, log_level="warning", timeout_graceful_shutdown=1))


def listening_socket(host: str, port: int) -> socket.socket:
    """Raises ConfigError where nothing can listen now: engines take minutes, and would have started for nothing."""
    try:
        sock = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"--host {host} --port {port}: {error}; --port 0 takes a free one") from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio leaves it off, and every answer waits 40 ms
    return sock


def read_keys(file: Path | None, env: Mapping[str, str]) -> tuple[str, ...]:
    """Those of ``--api-key-file``, one a line, else that of MEM_AGENT_API_KEY. Raises ConfigError: an empty file."""
    text = file.read_text(encoding="utf-8") if file else env.get(KEY_VARIABLE, "")
    keys = tuple(line.strip() for line in text.splitlines() if line.strip())
    if file and not keys:
        raise ConfigError(f"--api-key-file {file}: no key in it; write one a line")
    return keys


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent serve", description="A memory agent behind OpenAI's API.")
    add = parser.add_argument
    add("model", metavar="MODEL", help="Hugging Face folder or id of the model")
    add("--host", default="127.0.0.1", help="address to listen on; others than this machine's need a key (127.0.0.1)")
    add("--port", type=whole_number, default=8080, help="0: a free one (8080)")
    add("--url", default="", help="a server that has the model (default: engines started for it)")
    add("--served-model", default="", help="the model's name there (default: the only one)")
    add("--api-key-file", type=Path, help=f"keys that clients may use, one a line (default: that in {KEY_VARIABLE})")
    add("--allow-origin", action="append", default=[], help="a web page that may ask, https://HOST; may be repeated")
    add("--concurrency", type=positive_number, default=64, help="documents read at once; further ones get 429 (64)")
    add("--timeout", type=float, default=600.0, help="seconds for one request; 0: no limit (600)")
    add("--document-tokens", type=whole_number, default=1_000_000, help="most of a request; 0: no limit (1000000)")
    return parser
