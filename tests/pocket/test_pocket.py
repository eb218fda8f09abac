"""The pocket profile: an honest task, rows as the agent builds them, shipped weights that fit their own files."""

import random
from pathlib import Path

import pytest

from mem_agent.agents import build_agent
from mem_agent.agents.documents import split_chunks
from mem_agent.agents.interface import Reading
from mem_agent.agents.records import Generation, StopReason
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config
from mem_agent.data.training_file import DataSource
from mem_agent.evaluation.questions import load_questions
from mem_agent.hooks.task_row import question_of
from mem_agent.pocket import tokenizer as pocket_tokenizer
from mem_agent.pocket.habits import Gate, Habits, RowMaker, Shape, gated_reply, mixed_rows
from mem_agent.pocket.mem1_rows import mem1_rows
from mem_agent.pocket.prepare import TASKS, prepare
from mem_agent.pocket.task import LINE_TOKENS, make_examples

START = Path(pocket_tokenizer.__file__).with_name("start")
SHAPE = Shape()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return pocket_tokenizer.save(tmp_path_factory.mktemp("tokenizer"))


def test_every_line_costs_the_same_so_chunks_never_cut_one(tokenizer):
    vocabulary = Vocabulary(tokenizer)
    for example in make_examples(3, 50, (3, 8)):
        lines = example.context.splitlines(keepends=True)
        assert {len(vocabulary.encode_text(line)) for line in lines} == {LINE_TOKENS}
        assert len(vocabulary.encode_text(example.context)) == LINE_TOKENS * len(lines)


def test_the_answer_stands_once_and_in_every_chunk_alike():
    examples = list(make_examples(5, 600, 3))
    for e in examples:
        assert e.context.count(f"{e.name} ") == 1 and f"{e.name} {e.answer}." in e.context
    counts = [sum(e.fact_chunk == c for e in examples) for c in range(3)]
    assert min(counts) > 160


def test_rows_are_the_prompts_the_agent_builds(tokenizer):
    """Warm-up rows and rollouts must agree to the token, or the ability learned is another one."""
    config = Config(mem_chunk_tokens=SHAPE.chunk_tokens, mem_max_memory=8, mem_prompts=str(pocket_tokenizer.PROMPTS))
    vocabulary = Vocabulary(tokenizer)
    agent = build_agent(config, vocabulary, {})
    maker = RowMaker(tokenizer, pocket_tokenizer.PROMPTS, SHAPE)
    example = next(make_examples(1, 1))
    document = split_chunks(vocabulary.encode_text(example.context), SHAPE.chunk_tokens, 99)
    state = agent.start(Reading(vocabulary.encode_text(example.question), document))
    per_chunk = SHAPE.chunk_tokens // LINE_TOKENS
    lines = example.context.splitlines()
    for first, memory in ((0, ""), (per_chunk, "fruit apple"), (2 * per_chunk, "none")):
        (request,) = agent.requests(state)
        prompt, _ = maker.memory_row(example.question, lines[first : first + per_chunk], memory, "none")
        assert request.prompt_ids == prompt
        following = {0: "fruit apple", per_chunk: "none"}.get(first, "metal gold")
        ids = [*vocabulary.encode_text(following), tokenizer.eos_token_id]
        state = agent.advance(state, [Generation(ids, [0.0] * len(ids), StopReason.STOP)])
    (request,) = agent.requests(state)
    assert request.prompt_ids == maker.final_row(example.question, "metal gold", "gold")[0]


