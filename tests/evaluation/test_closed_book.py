"""Questions that need no document: the command that asks, and which they are by the replies to them."""

import json

import pytest

from mem_agent.evaluation import closed_book
from mem_agent.evaluation.closed_book import Asked, judge, main
from mem_agent.tests.helpers.fake_router import chat_model, running_beside


def knows_every_third(body):
    """Answers question n rightly where 3 divides n."""
    number = int(body["messages"][0]["content"].split("?")[0].split()[1])
    reply = f"\\boxed{{{'Nobody' if number % 3 else 'Answer'} {number}}}"
    return {"choices": [{"index": i, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
                        for i in range(body["n"])]}


def test_every_question_is_asked_once_and_judged_and_a_broken_run_is_continued(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(closed_book, "CONCURRENCY", 1)
    raw, output = tmp_path / "raw.jsonl", tmp_path / "out"
    raw.write_text("".join(json.dumps({
        "id": f"q{n}", "question": f"Who {n}?", "answer": f"Answer {n}", "context": [["T", ["text"]]]}) + "\n"
        for n in range(20)))
    with running_beside(chat_model(models=({"id": "m"},))) as server:
        def ask(*flags):
            return main(["--raw", str(raw), "--output", str(output), "--url", server.url, "--model", "m", *flags])

        server.default = lambda body: 400 if len(server.requests) > 8 else knows_every_third(body)
        assert ask() == 1
        error = capsys.readouterr().err.splitlines()
        assert "error: " in error[-1] and "400" in error[-1] and not (output / "verdict.json").exists()
        with (output / "replies.jsonl").open("ab") as rows:
            rows.write(b'{"id": "q19", "repl')
        server.default, asked = knows_every_third, len(server.requests)
        assert ask() == ask() == 0 and len(server.requests) == asked + 12
        told = capsys.readouterr().out
        assert "12 of 20 questions to ask, 8 already" in told and "7 of 20 questions need no document" in told
        verdict = json.loads((output / "verdict.json").read_text())
        assert verdict["dropped"] == [f"q{n}" for n in range(0, 20, 3)] and verdict["run"]["samples"] == 4
        assert {(body["n"], body["temperature"], body["max_tokens"]) for body in server.requests} == {(4, 1.0, 512)}
        assert len({body["seed"] for body in server.requests}) == 20
        assert ask("--samples", "5") == 1 and "holds replies of another samples" in capsys.readouterr().err


def boxed(*answers):
    return [f"I think \\boxed{{{answer}}}" for answer in answers]


@pytest.mark.parametrize(("answers", "replies", "known"), [
    (["Ann Lee", "A. Lee"], boxed("Bob", "Bob", "Bob", "A Lee"), True),
    (["Ann Lee"], ["It was Ann Lee, surely.", *boxed("Bob")], True),
    (["Ann Lee"], ["Joann Leeds.", "lee ann"], False),
    (["Ann Lee"], ["<think>Ann Lee?</think>\\boxed{Bob}", "no"], False),
    (["1,984"], boxed("1985", "1984"), True),
])
def test_open_answers_and_numbers_need_one_right_reply(answers, replies, known):
    assert judge([Asked("q", answers, replies)]) == ["q"] * known


def test_yes_and_no_survive_a_model_that_guesses_and_a_habit_is_no_knowledge():
    def known(*patterns):
        """Of questions with a yes or no as gold, and what was said to each."""
        return judge([Asked(f"{gold}{n}", [gold], boxed(*said)) for n, (gold, said) in enumerate(patterns)])

    both = ["yes", "no"]
    guesses = [(gold, [both[(n >> k) & 1] for k in range(4)]) for gold in both for n in range(16)]
    assert known(*guesses) == ["yes0", "no31"]  # all four right, of the 16 patterns of each
    assert known(*[("yes", ["yes"] * 4), ("no", ["yes"] * 4)] * 5) == []
    assert known(*[("yes", ["yes"] * 4)] * 9, ("no", ["no"] * 4)) == ["no9"]
