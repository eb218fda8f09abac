"""Every row is trained exactly once, no micro-batch exceeds its budget, and ranks agree without talking."""

import random

import pytest

from mem_agent.training.packing import micro_batches, split_rows

CASES = [
    ([random.Random(seed).randint(1, 90) for _ in range(random.Random(seed).randint(1, 40))], 1 + seed % 5)
    for seed in range(60)
]


@pytest.mark.parametrize(("lengths", "ranks"), CASES)
def test_every_row_lands_on_exactly_one_rank_and_in_one_micro_batch(lengths, ranks):
    shares = split_rows(lengths, ranks)
    batches = [micro_batches(share, lengths, 64) for share in shares]
    assert sorted(i for share in shares for i in share) == list(range(len(lengths)))
    assert [sorted(i for batch in rank for i in batch) for rank in batches] == shares


@pytest.mark.parametrize(("lengths", "ranks"), CASES)
def test_a_micro_batch_keeps_to_its_tokens_unless_it_is_one_long_row(lengths, ranks):
    for batch in micro_batches(range(len(lengths)), lengths, 64):
        assert sum(lengths[i] for i in batch) <= 64 or len(batch) == 1


@pytest.mark.parametrize(("lengths", "ranks"), CASES)
def test_ranks_are_balanced_and_none_is_empty_while_rows_suffice(lengths, ranks):
    totals = [sum(lengths[i] for i in share) for share in split_rows(lengths, ranks)]
    assert max(totals) - min(totals) <= max(lengths)
    assert all(totals) or len(lengths) < ranks


def test_the_split_is_a_function_of_the_lengths_alone():
    assert split_rows([5, 1, 4, 2], 2) == [[0, 1], [2, 3]]
    assert split_rows([3, 3, 3], 2) == [[0, 2], [1]]
    assert micro_batches([0, 1, 2, 3], [5, 1, 4, 2], 6) == [[0, 1], [2, 3]]


def test_no_rows_make_no_micro_batches():
    assert split_rows([7], 2) == [[0], []]
    assert micro_batches([], [7], 10) == []