def test_gated_and_merge_rows_are_the_prompts_those_agents_build(tokenizer):
    vocabulary, maker = Vocabulary(tokenizer), RowMaker(tokenizer, pocket_tokenizer.PROMPTS, SHAPE)
    example = next(make_examples(1, 1))
    document = split_chunks(vocabulary.encode_text(example.context), SHAPE.chunk_tokens, 99)
    lines = example.context.splitlines()
    reading, first = Reading(vocabulary.encode_text(example.question), document), lines[: SHAPE.chunk_tokens // 4]
    prompts = {"mem_max_memory": 8, "mem_prompts": str(pocket_tokenizer.PROMPTS)}

    def said(text):
        ids = [*vocabulary.encode_text(text), tokenizer.eos_token_id]
        return Generation(ids, [0.0] * len(ids), StopReason.STOP)

    gated = build_agent(Config(agent="gated", **prompts), vocabulary, {})
    (request,) = gated.requests(gated.start(reading))
    assert request.prompt_ids == maker.memory_row(example.question, first, "", "skip", gated=True)[0]
    assert gated.memory(gated.advance(gated.start(reading), [said("finish\nmetal gold")])) == tuple(
        vocabulary.encode_text("metal gold")
    )

    parallel = build_agent(Config(agent="parallel", agent_args="width=3", **prompts), vocabulary, {})
    state = parallel.start(reading)
    assert parallel.requests(state)[0].prompt_ids == maker.memory_row(example.question, first, "", "none")[0]
    state = parallel.advance(state, [said(text) for text in ("metal gold", "none", "city Rome")])
    (request,) = parallel.requests(state)
    assert request.prompt_ids == maker.merge_row(example.question, "none", ["metal gold", "city Rome"], "none")[0]


def test_habits_are_mixed_as_asked(tokenizer):
    maker = RowMaker(tokenizer, pocket_tokenizer.PROMPTS, SHAPE)

    def replies(habits, gate):
        rows = mixed_rows(maker, 1, habits, gate)
        return {tokenizer.decode(next(rows)[1]).removesuffix("<|im_end|>").split("\n")[0] for _ in range(200)}

    nothing = Habits(good=0.0, distractor=0.0)
    assert replies(nothing, Gate(finish=1.0, hasty=0.0)) == {"none", "skip", "\\boxed{none}"}
    assert replies(nothing, Gate(finish=0.0, hasty=1.0)) == {"none", "finish", "\\boxed{none}"}


@pytest.mark.parametrize(
    "memory,new,gate,reply",
    [
        ("none", "none", Gate(1.0, 0.0), "skip"),
        ("none", "fruit fig", Gate(1.0, 0.0), "finish\nfruit fig"),
        ("fruit fig", "fruit fig", Gate(1.0, 0.0), "finish"),
        ("fruit fig", "fruit fig", Gate(0.0, 0.0), "skip"),
        ("none", "fruit fig", Gate(0.0, 0.0), "update\nfruit fig"),
        ("none", "metal tin", Gate(1.0, 0.0), "update\nmetal tin"),
        ("metal tin", "none", Gate(0.0, 1.0), "finish\nnone"),
    ],
)
def test_a_gated_reply_is_a_plain_one_with_its_decision(memory, new, gate, reply):
    assert gated_reply(random.Random(1), gate, "fruit", memory, new) == reply


@pytest.mark.parametrize("task", TASKS)
def test_training_and_evaluation_documents_differ_and_seeds_repeat(task, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        prepare(tmp_path / name, seed, task)
    files = {n: {p.name: p.read_bytes() for p in (tmp_path / n).rglob("*") if p.is_file()} for n in "abc"}
    assert files["a"] == files["b"] and files["a"]["train.jsonl"] != files["c"]["train.jsonl"]
    source = DataSource(tmp_path / "a" / "train.jsonl", 1)
    rows = [source.row(number) for number in range(len(source))]
    trained = {(row.metadata.get("context", ""), question_of(row)) for row in rows}
    for length in TASKS[task].evaluate:
        held_out = {(entry.context, entry.question.text) for entry in load_questions(tmp_path / "a", length)}
        assert files["a"][f"eval_{length}.json"] == files["c"][f"eval_{length}.json"]
        assert held_out and not trained & held_out


def test_the_shipped_model_is_small_and_fits_the_code_that_made_it(tokenizer, tmp_path):
    weights = START / "model.safetensors"
    assert weights.stat().st_size < 8 * 2**20
    pocket_tokenizer.save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (START / "tokenizer.json").read_bytes()


def test_given_replies_of_mem1_have_a_state_a_section_and_keep_what_is_asked_when_it_is_read():
    for row in mem1_rows(1, 50, lines=4):
        *states, final = row["metadata"]["replies"]
        lines = row["metadata"]["context"].splitlines()
        assert len(states) == -(-len(lines) // 4) and final.startswith(states[-1])
        name = row["prompt"].rpartition(" ")[2].removesuffix("?")
        (where,) = [i for i, line in enumerate(lines) if line.startswith(f"{name} ")]
        assert states[where // 4] == f"<IS>{lines[where].removesuffix('.')}</IS>"
        assert f"\\boxed{{{row['metadata']['ground_truth'][0]}}}" in final or states[-1] != states[where // 4]
