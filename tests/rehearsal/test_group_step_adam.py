"""The Adam of a rehearsal is torch's, to the last bit; only where it keeps its count differs."""

import copy

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


def test_steps_and_those_of_a_loaded_state_are_torchs_and_groups_count_them():
    ours, resumed, theirs = parameters(), parameters(), parameters()
    optimizer, loaded = (GroupStepAdamW(groups(params), **OPTIONS) for params in (ours, resumed))
    take_steps(optimizer, ours, 0, 3)
    assert [group["step"] for group in optimizer.param_groups] == [3, 3]
    assert all(state.keys() == {"exp_avg", "exp_avg_sq"} for state in optimizer.state.values())
    for param, saved in zip(resumed, ours, strict=True):
        param.data.copy_(saved)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    take_steps(loaded, resumed, 3, 6)
    take_steps(optimizer, ours, 3, 6)
    take_steps(torch.optim.AdamW(groups(theirs), **OPTIONS), theirs, 0, 6)
    for found in (ours, resumed):
        assert all(torch.equal(a, b) for a, b in zip(found, theirs, strict=True))


def test_a_parameter_without_a_gradient_stays_and_has_no_moments():
    params = parameters()
    optimizer = GroupStepAdamW(groups(params), **OPTIONS)
    before = params[2].detach().clone()
    params[0].grad = torch.ones_like(params[0])
    optimizer.step()
    assert torch.equal(params[2], before) and params[2] not in optimizer.state
