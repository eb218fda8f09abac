"""Evaluation: one row per question, failures count, resume does only what is missing, foreign results are refused."""

import asyncio
import json
import threading
from contextlib import contextmanager

import pytest
from mem_agent import eval_ruler_hqa as ev
from mem_agent.config import Config

from .fake_router import FakeRouter, running
from .tiny_tokenizer import make_tokenizer

CONFIG = Config(mem_chunk_tokens=8, mem_max_memory=8, mem_max_final=16, mem_max_retries=0)


def encode(text):
    tokenizer = make_tokenizer()
    return tokenizer.encode(text, add_special_tokens=False) + [tokenizer.eos_token_id]


@contextmanager
def served(router):
    """Run the fake router in a thread of its own, since ``run`` brings its own event loop."""
    loop, ready, done = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def main():
        async with running(router):
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    assert ready.wait(5)
    try:
        yield f"http://127.0.0.1:{router.port}"
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    make_tokenizer().save_pretrained(folder)
    return folder


def write_data(root, length="50", count=3, **change):
    entries = [{"context": f"doc {i}", "input": f"q{i}", "answers": ["red", "blue"], "index": i} for i in range(count)]
    entries[-1] |= change
    (root / f"eval_{length}.json").write_text(json.dumps(entries))


def evaluate(tmp_path, model, router, lengths=("50",), config=CONFIG):
    with served(router) as url:
        ev.run(tmp_path, lengths, model, url, config, tmp_path / "out")
    return tmp_path / "out"


def test_every_question_has_a_row_scored_over_all_golds(tmp_path, model):
    write_data(tmp_path)
    output = evaluate(tmp_path, model, FakeRouter(default=encode("it is \\boxed{blue}")))
    rows = ev.read_rows(output, "50")
    assert sorted(r["_id"] for r in rows) == ["0", "1", "2"] and all(r["em"] == 1.0 for r in rows)
    assert ev.summarise(output, "50") == dict.fromkeys(ev.METRICS, 100) | {"n": 3, "failed": 0}


def test_an_unboxed_answer_scores_zero_everywhere(tmp_path, model):
    write_data(tmp_path)
    summary = ev.summarise(evaluate(tmp_path, model, FakeRouter(default=encode("blue"))), "50")
    assert [summary[m] for m in ev.METRICS] == [0, 0, 0, 0]


def test_failures_stay_in_the_denominator_and_are_retried(tmp_path, model):
    write_data(tmp_path, count=2)

    def fails_for_one(body):
        return 400 if "1" in make_tokenizer().decode(body["token_ids"]) else encode("\\boxed{red}")

    router = FakeRouter(default=lambda body: wrap(fails_for_one(body)))
    output = evaluate(tmp_path, model, router)
    assert ev.summarise(output, "50")["em"] == 50.0 and ev.summarise(output, "50")["failed"] == 1
    assert ev.failures(output, ["50"])[0].startswith("50/1: rejected: ")
    again = FakeRouter(default=encode("\\boxed{red}"))
    evaluate(tmp_path, model, again)
    assert ev.summarise(output, "50")["em"] == 100.0 and len(again.requests) == 2


def wrap(step):
    from .fake_router import vllm_answer

    return step if isinstance(step, int) else vllm_answer(step)


def test_a_killed_run_continues_behind_its_last_whole_row(tmp_path, model):
    write_data(tmp_path)
    output = evaluate(tmp_path, model, FakeRouter(default=encode("\\boxed{red}")))
    path = output / "50.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:20])
    router = FakeRouter(default=encode("\\boxed{red}"))
    evaluate(tmp_path, model, router)
    assert len(router.requests) == 4 and len(ev.read_rows(output, "50")) == 3


@pytest.mark.parametrize("what", ["model", "settings", "data"])
def test_results_of_another_run_are_refused(tmp_path, model, what):
    write_data(tmp_path)
    evaluate(tmp_path, model, FakeRouter(default=encode("x")))
    config = CONFIG
    if what == "model":
        (model / "extra.json").write_text("{}")
    elif what == "settings":
        config = Config(**{**vars(CONFIG), "mem_chunk_tokens": 9})
    else:
        write_data(tmp_path, input="another")
    with pytest.raises(ev.EvalError, match="SAVE_FILE"):
        evaluate(tmp_path, model, FakeRouter(default=encode("x")), config=config)


def test_more_lengths_join_an_earlier_run(tmp_path, model):
    for length in ("50", "100"):
        write_data(tmp_path, length)
    evaluate(tmp_path, model, FakeRouter(default=encode("\\boxed{red}")), ("50",))
    output = evaluate(tmp_path, model, FakeRouter(default=encode("x")), ("100",))
    assert ev.table([output]).splitlines()[2:] == [
        "| out | 50 | 3 | 0 | 100.0 | 100.0 | 100.0 | 100.0 |",
        "| out | 100 | 3 | 0 | 0.0 | 0.0 | 0.0 | 0.0 |",
    ]


@pytest.mark.parametrize(
    "content,message",
    [
        ("[", "not JSON"),
        ("[]", "expected a non-empty list"),
        ("{}", "expected a non-empty list"),
        ('[{"context": "c", "input": "q", "answers": []}]', "entry 0 has no usable `answers`"),
        ('[{"context": "c", "answers": ["a"]}]', "entry 0 has no usable `input`"),
        ('[{"context": "c", "input": "q", "answers": ["a"], "index": 1},'
         ' {"context": "c", "input": "q", "answers": ["a"], "index": 1}]', "index 1 is there 2 times"),
    ],
)
def test_bad_data_is_one_line(tmp_path, content, message):
    (tmp_path / "eval_50.json").write_text(content)
    with pytest.raises(ev.EvalError, match=message):
        ev.load_questions(tmp_path, "50")


def test_a_missing_length_names_the_file(tmp_path):
    with pytest.raises(ev.EvalError, match=r"eval_77\.json: no such file"):
        ev.load_questions(tmp_path, "77")
