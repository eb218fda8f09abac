"""Questions that need no document: the command that asks."""

import json

import pytest

from mem_agent.evaluation import closed_book
from mem_agent.evaluation.closed_book import main
from mem_agent.tests.helpers.fake_chat import FakeChat, Raw, chat_server


class KnowsEveryThird:
    """Answers question n rightly where 3 divides n, with HTTP 400 after ``breaks_after`` questions."""

    def __init__(self):
        self.breaks_after = 10**9

    def __call__(self, body, asked):
        if asked >= self.breaks_after:
            return 400
        number = int(body["messages"][0]["content"].split("?")[0].split()[1])
        reply = f"\\boxed{{{'Nobody' if number % 3 else 'Answer'} {number}}}"
        choices = [{"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
                   for i in range(body["n"])]
        return Raw(json.dumps({"choices": choices}).encode())


@pytest.fixture
def server():
    with chat_server(FakeChat(KnowsEveryThird(), models=("m",))) as chat:
        yield chat


@pytest.fixture
def raw(tmp_path):
    path = tmp_path / "raw.jsonl"
    rows = [{"id": f"q{n}", "question": f"Who {n}?", "answer": f"Answer {n}", "context": [["T", ["text"]]]}
            for n in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def ask(server, raw, output, *flags):
    return main(["--raw", str(raw), "--output", str(output), "--url", server.url, "--model", "m", *flags])


def test_every_question_is_asked_once_and_judged(server, raw, tmp_path, capsys):
    assert ask(server, raw, tmp_path / "out") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("7 of 20 questions need no document")
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert verdict["dropped"] == [f"q{n}" for n in range(0, 20, 3)] and verdict["statistics"]["asked"] == 20
    assert verdict["run"]["model"] == "m" and verdict["run"]["samples"] == 4
    assert {(body["n"], body["temperature"], body["max_tokens"]) for body in server.bodies} == {(4, 1.0, 512)}
    assert len({body["seed"] for body in server.bodies}) == 20
    assert ask(server, raw, tmp_path / "out", "--samples", "5") == 1
    assert "holds replies of another samples" in capsys.readouterr().err


def test_a_broken_run_is_continued(server, raw, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(closed_book, "CONCURRENCY", 1)
    output, server.answer.breaks_after = tmp_path / "out", 8
    assert ask(server, raw, output) == 1
    error = capsys.readouterr().err.splitlines()
    assert "error: " in error[-1] and "400" in error[-1] and not (output / "verdict.json").exists()
    with (output / "replies.jsonl").open("ab") as rows:
        rows.write(b'{"id": "q19", "repl')
    server.answer.breaks_after = 10**9
    assert ask(server, raw, output) == 0 and "12 of 20 questions to ask, 8 already" in capsys.readouterr().out
    assert len(json.loads((output / "verdict.json").read_text())["dropped"]) == 7
    asked = len(server.bodies)
    assert ask(server, raw, output) == 0 and len(server.bodies) == asked
