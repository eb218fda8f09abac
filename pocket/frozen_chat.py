"""A chat server in the place of the frozen model that the sifter task asks: it knows what it is shown, and no more.

    serve(8631)

``POST /v1/chat/completions`` (OpenAI's) with a history and a question as ``rewards/sessions.py`` words them. It
answers with what the last of the sessions shown says about that person and kind; ``unknown`` where none does. So of
the task's histories it is right exactly when the gold session is among those shown, since every earlier statement
says otherwise. Nothing else plays a part: equal messages get equal answers.
"""

from __future__ import annotations

import re
import socket
import threading

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


def serve(port: int) -> None:
    """Answer on 127.0.0.1 in a thread that ends with the process. Raises OSError where the port is taken."""
    app = web.Application(client_max_size=2**24)
    app.add_routes([web.post("/v1/chat/completions", _complete)])
    options = {"sock": socket.create_server(("127.0.0.1", port)), "handle_signals": False, "print": None,
               "access_log": None}
    threading.Thread(target=web.run_app, args=(app,), kwargs=options, daemon=True).start()
