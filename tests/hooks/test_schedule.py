"""The learning rate of every optimizer step, beside that of the published trainers."""

import ast
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mem_agent.config import Config
from mem_agent.hooks.schedule import learning_rate, set_rollout_learning_rate

PAPER = Config(lr=1e-6, lr_warmup_rollouts=20, rollout_batch_size=128, n_samples_per_prompt=16, global_batch_size=128)
"""MemAgent's 7B script: 16 optimizer steps a rollout, warm-up 20."""
ROOTS = [name for name in ("MEMAGENT_ROOT", "REMEMR1_ROOT") if os.environ.get(name)]


def published_rule(root: str | None):
    """verl's warm-up: from its checkout, else as read there (a factor of scheduler step over warm-up, at most 1)."""
    if root is None:
        return lambda optimizer, num_warmup_steps: torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, step / num_warmup_steps))
    source = (Path(os.environ[root]) / "verl" / "utils" / "torch_functional.py").read_text()
    name = "get_constant_schedule_with_warmup"
    (function,) = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == name]
    scope = {"Optimizer": torch.optim.Optimizer, "LambdaLR": torch.optim.lr_scheduler.LambdaLR}
    exec(compile(ast.Module([function], []), "published", "exec"), scope)
    return scope[name]


@pytest.mark.parametrize("root", [None, *ROOTS])
def test_every_step_of_thirty_rollouts_has_the_published_rate(root):
    """verl steps its scheduler once a rollout, after all of its optimizer steps (``fsdp_workers.update_actor``)."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1e-6)
    schedule = published_rule(root)(optimizer, num_warmup_steps=20)
    published = []
    for _ in range(30):
        for _ in range(16):
            published.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
        schedule.step()
    assert [learning_rate(PAPER, step) for step in range(480)] == pytest.approx(published, rel=1e-12)
    assert published[15] == 0.0 and published[16] == pytest.approx(5e-8) and published[-1] == 1e-6


def test_the_hosts_hook_sets_the_rate_of_each_step():
    groups = [{"lr": 1e-6}, {"lr": 1e-6}]
    args, rates = SimpleNamespace(mem_agent=PAPER), []
    for rollout in range(30):
        for step in range(16):
            set_rollout_learning_rate(args, rollout, step, None, SimpleNamespace(param_groups=groups), None)
            rates.append(groups[0]["lr"])
            assert groups[1]["lr"] == groups[0]["lr"]
    assert rates == [learning_rate(PAPER, step) for step in range(480)]


@pytest.mark.parametrize("settings,rates", [
    ({"lr_warmup_steps": 4}, [0, 0.25, 0.5, 0.75, 1, 1]), ({"lr_warmup_rollouts": 2}, [0, 0, 0.5, 0.5, 1, 1]),
    ({}, [1] * 6),
])
def test_a_warm_up_by_steps_and_one_by_rollouts(settings, rates):
    config = Config(lr=1.0, rollout_batch_size=2, n_samples_per_prompt=2, global_batch_size=2, **settings)
    assert [learning_rate(config, step) for step in range(6)] == rates


def test_a_run_continued_with_another_batch_warms_up_by_its_rollouts_all_the_same():
    config = Config(lr=1.0, lr_warmup_rollouts=20, rollout_batch_size=8, n_samples_per_prompt=8, global_batch_size=16)
    assert learning_rate(config, step=10, rollout=10) == 0.5  # ten rollouts of one step each, before it had four
