"""Rows become tries in micro-batches; training on these against the rows: log-probs, loss and every gradient."""

import random
from dataclasses import replace

import pytest

from mem_agent.tests.helpers.trainer_steps import make_config
from mem_agent.training.rows import TrainRow, optimizer_steps, rows_from_train_data
from mem_agent.training.trainer import Trainer
from mem_agent.training.tries import build_trie, rank_micro_batches


def row(tokens, response, advantage=1.0, rollout=0, live=1, total=1.0):
    return TrainRow(tokens, response, [live] * response, [-4.0] * response, advantage, rollout, total)


def words(count, seed):
    """Never token 0: the tiny model embeds it as zeros, whose norm multiplies what rounding leaves by a thousand."""
    draw = random.Random(seed)
    return [draw.randrange(1, 513) for _ in range(count)]


def group(siblings, chunk=30, turns=3, seed=0, reply=6):
    """Siblings that read the same chunks, each with memories of its own; the first two say the same at first."""
    rows = []
    for sibling in range(siblings):
        memory: list[int] = []
        for turn in range(turns):
            said = words(reply, (seed, max(sibling, 1) if turn == 0 else sibling, turn).__hash__())
            prompt = words(9, "instruction") + words(chunk, f"{seed} {turn}") + memory
            rows.append(row(prompt + said, reply, (-1.0) ** sibling, seed * 100 + sibling, total=float(turns * reply)))
            memory = said
    return rows


CASES = {
    "a group": group(4),
    "ragged groups": [*group(2, seed=1), *group(5, chunk=11, turns=1, seed=2), *group(1, turns=4, seed=3, reply=1)],
    "equal rows of opposite advantage": [row(words(20, 1), 4, a, i) for i, a in enumerate([1.0, -1.0, 0.5])],
    "a row that is a prefix of another": [row(words(30, 1)[:n], 3, 1.0, n) for n in (30, 12, 11, 4)],
    "one token long": [row([7], 0, rollout=9), *group(2), row([7, 8], 1, 2.0, rollout=10)],
    "partly masked": [TrainRow(words(20, 1), 4, [1, 0, 0, 1], [-4.0] * 4, 1.0, 0, 2.0), *group(2, seed=4)],
}


def step(trainer, rows, budget):
    trainer.packed_tokens, trainer.steps = budget, 0
    log_probs = trainer.log_probs(rows)
    metrics = trainer.train_step(rows, log_probs, trainer.reference_log_probs(rows))
    gradients = {name: p.main_grad.clone() for name, p in trainer.model.named_parameters()}
    return [p for values in log_probs for p in values], metrics, gradients


@pytest.fixture(scope="module", params=["trajectory", "token"])
def trainers(request, model):
    """On rows and on tries. A learning rate of 0 leaves the weights as they are for the next case."""
    config = make_config(model, lr=0.0, weight_decay=0.0, clip_grad=0.0, loss_agg=request.param)
    return [Trainer(config, share=share) for share in (False, True)]


@pytest.mark.parametrize("budget", [4096, 70])
@pytest.mark.parametrize("case", CASES)
def test_tries_train_what_rows_train(trainers, case, budget):
    expected, found = (step(trainer, CASES[case], budget) for trainer in trainers)
    assert found[0] == pytest.approx(expected[0], abs=1e-5)
    for name in expected[1].keys() - {"micro_batches"}:
        assert found[1][name] == pytest.approx(expected[1][name], rel=1e-5, abs=1e-6), name
    largest = max(gradient.norm() for gradient in expected[2].values())
    for name, gradient in expected[2].items():
        assert (found[2][name] - gradient).norm() <= 1e-5 * max(gradient.norm(), 1e-3 * largest), name


@pytest.mark.parametrize("loss_agg,sampled_before", [("trajectory", False), ("token", True)])
def test_a_group_without_advantage_counts_in_every_statistic_and_moves_nothing(
    model, loss_agg, sampled_before, monkeypatch
):
    """Beside a step that sends all its rows backwards, as the hosts do."""
    trainer = Trainer(make_config(model, kl_coef=0.0, lr=0.0, loss_agg=loss_agg))
    failed = row(words(12, 6), 4, rollout=50, live=0, total=0.0)
    rows = [*(replace(r, advantage=0.0) for r in group(3, seed=2)), *group(3, seed=1), failed]
    own = trainer.log_probs(rows)
    assert trainer.train_step(rows, own) == trainer.train_step(rows, None), "without old ones those of its own pass"
    old = [[x - 0.1 for x in values] for values in own] if sampled_before else None
    found = trainer.train_step(rows, old)
    monkeypatch.setattr("mem_agent.training.trainer.has_gradient", lambda row, kl_coef: True)
    expected = trainer.train_step(rows, old)
    assert found["tokens"] == expected["tokens"] == sum(sum(r.loss_mask) for r in rows)
    assert found == pytest.approx(expected | {"micro_batches": found["micro_batches"]}, rel=1e-6, abs=1e-7)


# --- rows, a trie, the split -----------------------------------------------------------------------------------------


def test_a_converters_dict_becomes_rows_and_optimizer_steps_of_whole_trajectories():
    rows = rows_from_train_data({
        "tokens": [[1, 2, 3], [1, 4, 5, 6], [7, 8]], "response_lengths": [1, 2, 1], "rewards": [0.5, 0.5, -0.5],
        "loss_masks": [[1], [1, 0], [1]], "rollout_ids": [10, 10, 9], "rollout_mask_sums": [2, 2, 1],
        "rollout_log_probs": [[-0.1], [-0.2, -0.3], [-0.4]], "raw_reward": [1.0, 1.0, 0.0],
    })
    assert rows[1] == TrainRow([1, 4, 5, 6], 2, [1, 0], [-0.2, -0.3], 0.5, 10, 2.0)
    assert (rows[1].prompt_length, rows[1].response) == (2, [5, 6])
    assert optimizer_steps(rows, 1) == [rows[:2], rows[2:]] and optimizer_steps(rows, 2) == [rows]


def test_the_example_of_the_module():
    trie = build_trie([row([1, 2, 3, 9], 2), row([1, 2, 4, 9], 2), row([7, 8, 9], 2), row([1, 2, 3, 9], 2)])
    assert (trie.tokens, trie.positions) == ([1, 2, 3, 4, 7, 8], [0, 1, 2, 2, 0, 1])
    assert trie.end == [4, 4, 3, 4, 6, 6]
    predicted = list(zip(trie.predicting, trie.targets, strict=True))
    assert predicted == [(1, 3), (2, 9), (1, 4), (3, 9), (4, 8), (5, 9)]
    assert trie.places == [0, 1, 2, 3, 4, 5, 0, 1]


@pytest.mark.parametrize("rows,ranks,budget,share,plan", [
    ([[1, 2, 3], [1, 2, 4], [1, 2, 5, 6, 7], [8, 9]], 2, 100, True, [[[0, 1, 2]], [[3]]]),
    ([[1] * 5, [2], [3] * 4, [4] * 2], 2, 6, False, [[[0, 1]], [[2, 3]]]),
    ([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 6], [7, 8]], 1, 5, True, [[[1, 2], [0], [3]]]),
    ([[1, 2]], 2, 1, True, [[[0]], []]),  # one row may be longer than the budget
])
def test_the_split_is_a_function_of_the_rows_alone(rows, ranks, budget, share, plan):
    assert rank_micro_batches(rows, ranks, budget, share=share) == plan
