"""Questions that need no document: the command that asks."""

import fcntl
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mem_agent.evaluation.closed_book import main


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        seen = self.server.seen
        seen.append(body)
        if self.server.is_endless:
            self.endless()
            return
        if len(seen) > self.server.breaks_after:
            self.answer(400, {"error": {"message": "the model is\ngone", "type": "x", "code": "x"}})
            return
        number = int(body["messages"][0]["content"].split("?")[0].split()[1])
        replies = [f"\\boxed{{{'Answer' if number % 3 == 0 else 'Nobody'} {number}}}"] * self.server.gives(body["n"])
        choices = [{"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
                   for i, reply in enumerate(replies)]
        self.answer(200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices})

    def endless(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        piece = b" " * 2**16
        try:
            while self.server.sent < 2**28:
                self.wfile.write(piece)
                self.server.sent += len(piece)
        except OSError:
            self.close_connection = True

    def answer(self, status, content):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that hangs up in mid-answer; the traceback would stand in the command's output."""


@pytest.fixture
def server():
    server = Server(("127.0.0.1", 0), Handler)
    server.seen, server.breaks_after, server.gives = [], 10**9, lambda n: n
    server.is_endless, server.sent = False, 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def raw(tmp_path):
    path = tmp_path / "raw.jsonl"
    rows = [{"id": f"q{n}", "question": f"Who {n}?", "answer": f"Answer {n}", "context": [["T", ["text"]]]}
            for n in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def ask(server, raw, output, *flags):
    url = f"http://127.0.0.1:{server.server_port}/v1"
    where = ["--url", url, "--model", "m", "--concurrency", "3"]
    return main(["--raw", str(raw), "--output", str(output), *where, *flags])


def test_every_question_is_asked_once_and_judged(server, raw, tmp_path, capsys):
    assert ask(server, raw, tmp_path / "out") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("7 of 20 questions need no document")
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert verdict["dropped"] == [f"q{n}" for n in range(0, 20, 3)] and verdict["statistics"]["asked"] == 20
    assert verdict["run"]["model"] == "m" and verdict["run"]["samples"] == 4
    assert {(body["n"], body["temperature"], body["max_tokens"]) for body in server.seen} == {(4, 1.0, 512)}
    assert len({body["seed"] for body in server.seen}) == 20


def test_a_broken_run_is_continued(server, raw, tmp_path, capsys):
    output, server.breaks_after = tmp_path / "out", 8
    assert ask(server, raw, output) == 1
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1 and "HTTP 400" in error[0] and "question q" in error[0]
    assert not (output / "verdict.json").exists()
    with (output / "replies.jsonl").open("ab") as rows:
        rows.write(b'{"id": "q19", "repl')
    known = [json.loads(line)["id"] for line in (output / "replies.jsonl").read_bytes().split(b"\n")[:-1]]
    server.breaks_after = 10**9
    assert ask(server, raw, output) == 0
    asked = [f"q{body['messages'][0]['content'].split('?')[0].split()[1]}" for body in server.seen]
    assert known and all(asked.count(id) == 1 for id in known) and len(set(asked)) == 20
    assert len(json.loads((output / "verdict.json").read_text())["dropped"]) == 7
    assert ask(server, raw, output) == 0 and len(server.seen) == len(asked)


@pytest.mark.parametrize("replies", [[], ["x"], ["x"] * 5, ["x"] * 3 + [1], "text", None])
def test_a_line_without_as_many_replies_as_were_asked_for_is_named(server, raw, tmp_path, capsys, replies):
    output = tmp_path / "out"
    output.mkdir()
    lines = [{"id": "q0", "replies": ["x"] * 4}, {"id": "q1", "replies": replies}]
    (output / "replies.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert ask(server, raw, output) == 1
    told = "line 2 does not have 4 replies; remove that line, and they are asked again"
    assert capsys.readouterr().err == f"error: {output}/replies.jsonl: {told}\n"
    assert not server.seen


def test_a_second_command_in_one_folder_is_refused_and_asks_nothing(server, raw, tmp_path, capsys):
    output = tmp_path / "out"
    output.mkdir()
    (output / "replies.jsonl").write_bytes(b'{"id": "q0", "repl')  # which the first is writing
    with (output / ".lock").open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert ask(server, raw, output) == 1
    assert capsys.readouterr().err == f"error: {output}: another closed-book is asking; wait for it, or choose " \
                                      "another --output\n"
    assert (output / "replies.jsonl").read_bytes() == b'{"id": "q0", "repl' and not server.seen


def test_no_file_elsewhere_is_cut_through_a_link(server, raw, tmp_path, capsys):
    (tmp_path / "mine").write_bytes(b"no line end")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "replies.jsonl").symlink_to("../mine")
    assert ask(server, raw, tmp_path / "out") == 1
    assert "out/replies.jsonl: is a link out of the folder" in capsys.readouterr().err
    assert (tmp_path / "mine").read_bytes() == b"no line end" and not server.seen


def test_an_answer_without_end_is_one_line(server, raw, tmp_path, capsys):
    """It was read as long as it went on."""
    server.is_endless = True
    assert ask(server, raw, tmp_path / "out", "--concurrency", "1") == 1
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1 and "the answer is longer than" in error[0] and len(server.seen) == 1
    assert server.sent < 2**26  # what was asked for takes 9 MB at most; the rest lies in sockets


def test_wrong_use_is_one_line(server, raw, tmp_path, capsys):
    assert ask(server, raw, tmp_path / "out") == 0
    assert ask(server, raw, tmp_path / "out", "--samples", "5") == 1
    assert "holds replies of another samples" in capsys.readouterr().err
    server.gives = lambda n: 1
    assert ask(server, raw, tmp_path / "new") == 1
    assert "1 replies where 4 were asked for" in capsys.readouterr().err
    assert ask(server, tmp_path / "absent.json", tmp_path / "new") == 1
    assert "no such file" in capsys.readouterr().err
