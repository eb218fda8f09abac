"""The tasks over documents: honest documents, rows as the agents build them, shipped weights that fit their files."""

import hashlib
import itertools
import json
import random
from collections import Counter

import pytest
from transformers import AutoTokenizer

from mem_agent.agents import build_agent
from mem_agent.agents.documents import split_chunks
from mem_agent.agents.interface import Reading
from mem_agent.agents.records import Generation, StopReason
from mem_agent.agents.rememr1 import read_reply
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config
from mem_agent.data.training_file import DataSource
from mem_agent.evaluation.questions import load_questions
from mem_agent.hooks.reader import question_of
from mem_agent.pocket import warmup
from mem_agent.pocket.prepare import LENGTHS, prepare, train_rows
from mem_agent.pocket.task import (
    CHUNK_TOKENS,
    LINE_TOKENS,
    NAMES,
    STATED,
    STATING,
    THINGS,
    TWO_HOP_CHUNK_TOKENS,
    make_examples,
    mem1_rows,
    two_hop_examples,
)
from mem_agent.pocket.warmup import FOLDER, PROMPTS, REPLY_TOKENS, TASKS, LookUpRows, TwoHopRows, gated_reply, rows_of

TRAIN_FILES = {"look-up": "86ad9d2ddf969d1e", "two-hop": "5a1116c3fa02f9da", "mem1": "6c75c9cdbffa12f2"}
"""The beginning of SHA-256 of ``train.jsonl`` of seed 1: published figures are of these documents."""
STREAMS = {
    ("look-up", False): "ef8dfd1e4644acb4", ("look-up", True): "d4587a7e6d6375a4",
    ("two-hop", False): "0be3ed4825338926", ("two-hop", True): "e41a8cb1ccf8770f",
    ("sifter", False): "024d9a96b7ccaac4", ("sifter", True): "845a0bdd5d5b0e13",
}
"""And of the first rows that the shipped weights were made of."""


@pytest.fixture(scope="module")
def tokenizers():
    return {name: AutoTokenizer.from_pretrained(FOLDER / start) for name, start in TASKS.items()}


@pytest.fixture
def tokenizer(tokenizers):
    return tokenizers["look-up"]


@pytest.mark.parametrize("task", TRAIN_FILES)
def test_files_are_those_of_published_figures_and_evaluation_is_never_trained_on(task, tmp_path):
    prepare(tmp_path, 1, task)
    assert hashlib.sha256((tmp_path / "train.jsonl").read_bytes()).hexdigest()[:16] == TRAIN_FILES[task]
    assert next(train_rows(task, 1)) != next(train_rows(task, 2))
    source = DataSource(tmp_path / "train.jsonl", 1)
    rows = [source.row(number) for number in range(len(source))]
    trained = {(row.metadata.get("context", ""), question_of(row)) for row in rows}
    for length in LENGTHS[task]:
        held_out = {(entry.context, entry.question.text) for entry in load_questions(tmp_path, length)}
        assert held_out and not trained & held_out


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_rows_are_those_that_the_shipped_weights_were_made_of(task, mixed, tokenizers):
    rows = [(list(prompt), list(reply)) for prompt, reply in
            itertools.islice(rows_of(task, tokenizers[task], 1, mixed), 300)]
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] == STREAMS[task, mixed]


@pytest.mark.parametrize("task,most", [("look-up", 8 * 2**20), ("two-hop", 8 * 2**20), ("sifter", 2 * 2**20)])
def test_shipped_starts_are_small_and_know_the_tasks_words(task, most, tokenizers):
    assert (FOLDER / TASKS[task] / "model.safetensors").stat().st_size < most
    assert json.loads((FOLDER / TASKS[task] / "config.json").read_text())["vocab_size"] >= len(tokenizers[task])


def test_a_start_is_made_in_two_stages(tmp_path, monkeypatch):
    monkeypatch.setattr(warmup, "MIXED", warmup.Stage(steps=2, rows=2, warmup=1))
    monkeypatch.setattr(warmup, "Stage", lambda **_: warmup.MIXED)
    monkeypatch.setattr("sys.argv", ["warmup", "--output", str(tmp_path / "start"), "--task", "sifter"])
    assert warmup.main() == 0
    made = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("start-ability", "start")]
    assert made[0] != made[1] and len(made[1]) == (FOLDER / "sifter_start" / "model.safetensors").stat().st_size


# --- look-up --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task,make", [("look-up", make_examples), ("two-hop", two_hop_examples)])
def test_every_line_costs_the_same_so_chunks_never_cut_one(task, make, tokenizers):
    vocabulary = Vocabulary(tokenizers[task])
    for example in make(3, 20):
        lines = example.context.splitlines(keepends=True)
        assert {len(vocabulary.encode_text(line)) for line in lines} == {LINE_TOKENS}
        assert len(vocabulary.encode_text(example.context)) == LINE_TOKENS * len(lines)


