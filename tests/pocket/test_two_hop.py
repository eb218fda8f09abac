"""The two-hop task is honest: the pointer comes last, no policy can know it earlier, and a small memory must guess."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from mem_agent.agents.rememr1 import read_reply
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.pocket.task import LINE_TOKENS, NAMES, THINGS
from mem_agent.pocket.two_hop import QUESTION, TwoHopShape, two_hop_examples
from mem_agent.pocket.two_hop_rows import REPLY_TOKENS, TwoHopRows, save_tokenizer

SHAPE = TwoHopShape()


def lines_of(example, shape=SHAPE):
    rows = example.context.splitlines()
    return [rows[i : i + shape.lines] for i in range(0, len(rows), shape.lines)]


def facts_in(rows):
    return dict(row.rstrip(".").split() for row in rows if row.split()[0] in NAMES)


def test_the_answer_follows_from_pointer_and_fact_alone():
    for example in two_hop_examples(1, 200, SHAPE):
        *stating, last = lines_of(example)
        (pointer,) = [row for row in last if row.startswith("wanted ")]
        kind = pointer.removeprefix("wanted ").rstrip(".")
        facts = {name: thing for rows in stating for name, thing in facts_in(rows).items()}
        assert example.question == QUESTION and facts[kind] == example.answer and example.name == kind
        assert kind in facts_in(stating[example.fact_chunk])
        assert facts_in(last) == {}, "nothing but the pointer is told at the end"


def test_every_chunk_states_as_many_facts_and_every_kind_is_stated_once():
    for example in two_hop_examples(2, 100, SHAPE):
        *stating, _ = lines_of(example)
        assert [len(facts_in(rows)) for rows in stating] == [SHAPE.facts] * SHAPE.stating
        assert example.context.count("wanted") == 1
        assert all(example.context.count(f"{name} ") == 1 for rows in stating for name in facts_in(rows)
                   if name != example.name)


def test_where_the_wanted_fact_stands_cannot_be_guessed():
    examples = list(two_hop_examples(3, 2_000, SHAPE))
    for values in (Counter(e.fact_chunk for e in examples), Counter(e.name for e in examples)):
        assert max(values.values()) < 1.35 * min(values.values())
    assert len(Counter(e.answer for e in examples)) == sum(map(len, THINGS.values()))


@pytest.mark.parametrize("kept,expected", [(0, 0.1), (2, 0.25 + 0.075), (8, 1.0), (99, 1.0)])
def test_ceiling_of_a_small_memory(kept, expected):
    assert SHAPE.ceiling(kept) == pytest.approx(expected)  # 2 of 8 kept, else one of ten things


def test_keeping_the_newest_facts_reaches_the_ceiling_and_no_more():
    right, guess = 0.0, random.Random(0)
    examples = list(two_hop_examples(4, 4_000, SHAPE))
    for example in examples:
        *stating, _ = lines_of(example)
        held = facts_in(stating[-1])
        right += held.get(example.name, guess.choice(THINGS[example.name])) == example.answer
    assert right / len(examples) == pytest.approx(SHAPE.ceiling(2), abs=0.03)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_the_shipped_start_fits_the_code_that_made_it(tokenizer, tmp_path):
    start = Path(__file__).parents[2] / "pocket" / "two_hop_start"
    assert (start / "model.safetensors").stat().st_size < 8 * 2**20
    save_tokenizer(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()
    assert json.loads((start / "config.json").read_text())["vocab_size"] >= len(tokenizer)


def test_lines_are_never_cut(tokenizer):
    vocabulary = Vocabulary(tokenizer)
    for example in two_hop_examples(5, 20, SHAPE):
        rows = example.context.splitlines(keepends=True)
        assert {len(vocabulary.encode_text(row)) for row in rows} == {LINE_TOKENS}


def trajectories(agent, tokenizer, good, count=100):
    """Per example: the texts of prompts and replies."""
    rows = TwoHopRows(agent, tokenizer, SHAPE)
    for example in two_hop_examples(6, count, SHAPE):
        turns = rows.trajectory(example, random.Random(0), good)
        pairs = [(tokenizer.decode(prompt), tokenizer.decode(reply)) for prompt, reply in turns]
        assert len(pairs) == SHAPE.stating + 2
        yield example, pairs


def right(agent, tokenizer, good=1.0):
    found = [f"boxed{{{e.answer}}}" in pairs[-1][1] for e, pairs in trajectories(agent, tokenizer, good)]
    return sum(found) / len(found)


def test_a_perfect_reader_needs_the_recall(tokenizer):
    assert right("rememr1", tokenizer) == 1.0
    assert 0.2 < right("memagent", tokenizer) < 0.55  # 3 of 8 facts kept, no guessing
    assert right("rememr1", tokenizer, 0.0) == right("memagent", tokenizer, 0.0) == 0.0


def test_replies_fit_their_budget_and_have_the_form(tokenizer):
    vocabulary = Vocabulary(tokenizer)
    for agent, budget in REPLY_TOKENS.items():
        for _, pairs in trajectories(agent, tokenizer, 1.0, 20):
            for _, reply in pairs[:-1]:
                assert len(vocabulary.encode_text(reply.removesuffix("<|im_end|>"))) < budget + 1
                assert agent == "memagent" or read_reply(reply).good


def test_the_recalled_fact_is_shown_with_the_pointer(tokenizer):
    for example, pairs in trajectories("rememr1", tokenizer, 1.0, 20):
        prompt = pairs[-1][0]
        assert f"{example.name} {example.answer}" in prompt.split("Recall:")[-1].split("Memory:")[0]
        assert prompt.split("Memory:\n")[-1].startswith(f"wanted {example.name}")


def test_a_seed_gives_the_same_documents_and_another_one_others():
    first, again, other = (list(two_hop_examples(seed, 20, SHAPE)) for seed in (1, 1, 2))
    assert first == again and not {e.context for e in first} & {e.context for e in other}


@pytest.mark.parametrize("shape,message", [
    ({"chunk_tokens": 18}, "not a multiple of 4"), ({"facts": 5}, "does not fit 4 lines"),
    ({"stating": 5}, "10 facts about different kinds, of which there are 8"), ({"facts": 0}, "facts 0"),
])
def test_shapes_that_cannot_be(shape, message):
    with pytest.raises(ValueError, match=message):
        TwoHopShape(**shape)
