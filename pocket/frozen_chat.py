"""A chat server in the place of the frozen model that the sifter task asks: it knows what it is shown, and no more.

    python -m mem_agent.pocket.frozen_chat --port 8631

``POST /v1/chat/completions`` (OpenAI's) with a history and a question as ``rewards/sessions.py`` words them. It
answers with what the last of the sessions shown says about that person and kind; ``unknown`` where none does. So of
the task's histories it is right exactly when the gold session is among those shown, since every earlier statement
says otherwise. Nothing else plays a part: equal messages get equal answers.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import signal
import sys

from aiohttp import web

MODEL = "frozen-chat"
UNKNOWN = "unknown"
_STATEMENT = re.compile(r"<user\d+>(\w+) likes (\w+) (\w+)\.</user>")
_QUESTION = re.compile(r"<question>\s*(\w+) likes (\w+) what\?\s*</question>")


def answer_to(message: str) -> str:
    """The answer to a user message, which asks one question of this task's."""
    (asked,) = _QUESTION.findall(message)
    things = [thing for person, kind, thing in _STATEMENT.findall(message) if (person, kind) == asked]
    return things[-1] if things else UNKNOWN


async def _complete(request: web.Request) -> web.Response:
    text = f"<answer>{answer_to((await request.json())['messages'][-1]['content'])}</answer>"
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return web.json_response({"id": MODEL, "object": "chat.completion", "created": 0, "model": MODEL,
                              "choices": [choice]})


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve the stub of a frozen chat model.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--with-parent", action="store_true", help="end when the process that started it has ended")
    options = parser.parse_args()
    if options.with_parent:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    app = web.Application(client_max_size=2**24)
    app.add_routes([web.post("/v1/chat/completions", _complete)])
    told = f"the frozen chat model answers at http://127.0.0.1:{options.port}/v1"
    web.run_app(app, host="127.0.0.1", port=options.port, access_log=None, print=lambda _: print(told, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