def test_the_answer_stands_once_and_in_every_chunk_alike():
    chunks = Counter()
    for example in make_examples(5, 600):
        assert example.context.count(f"{example.name} ") == 1
        chunks[example.context.splitlines().index(f"{example.name} {example.answer}.") // 8] += 1
    assert set(chunks) == {0, 1, 2} and min(chunks.values()) > 160


def said(vocabulary, tokenizer, text):
    ids = [*vocabulary.encode_text(text), tokenizer.eos_token_id]
    return Generation(ids, [0.0] * len(ids), StopReason.STOP)


def test_rows_are_the_prompts_that_the_agents_build(tokenizer):
    """Or the ability learned would be another one."""
    vocabulary, maker, example = Vocabulary(tokenizer), LookUpRows(tokenizer), next(make_examples(1, 1))
    document = split_chunks(vocabulary.encode_text(example.context), CHUNK_TOKENS, 99)
    lines = example.context.splitlines()
    sections = [lines[start : start + 8] for start in (0, 8, 16)]
    reading = Reading(vocabulary.encode_text(example.question), document)

    def agent_of(**settings):
        agent = build_agent(Config(mem_max_memory=8, mem_prompts=PROMPTS, **settings), vocabulary, {})
        return agent, agent.start(reading)

    agent, state = agent_of()
    for section, (memory, reply) in zip(sections, itertools.pairwise(("none", "fruit apple", "none", "metal gold")),
                                        strict=True):
        (request,) = agent.requests(state)
        assert request.prompt_ids == maker.memory(example.question, section, memory, "none")[0]
        state = agent.advance(state, [said(vocabulary, tokenizer, reply)])
    (request,) = agent.requests(state)
    assert request.prompt_ids == maker.final(example.question, "metal gold", "gold")[0]

    gated, state = agent_of(agent="gated")
    (request,) = gated.requests(state)
    assert request.prompt_ids == maker.memory(example.question, sections[0], "none", "skip", gated=True)[0]

    parallel, state = agent_of(agent="parallel", agent_args="width=3")
    assert parallel.requests(state)[0].prompt_ids == maker.memory(example.question, sections[0], "none", "none")[0]
    notes = [said(vocabulary, tokenizer, text) for text in ("metal gold", "none", "city Rome")]
    (request,) = parallel.requests(parallel.advance(state, notes))
    merge = maker.row("merge", "none", problem=example.question, memory="none", notes="metal gold\n\ncity Rome")
    assert request.prompt_ids == merge[0]


@pytest.mark.parametrize("memory,new,finishes,hasty,reply", [
    ("none", "none", 1.0, 0.0, "skip"), ("none", "fruit fig", 1.0, 0.0, "finish\nfruit fig"),
    ("fruit fig", "fruit fig", 1.0, 0.0, "finish"), ("fruit fig", "fruit fig", 0.0, 0.0, "skip"),
    ("none", "fruit fig", 0.0, 0.0, "update\nfruit fig"), ("metal tin", "none", 0.0, 1.0, "finish\nnone"),
])
def test_a_gated_reply_is_a_plain_one_with_its_decision(memory, new, finishes, hasty, reply):
    assert gated_reply(random.Random(1), "fruit", memory, new, finishes, hasty) == reply


def test_given_replies_of_mem1_keep_what_is_asked_when_it_is_read():
    for row in mem1_rows(1, 50):
        *states, final = row["metadata"]["replies"]
        lines = row["metadata"]["context"].splitlines()
        assert len(states) == 3 and final.startswith(states[-1])
        name = row["prompt"].rpartition(" ")[2].removesuffix("?")
        (where,) = [number for number, line in enumerate(lines) if line.startswith(f"{name} ")]
        assert states[where // 8] == f"<IS>{lines[where].removesuffix('.')}</IS>"
        assert f"\\boxed{{{row['metadata']['ground_truth'][0]}}}" in final or states[-1] != states[where // 8]


# --- two hops -------------------------------------------------------------------------------------------------------


def facts_in(rows):
    return dict(row.rstrip(".").split() for row in rows if row.split()[0] in NAMES)


def test_the_answer_follows_from_pointer_and_fact_alone_and_neither_can_be_guessed():
    size = TWO_HOP_CHUNK_TOKENS // LINE_TOKENS
    places, kinds, newest = Counter(), Counter(), 0
    for example in two_hop_examples(3, 2_000):
        rows = example.context.splitlines()
        *stating, last = [facts_in(rows[i : i + size]) for i in range(0, len(rows), size)]
        assert [len(facts) for facts in stating] == [STATED] * STATING and not last
        assert example.context.count(f"wanted {example.name}.") == example.context.count("wanted") == 1
        (place,) = [number for number, facts in enumerate(stating) if facts.get(example.name) == example.answer]
        places[place] += 1
        kinds[example.name] += 1
        newest += place == STATING - 1
    assert len(kinds) == len(THINGS)
    for counts in (places, kinds):
        assert max(counts.values()) < 1.35 * min(counts.values())
    assert newest / 2_000 == pytest.approx(1 / STATING, abs=0.03), "a memory of the newest facts must guess"


@pytest.mark.parametrize("agent,good,least,most", [
    ("rememr1", 1.0, 1.0, 1.0), ("memagent", 1.0, 0.2, 0.55),  # 3 of 8 facts kept, no guessing
    ("rememr1", 0.0, 0.0, 0.0), ("memagent", 0.0, 0.0, 0.0),
])
def test_a_perfect_reader_needs_the_recall(agent, good, least, most, tokenizers):
    tokenizer = tokenizers["two-hop"]
    rows, vocabulary, right = TwoHopRows(agent, tokenizer), Vocabulary(tokenizer), 0
    for example in two_hop_examples(6, 50):
        turns = [(tokenizer.decode(prompt), tokenizer.decode(reply).removesuffix("<|im_end|>"))
                 for prompt, reply in rows.trajectory(example, random.Random(0), good)]
        assert len(turns) == STATING + 2
        for _, reply in turns[:-1]:
            assert len(vocabulary.encode_text(reply)) <= REPLY_TOKENS[agent]
            assert agent == "memagent" or read_reply(reply).good
        prompt, answer = turns[-1]
        right += f"boxed{{{example.answer}}}" in answer
        if agent == "rememr1" and good:
            assert f"{example.name} {example.answer}" in prompt.split("Recall:")[-1].split("Memory:")[0]
    assert least <= right / 50 <= most
