"""Questions that need no document: the rules, and the command that asks."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from mem_agent.data.closed_book import main
from mem_agent.data.closed_book_rules import Asked, judge


def asked(name, answers, *replies):
    return Asked(name, tuple(answers), replies)


def boxed(*answers):
    return tuple(f"I think \\boxed{{{answer}}}" for answer in answers)


# --- rules -----------------------------------------------------------------------------------------------------------
ONE = [
    (["Ann Lee"], boxed("Bob", "Bob", "Bob", "the Ann Lee."), True),
    (["Ann Lee"], boxed("Bob", "Bob", "Bob", "Ann"), False),
    (["Ann Lee", "A. Lee"], boxed("Bob", "Bob", "Bob", "A Lee"), True),
    (["Ann Lee"], ("It was Ann Lee, surely.",) + boxed("Bob"), True),
    (["Ann Lee"], ("Joann Leeds.", "lee ann"), False),
    (["Ann Lee"], ("<think>Ann Lee?</think>\\boxed{Bob}", "no"), False),
    (["Rome"], ("Rome", ""), True),
    (["1984"], ("It was in 1984 or 1985, I am not sure.", "\\boxed{1985}"), False),
    (["1,984"], boxed("1985", "1984"), True),
    (["U2"], ("Was it U2?", "ABBA"), False),
    (["seven"], boxed("six", "seven"), True),
]


@pytest.mark.parametrize(("answers", "replies", "known"), ONE)
def test_open_answers_and_numbers_need_one_right_reply(answers, replies, known):
    assert judge([asked("q", answers, *replies)]).dropped == (("q",) if known else ())


def coins(*patterns):
    """Questions with a yes or no as gold, and what was said to each."""
    return [asked(f"{gold}{n}", [gold], *boxed(*said)) for n, (gold, said) in enumerate(patterns)]


def test_yes_and_no_survive_a_model_that_guesses():
    both = ["yes", "no"]
    rows = coins(*((gold, [both[(n >> k) & 1] for k in range(4)]) for gold in both for n in range(16)))
    verdict = judge(rows)
    assert verdict.dropped == ("yes0", "no31")  # all four right, of the 16 patterns of each
    assert verdict.statistics["choices_before"] == {"no": 16, "yes": 16}
    assert verdict.statistics["choices_after"] == {"no": 15, "yes": 15}


def test_a_habit_is_no_knowledge():
    always = judge(coins(*[("yes", ["yes"] * 4), ("no", ["yes"] * 4)] * 5))
    assert always.dropped == () and always.statistics["habits"] == {"yes": 1.0}
    mostly = judge(coins(*[("yes", ["yes"] * 4)] * 9, ("no", ["no"] * 4)))
    assert mostly.dropped == ("no9",)


def test_who_knows_both_loses_both():
    verdict = judge(coins(("yes", ["yes"] * 4), ("no", ["No."] * 4)))
    assert verdict.dropped == ("yes0", "no1")


def test_too_few_samples_drop_no_choice():
    assert judge(coins(("yes", ["yes"] * 2), ("no", ["no"] * 2))).dropped == ()


def test_no_is_not_found_in_know():
    assert judge([asked("q", ["no"], *["I do not know"] * 4)]).dropped == ()


def test_statistics():
    rows = [asked("a", ["Anna"], *boxed("Anna", "Bob")), asked("b", ["12"], *boxed("1", "2"))]
    assert judge([*rows, *coins(("no", ["no"] * 2))]).statistics == {
        "asked": 3, "dropped": 1, "choices_before": {"no": 1}, "choices_after": {"no": 1}, "habits": {"no": 1.0},
        "by_kind": {"choice": {"asked": 1, "dropped": 0}, "number": {"asked": 1, "dropped": 0},
                    "open": {"asked": 1, "dropped": 1}},
        "replies_right": 0.5,
    }


# --- asking ----------------------------------------------------------------------------------------------------------
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        seen = self.server.seen
        seen.append(body)
        if len(seen) > self.server.breaks_after:
            self.answer(400, {"error": {"message": "the model is\ngone", "type": "x", "code": "x"}})
            return
        number = int(body["messages"][0]["content"].split("?")[0].split()[1])
        replies = [f"\\boxed{{{'Answer' if number % 3 == 0 else 'Nobody'} {number}}}"] * self.server.gives(body["n"])
        choices = [{"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
                   for i, reply in enumerate(replies)]
        self.answer(200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices})

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
    assert len(error) == 1 and "BadRequestError" in error[0] and not (output / "verdict.json").exists()
    with (output / "replies.jsonl").open("ab") as rows:
        rows.write(b'{"id": "q19", "repl')
    known = (output / "replies.jsonl").read_bytes().count(b"\n")
    server.breaks_after, before = 10**9, len(server.seen)
    assert ask(server, raw, output) == 0
    assert 0 < known and len(server.seen) - before == 20 - known
    assert len(json.loads((output / "verdict.json").read_text())["dropped"]) == 7
    assert ask(server, raw, output) == 0 and len(server.seen) - before == 20 - known


def test_wrong_use_is_one_line(server, raw, tmp_path, capsys):
    assert ask(server, raw, tmp_path / "out") == 0
    assert ask(server, raw, tmp_path / "out", "--samples", "5") == 1
    assert "holds replies of another samples" in capsys.readouterr().err
    server.gives = lambda n: 1
    assert ask(server, raw, tmp_path / "new") == 1
    assert "1 replies where 4 were asked for" in capsys.readouterr().err
    assert ask(server, tmp_path / "absent.json", tmp_path / "new") == 1
    assert "no such file" in capsys.readouterr().err
