"""The two-hop task is honest: the pointer comes last, no policy can know it earlier, and a small memory must guess."""

import random
from collections import Counter

import pytest
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.pocket import tokenizer as pocket_tokenizer
from mem_agent.pocket.task import LINE_TOKENS, NAMES, THINGS
from mem_agent.pocket.two_hop import QUESTION, TwoHopShape, two_hop_examples

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


def test_lines_are_never_cut(tmp_path):
    """With the shipped vocabulary too, where the pointer's word is no token of its own, only facts cost four."""
    vocabulary = Vocabulary(pocket_tokenizer.save(tmp_path))
    for example in two_hop_examples(5, 20, SHAPE):
        for row in example.context.splitlines(keepends=True):
            assert row.startswith("wanted") or len(vocabulary.encode_text(row)) == LINE_TOKENS


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
