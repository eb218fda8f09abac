"""Rows: a token sees in a trie what it sees in its row; each is trained once, in micro-batches that fit."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mem_agent.training.rows import TrainRow, optimizer_steps, rows_from_train_data
from mem_agent.training.tries import build_trie, rank_micro_batches, trie_tokens


def test_a_converters_dict_becomes_rows_and_optimizer_steps_of_whole_trajectories():
    rows = rows_from_train_data({
        "tokens": [[1, 2, 3], [1, 4, 5, 6], [7, 8]], "response_lengths": [1, 2, 1], "rewards": [0.5, 0.5, -0.5],
        "loss_masks": [[1], [1, 0], [1]], "rollout_ids": [10, 10, 9], "rollout_mask_sums": [2, 2, 1],
        "rollout_log_probs": [[-0.1], [-0.2, -0.3], [-0.4]], "raw_reward": [1.0, 1.0, 0.0],
    })
    assert rows[1] == TrainRow([1, 4, 5, 6], 2, [1, 0], [-0.2, -0.3], 0.5, 10, 2.0)
    assert (rows[1].prompt_length, rows[1].response) == (2, [5, 6])
    assert optimizer_steps(rows, 1) == [rows[:2], rows[2:]] and optimizer_steps(rows, 2) == [rows]


# --- a trie ----------------------------------------------------------------------------------------------------------


def row(tokens, response):
    return TrainRow(tokens, response, [1] * response, [0.0] * response, 1.0, 0, 1.0)


@st.composite
def rows(draw):
    tokens = draw(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=10), min_size=1, max_size=10))
    return [row(t, draw(st.integers(0, len(t) - 1))) for t in tokens]


def tokens_of_tries(rows):
    """By definition: as many as there are different prefixes."""
    return len({tuple(row[:n]) for row in rows for n in range(1, len(row) + 1)})


def seen(trie, q):
    """The tokens that token q sees, in order."""
    return [trie.tokens[k] for k in range(q + 1) if q < trie.end[k]]


@settings(deadline=None)
@given(rows())
def test_a_prediction_sees_its_row_up_to_there_and_nothing_else(rows):
    trie = build_trie(rows)
    assert len(trie.tokens) == tokens_of_tries([r.inputs for r in rows])
    assert len(set(zip(trie.predicting, trie.targets, strict=True))) == len(trie.targets)
    where = iter(trie.places)
    for r in rows:
        for number, token in enumerate(r.response, start=r.prompt_length):
            place = next(where)
            position = trie.predicting[place]
            assert seen(trie, position) == r.tokens[:number] and trie.targets[place] == token
            assert trie.positions[position] == number - 1
    assert next(where, None) is None
    for q in range(len(trie.tokens)):
        assert len(seen(trie, q)) == trie.positions[q] + 1


def test_the_example_of_the_module():
    trie = build_trie([row([1, 2, 3, 9], 2), row([1, 2, 4, 9], 2), row([7, 8, 9], 2), row([1, 2, 3, 9], 2)])
    assert (trie.tokens, trie.positions) == ([1, 2, 3, 4, 7, 8], [0, 1, 2, 2, 0, 1])
    assert trie.end == [4, 4, 3, 4, 6, 6]
    predicted = list(zip(trie.predicting, trie.targets, strict=True))
    assert predicted == [(1, 3), (2, 9), (1, 4), (3, 9), (4, 8), (5, 9)]
    assert trie.places == [0, 1, 2, 3, 4, 5, 0, 1]


# --- the split -------------------------------------------------------------------------------------------------------

# Few different tokens, so that rows share prefixes, are prefixes of each other, and are equal.
ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=0, max_size=14)


@settings(deadline=None)
@given(ROWS, st.integers(1, 5), st.integers(1, 30))
@example([[1, 2, 3]] * 4, 2, 30)
@example([[1], [1, 2], [1, 2, 3]], 3, 1)
def test_every_row_is_in_one_micro_batch_that_keeps_to_its_tokens_unless_it_is_one_long_row(rows, ranks, budget):
    plan = rank_micro_batches(rows, ranks, budget)
    batches = [batch for rank in plan for batch in rank]
    assert len(plan) == ranks and sorted(i for batch in batches for i in batch) == list(range(len(rows)))
    assert trie_tokens(rows) == tokens_of_tries(rows)
    for batch in batches:
        assert tokens_of_tries([rows[i] for i in batch]) <= budget or len(batch) == 1


def test_the_split_is_a_function_of_the_rows_alone():
    assert rank_micro_batches([[1, 2, 3], [1, 2, 4], [1, 2, 5, 6, 7], [8, 9]], 2, 100) == [[[0, 1, 2]], [[3]]]
    assert rank_micro_batches([[1] * 5, [2], [3] * 4, [4] * 2], 2, 6, share=False) == [[[0, 1]], [[2, 3]]]
