"""A Ray job server as far as the launcher asks one, with the answers that a test gives it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeJobServer:
    """Lists are used up answer by answer, but for the last; a number is an HTTP status, None no answer at all."""

    def __init__(self) -> None:
        self.address = ""
        self.token = ""
        """What requests must carry; empty: nothing."""
        self.nodes: list[dict] = []
        self.used: dict[str, float] = {}
        """GPUs in use by node; no autoscaler counts them where it is empty."""
        self.usage_fails = False
        self.submissions: list[tuple[int | None, object]] = [(200, {"job_id": None, "submission_id": "mine"})]
        self.jobs: list[dict] = []
        """What it lists."""
        self.states: list[str | int | None] = ["SUCCEEDED"]
        self.stops: list[int] = [200]
        self.tail = 404
        """Of the log's stream, which it does not have."""
        self.message = ""
        self.headers: dict[str, str] = {}
        """Of every answer."""
        self.asked: list[str] = []
        """Method and path of every request about jobs."""
        self.submitted: list[dict] = []
        self.release = threading.Event()
        """Set when the server goes: what got no answer ends."""

    def answer(self, method: str, path: str, body: dict) -> tuple[int | None, object]:
        if path == "/api/version":
            return 200, {"version": "4", "ray_version": "2.60.0", "ray_commit": ""}
        if path == "/api/v0/nodes":
            return 200, {"data": {"result": {"result": self.nodes}}}
        if path == "/api/cluster_status":
            by_node = {name: {"CPU": [1.0, 8.0], "GPU": [gpus, 8.0]} for name, gpus in self.used.items()}
            status = {"loadMetricsReport": {"usageByNode": by_node}} if by_node else None
            return 500 if self.usage_fails else 200, {"data": {"clusterStatus": status}}
        self.asked.append(f"{method} {path}")
        if (method, path) == ("POST", "/api/jobs/"):
            self.submitted.append(body)
            return _next(self.submissions)
        if path == "/api/jobs/":
            return 200, self.jobs
        if path.endswith("/stop"):
            return _next(self.stops), {"stopped": True}
        if path.endswith("/logs/tail"):
            return self.tail, "no stream here"
        state = _next(self.states)
        if not isinstance(state, str):
            return state, "no state here"
        return 200, {"type": "SUBMISSION", "entrypoint": "x", "submission_id": path.rpartition("/")[2],
                     "status": state, "message": self.message}


def lead_astray(monkeypatch) -> None:
    """An environment whose proxy, which nobody may take, leads nowhere."""
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # whatever token the user of this machine has
    for name in ("no_proxy", "NO_PROXY", "RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def _next(answers: list):
    return answers.pop(0) if len(answers) > 1 else answers[0]


@contextmanager
def serving(fake: FakeJobServer) -> Iterator[FakeJobServer]:
    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            code, answer = fake.answer(self.command, self.path.partition("?")[0], body)
            if fake.token and self.headers.get("Authorization") != f"Bearer {fake.token}":
                code, answer = 403 if self.headers.get("Authorization") else 401, "no"
            if code is None:
                fake.release.wait()
                return
            self.send_response(code)
            for name, value in fake.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST = reply

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    fake.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        fake.release.set()
        server.shutdown()
        server.server_close()
