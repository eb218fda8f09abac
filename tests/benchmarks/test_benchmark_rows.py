"""The rows that the trainer's benchmark trains."""

from mem_agent.benchmarks.trainer import FIRST, LAST, group_rows, pocket_rows


def test_a_group_shares_instruction_and_chunk_and_nothing_else():
    rows = group_rows(8, vocabulary=4096)
    assert {len(row.tokens) for row in rows} == {112 + 640 + 128 + 20 + 128}
    assert len({tuple(row.tokens[:752]) for row in rows}) == 1
    assert len({tuple(row.tokens[752:880]) for row in rows}) == 8
    assert rows == group_rows(8, vocabulary=4096) and sum(row.advantage for row in rows) == 0


def test_pocket_rows_are_two_whole_rollouts():
    for rollout in (FIRST, LAST):
        rows = pocket_rows(rollout)
        assert len({row.rollout_id for row in rows}) == 64 and len(rows) == 256
