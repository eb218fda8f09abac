"""The server in the place of the frozen chat model: what it is sent, and where it listens."""

import json
import socket

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from mem_agent.pocket import frozen_chat

ASKED = "<question>\nAnn likes fruit what?\n</question>\n<session0>\n<user0>Ann likes fruit fig.</user>\n</session>"
BODY = json.dumps({"messages": [{"role": "user", "content": ASKED}]}).encode()


@pytest.mark.parametrize("body,kind,status", [
    (BODY, "application/json", 200),
    (BODY, "application/json; charset=foo", 200),
    (b"[" * 200_000, "application/json", 400),
    (b"[" * 100 + b"]" * 100, "application/json", 400),
    (b"\xff", "application/json", 400),
    (b"[]", "application/json", 400),
    (b'{"messages": []}', "application/json", 400),
    (b'{"messages": {"a": 1}}', "application/json", 400),
])
@pytest.mark.asyncio
async def test_every_request_is_answered(body, kind, status):
    async with TestClient(TestServer(frozen_chat.make_app())) as client:
        answer = await client.post("/v1/chat/completions", data=body, headers={"Content-Type": kind})
        assert answer.status == status
        told = await answer.json()
        assert told["choices"][0]["message"]["content"] == "<answer>fig</answer>" if status == 200 else told["error"]


def test_it_says_which_port_it_has(monkeypatch, capsys):
    listening = []

    def run_app(app, *, sock, print, **_):
        print()
        listening.append(sock.getsockname())
        sock.close()

    monkeypatch.setattr(web, "run_app", run_app)
    assert frozen_chat.main(["--port", "0"]) == 0
    [(address, port)] = listening
    assert address == "127.0.0.1" and f"answers at http://127.0.0.1:{port}/v1\n" in capsys.readouterr().out


def test_a_port_that_it_cannot_have_is_one_line(capsys):
    with pytest.raises(SystemExit):
        frozen_chat.main(["--port", "99999"])
    assert "argument --port: '99999': allowed: 0, for a free one, to 65535" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert frozen_chat.main(["--port", str(port)]) == 1
    assert capsys.readouterr().err.startswith(f"error: http://127.0.0.1:{port}/v1: Address already in use")
