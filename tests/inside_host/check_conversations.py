"""Rows that are conversations, from the data file through the host's data source and loops to the ranks' data."""

import json

import pytest

from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.inside_host import host
from mem_agent.tests.inside_host.host import (
    DataSource,
    Library,
    contents,
    make_tokenizer,
    manager,
    no_object_store,
    parse,
)

BEFORE = [
    {"role": "system", "content": "End in \\boxed{}."}, {"role": "user", "content": "1+1?"},
    {"role": "assistant", "content": "\\boxed{2}"},
]
PREFIX = {"role": "assistant", "content": "So "}


def conversations(folder, count=4):
    """A text, then messages, of which every second list ends with what the reply goes on from."""
    def prompt(number):
        question = f"problem {number}? \\boxed"
        return question if number == 0 else [*BEFORE, {"role": "user", "content": question}, *[PREFIX] * (number % 2)]

    rows = [{"prompt": prompt(n), "label": "red", "metadata": {"ground_truth": ["red"]}, "tools": []}
            for n in range(count)]
    path = folder / "chat.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path, [row["prompt"] for row in rows]


@pytest.fixture(autouse=True)
def chat(monkeypatch):
    monkeypatch.setitem(host.SETTINGS, "AGENT", "chat")
    monkeypatch.setitem(host.SETTINGS, "MEM_MAX_QUESTION", 400)


@pytest.mark.parametrize("flags", [(), ("--tool-key", "tools"), ("--rollout-shuffle",)], ids=" ".join)
def test_messages_arrive_as_they_are_in_the_file(tmp_path, flags):
    path, prompts = conversations(tmp_path)
    source = DataSource(parse(tmp_path, FakeRouter(port=1), "--prompt-data", str(path), *flags))
    found = [group[0].prompt for group in source.get_samples(4)]
    if "--rollout-shuffle" in flags:
        found.sort(key=prompts.index)
    assert found == prompts


def shown(router):
    return {make_tokenizer().decode(body.get("token_ids") or body["input_ids"]) for body in router.requests}


def test_a_rollout_asks_them_and_hands_rows_to_the_ranks(tmp_path):
    path, prompts = conversations(tmp_path)
    router = FakeRouter(default=Library())
    with running_beside(router):
        one = manager(parse(tmp_path, router, "--prompt-data", str(path), "--rollout-batch-size", "4"))
        with no_object_store():
            ranks = contents(one.generate(0))
    batch = [sample for group in one.data_source.drawn for sample in group]
    assert {s.status.value for s in batch} == {"completed"} and [s.prompt for s in batch[::2]] == prompts
    assert sorted(s.reward for s in batch) == [0.0] * 4 + [1.0] * 4
    rows = [tokens for rank in ranks for tokens in rank["tokens"]]
    assert sorted(map(len, rows)) == sorted(len(s.tokens) for s in batch)
    texts = sorted(shown(router), key=len)
    assert len(texts) == 4 and "1+1?" not in texts[0] and all("End in" in text for text in texts[1:])
    assert sum(text.endswith("So ") for text in texts) == 2
