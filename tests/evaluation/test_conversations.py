"""Rows without documents and with shots, evaluated: what is asked, what the task gets, several answers."""

import json

import pytest

from mem_agent import eval_ruler_hqa as ev
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import read_rows
from mem_agent.tests.helpers.evaluations import CONFIG, encode, evaluate, make_model, summary_of, turns_asked
from mem_agent.tests.helpers.fake_router import FakeRouter, chat_message, running_beside
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

SUMS = """
from mem_agent.tasks import Task

class Sums(Task):
    needs_document = False
    headline = "correct"
    def read_answer(self, reply): return reply.rpartition("=")[2].strip()
    def reward(self, reply, row): return self.metrics(reply, row)
    def metrics(self, reply, row):
        return {"correct": float(self.read_answer(reply) == str(row.metadata["target"])),
                "prefixed": float(row.metadata.get("reply_prefix") == "So ")}
"""
SHOTS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"},
         {"role": "assistant", "content": "= 2"}]


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "own.py").write_text(SUMS)
    return {"agent": "chat", "task": f"{tmp_path}/own.py:Sums"}


def write_sums(folder, count=4, **more):
    entries = [
        {"messages": SHOTS, "input": f"{n}+{n}?", "answers": [str(2 * n)], "index": n, "task": "Sums",
         "metadata": {"target": 2 * n}} | more for n in range(count)
    ]
    (folder / "eval_sums.json").write_text(json.dumps(entries))


def shown(router):
    return [make_tokenizer().decode(request["token_ids"]) for request in turns_asked(router)]


def test_entries_are_asked_as_conversations_and_scored_with_their_fields(tmp_path, settings):
    write_sums(tmp_path, reply_prefix="So ")
    router = FakeRouter(default=encode("= 4"))
    out = evaluate(tmp_path, make_model(tmp_path / "model"), router, ["sums"], **settings)
    scores = {row.question: row.scores for row in read_rows(out, "sums")}
    assert scores == {str(n): {"correct": float(n == 2), "prefixed": 1.0} for n in range(4)}
    assert sorted(shown(router))[0] == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n= 2"
        "<|im_end|>\n<|im_start|>user\n0+0?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nSo "
    )
    summary = summary_of(out, "sums")
    assert (summary.scores["correct"].mean, summary.failed, summary.not_read) == (25.0, 0, None)


def test_a_row_that_is_too_long_fails_alone(tmp_path, settings):
    write_sums(tmp_path)
    entries = json.loads((tmp_path / "eval_sums.json").read_text())
    entries[1]["messages"] = [{"role": "user", "content": "why " * 999}, SHOTS[2]]
    (tmp_path / "eval_sums.json").write_text(json.dumps(entries))
    out = evaluate(tmp_path, make_model(tmp_path / "model"), FakeRouter(default=encode("= 4")), ["sums"], **settings)
    rows = {row.question: row for row in read_rows(out, "sums")}
    assert [rows[str(n)].failure for n in range(4)] == [None, "long_question", None, None]
    assert rows["1"].failure_message.endswith("MEM_MAX_QUESTION=1024")


def test_greedy_and_k_samples_compare_and_tell_pass_at_k(tmp_path, settings, capsys):
    """Every question has its first answer wrong and its second right."""
    write_sums(tmp_path)
    model, seen = make_model(tmp_path / "model"), {}

    def second_is_right(body):
        if body["sampling_params"]["max_tokens"] == 1:  # whether the server answers
            return encode("x")
        number = int(make_tokenizer().decode(body["token_ids"]).rpartition("user\n")[2].partition("+")[0])
        seen[number] = seen.get(number, 0) + 1
        return encode(f"= {2 * number}" if seen[number] == 2 else "= x")

    greedy = evaluate(tmp_path, model, FakeRouter(default=encode("= x")), ["sums"], "greedy", eval_temperature=0.0,
                      **settings)
    several = evaluate(tmp_path, model, FakeRouter(default=second_is_right), ["sums"], "several", eval_samples=4,
                       mem_concurrency=1, **settings)
    assert {k: e.mean for k, e in summary_of(several, "sums").passes.items()} == {1: 25.0, 2: 50.0, 4: 100.0}
    assert ev.main(["--compare", str(greedy), str(several)]) == 0
    assert "| sums | 4 | 0 | 0.0 | 25.0 | +25.0 | " in capsys.readouterr().out


def test_a_server_of_single_messages_is_refused(tmp_path, settings):
    write_sums(tmp_path)
    config = CONFIG.__class__(**vars(CONFIG) | settings | {"eval_api": "chat"})
    router = FakeRouter(default=chat_message("= 0"))
    message = r"takes one message at a time .*AGENT=chat shows conversations"
    with running_beside(router), pytest.raises(EvalError, match=message):
        config = CONFIG.__class__(**vars(config) | {"base_url": f"http://127.0.0.1:{router.port}"})
        ev.run(tmp_path, ["sums"], make_model(tmp_path / "model"), "", config, tmp_path / "out", True)
