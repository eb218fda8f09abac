"""Turns, ratios and counts of the benchmarks, by hand."""

import pytest

from mem_agent.benchmarks.rows import FIRST, LAST, group_rows, pack, pocket_rows
from mem_agent.benchmarks.stopwatch import Sample, Spread, faster, interleaved, spread, timed
from mem_agent.benchmarks.work import Shape, Work, as_rows, as_trees
from mem_agent.training.rows import TrainRow


def test_alternatives_take_turns():
    order = []

    def variant(name):
        def measure():
            order.append(name)
            return Sample(len(order), 0.0)

        return measure

    samples = interleaved({"a": variant("a"), "b": variant("b")}, 3)
    assert order == ["a", "b"] * 3
    assert [s.cpu for s in samples["a"]] == [1, 3, 5] and [s.cpu for s in samples["b"]] == [2, 4, 6]


def test_a_ratio_is_of_its_own_round():
    slow, quick = [Sample(8, 10), Sample(9, 30)], [Sample(1, 5), Sample(1.2, 5)]
    assert faster(slow, quick) == (pytest.approx([8.0, 7.5]), [2.0, 6.0])


def test_a_ratio_needs_as_many_rounds_of_both():
    with pytest.raises(ValueError):
        faster([Sample(1, 1)], [])


@pytest.mark.parametrize(("values", "expected"), [([3.0], (3, 3, 3)), ([5, 1, 2], (2, 1, 5)), ([4, 1], (2.5, 1, 4))])
def test_spread(values, expected):
    assert spread(values) == Spread(*expected)


def test_cpu_seconds_are_work_and_wall_seconds_are_time():
    import time

    slept = timed(lambda: time.sleep(0.05))
    assert slept.wall >= 0.05 > slept.cpu


def row(tokens, response_length=1):
    return TrainRow(list(tokens), response_length, [1] * response_length, [0.0] * response_length, 1.0, 0, 1.0)


def test_rows_as_rows_and_as_trees():
    # abcd and abxy: pairs 2 x (1+2+3+4); as a tree a b c x at depths 0 1 2 2
    assert as_rows([row("abcd"), row("abxy")]) == Work(8, 20, 2)
    assert as_trees([row("abcd"), row("abxy")]) == Work(4, 9, 2)


@pytest.mark.parametrize(
    ("rows", "tokens", "pairs"),
    [
        ([row("abcd"), row("abcd", 2)], 3, 6),  # equal rows
        ([row("ab"), row("abcd")], 3, 6),  # one a prefix of the other
        ([row("ab"), row("cd")], 2, 2),  # nothing shared
        ([row("abx"), row("acx"), row("abx"), row("aby")], 3, 5),  # a, b and c: whatever the order
    ],
)
def test_trees_count_a_prefix_once(rows, tokens, pairs):
    assert (as_trees(rows).tokens, as_trees(rows).pairs) == (tokens, pairs)


def test_flops_of_a_step_are_three_times_those_of_a_forward_pass():
    shape = Shape(body=100, output=10, layers=2, width=4)
    forward = 2 * (100 * 8 + 10 * 2) + 4 * 2 * 4 * 20
    assert shape.flops(Work(8, 20, 2), backward=False) == forward == 2280
    assert shape.flops(Work(8, 20, 2), backward=True) == 3 * forward


def test_a_group_shares_instruction_and_chunk_and_nothing_else():
    rows = group_rows(8, chunk=640, memory=128, vocabulary=4096)
    # 112 + 640 are shared; own are 128 + 20 + 128, of which the last token predicts nothing
    assert as_rows(rows).tokens == 8 * 1028 and as_trees(rows).tokens == 752 + 8 * 275
    assert rows == group_rows(8, chunk=640, memory=128, vocabulary=4096)
    assert sum(r.advantage for r in rows) == 0


def test_pocket_rows_are_two_whole_rollouts():
    for rollout in (FIRST, LAST):
        rows = pocket_rows(rollout)
        assert len({r.rollout_id for r in rows}) == 64 and len(rows) == 256
        assert as_rows(rows).tokens > 7 * as_trees(rows).tokens


def test_packed_rows_keep_what_trains(tmp_path, monkeypatch):
    data = {"tokens": [[1, 2, 3]], "response_lengths": [2], "loss_masks": [[1, 1]], "rewards": [0.5],
            "rollout_ids": [7], "rollout_mask_sums": [2], "rollout_log_probs": [[-0.12345, -1.0]], "raw_reward": [1]}
    (tmp_path / "rows.gz").write_bytes(pack({FIRST: data}))
    monkeypatch.setattr("mem_agent.benchmarks.rows.POCKET_ROWS", tmp_path / "rows.gz")
    assert pocket_rows(FIRST) == [TrainRow([1, 2, 3], 2, [1, 1], [-0.123, -1.0], 0.5, 7, 2.0)]
