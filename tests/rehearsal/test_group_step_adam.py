"""The Adam of a rehearsal is torch's, to the last bit; only where it keeps its count differs."""

import copy

import pytest
import torch

from mem_agent.rehearsal.cuda_shim import GroupStepAdamW

OPTIONS = {"lr": 1e-2, "betas": (0.9, 0.98), "eps": 1e-8}


def parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, 4), (4,), (2, 2)]
    return [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def groups(params: list[torch.nn.Parameter]) -> list[dict]:
    return [{"params": params[:1], "weight_decay": 0.1}, {"params": params[1:], "weight_decay": 0.0}]


def take_steps(optimizer, params, first: int, last: int) -> None:
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        for param in params:
            param.grad = torch.randn(param.shape, generator=generator)
        for group in optimizer.param_groups:
            group["lr"] = 1e-2 * min(step, 2) / 2
        optimizer.step()


def assert_same(found, expected) -> None:
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_steps_are_those_of_torch(steps):
    ours, theirs = parameters(), parameters()
    take_steps(GroupStepAdamW(groups(ours), **OPTIONS), ours, 0, steps)
    take_steps(torch.optim.AdamW(groups(theirs), **OPTIONS), theirs, 0, steps)
    assert_same(ours, theirs)


def test_the_count_is_the_groups_and_the_moments_are_the_parameters():
    params = parameters()
    optimizer = GroupStepAdamW(groups(params), **OPTIONS)
    take_steps(optimizer, params, 0, 3)
    assert [group["step"] for group in optimizer.param_groups] == [3, 3]
    assert all(state.keys() == {"exp_avg", "exp_avg_sq"} for state in optimizer.state.values())


def test_a_loaded_state_goes_on_as_if_nothing_had_happened():
    params, theirs = parameters(), parameters()
    optimizer = GroupStepAdamW(groups(params), **OPTIONS)
    take_steps(optimizer, params, 0, 3)
    saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(params)
    resumed = GroupStepAdamW(groups(weights), **OPTIONS)
    resumed.load_state_dict(saved)
    take_steps(resumed, weights, 3, 6)
    take_steps(torch.optim.AdamW(groups(theirs), **OPTIONS), theirs, 0, 6)
    assert_same(weights, theirs)


def test_a_parameter_without_a_gradient_stays_and_has_no_moments():
    params = parameters()
    optimizer = GroupStepAdamW(groups(params), **OPTIONS)
    before = params[2].detach().clone()
    params[0].grad = torch.ones_like(params[0])
    optimizer.step()
    assert torch.equal(params[2], before) and params[2] not in optimizer.state


def test_coupled_weight_decay_is_refused():
    with pytest.raises(AssertionError, match="decouple"):
        GroupStepAdamW(groups(parameters()), adam_w_mode=False, **OPTIONS)
