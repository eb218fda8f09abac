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
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from aiohttp import web

from ..checkpoints.hf_model import config_for_model, local_folder
from ..config import Config, ConfigError
from ..rollout_client import close_clients
from ..serving.serve_engines import CHECK_EVERY_S
from ..system.command_line_types import port_number, positive_number, whole_number
from ..system.logging_setup import log_to_terminal
from ..system.one_line_errors import one_line_errors
from ..system.signals import run_stoppable
from .access import KEY_VARIABLE, Access, check_address, check_host, checked_origin, read_keys
from .endpoint import Endpoint, spare_the_heap
from .engines import reader_at


@one_line_errors("nothing is left running", codes={ConfigError: 2})
def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    log_to_terminal(logging.INFO)
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it tells of every oddity of a file
    Config.from_env()  # bad settings end it before a model is downloaded
    keys = read_keys(options.api_key_file, os.environ)
    check_host(options.host, keys)
    check_address(options.host, options.port)
    access = Access(keys, tuple(map(checked_origin, options.allow_origin)))
    model = local_folder(options.model, "MODEL")
    config, model_says = config_for_model(model)
    if model_says:
        print(model_says, file=sys.stderr)
    if options.num_engines is not None:
        config = config.replace(num_engines=options.num_engines)
    name = options.name or Path(os.path.abspath(options.model)).name  # "." has none of its own
    try:
        run_stoppable(_serve(options, config, model, name, access))
    except KeyboardInterrupt:
        return 0  # it serves until it is told to stop


async def _serve(options: argparse.Namespace, config: Config, model: Path, name: str, access: Access) -> NoReturn:
    async with reader_at(options.url, model, config, options.logs, served_model=options.served_model) as served:
        endpoint = Endpoint(
            served.reader, name, access, served.healthy, options.concurrency, options.timeout, options.document_tokens
        )
        spare_the_heap()
        # A client that leaves ends its request, and a request never outlives the server.
        runner = web.AppRunner(endpoint.app(), handler_cancellation=True, access_log=None, shutdown_timeout=1.0)
        try:
            await runner.setup()
            site = web.TCPSite(runner, options.host, options.port)
            await site.start()
            port = runner.addresses[0][1]
            shown = f"[{options.host}]" if ":" in options.host else options.host
            print(f"READY http://{shown}:{port}/v1        model {name}", flush=True)
            while True:
                await asyncio.sleep(CHECK_EVERY_S)
                await served.watch()
        finally:
            await runner.cleanup()
            await close_clients()


def _parser() -> argparse.ArgumentParser:
    description = "An OpenAI-compatible endpoint whose model is a memory agent."
    parser = argparse.ArgumentParser(prog="mem-agent serve", description=description)
    parser.add_argument("model", metavar="MODEL", help="Hugging Face folder or id of the model")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; others than this machine's need a "
                        "key (default: 127.0.0.1)")
    parser.add_argument("--port", type=port_number, default=8080, help="0: a free one (default: 8080)")
    parser.add_argument("--url", default="", help="a server that has the model (default: engines started for it)")
    parser.add_argument("--served-model", default="", help="the model's name there (default: the only one)")
    parser.add_argument("--name", default="", help="of the model, as clients call it (default: the folder's)")
    parser.add_argument("--num-engines", type=positive_number, help="inference servers behind the router "
                        "(default: NUM_ENGINES)")
    parser.add_argument("--api-key-file", type=Path, help="keys that clients may use, one a line (default: that "
                        f"in {KEY_VARIABLE})")
    parser.add_argument("--allow-origin", action="append", default=[], metavar="ORIGIN",
                        help="a web page's origin that may ask, https://HOST; * for any; may be repeated")
    parser.add_argument("--concurrency", type=positive_number, default=64, help="documents that are read at once; "
                        "further requests get 429 (64)")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one request; 0: no limit (600)")
    parser.add_argument("--document-tokens", type=whole_number, default=1_000_000, help="tokens of all documents of a "
                        "request; longer ones are refused; 0: no limit (1000000)")
    parser.add_argument("--logs", type=Path, default=Path("runs/serve"), help="folder for the engines' logs (default: "
                        "runs/serve)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
