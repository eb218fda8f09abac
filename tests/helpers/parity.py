"""Two trainers on the same rows: what each of them did, and how far they are apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from mem_agent.config import Config
from mem_agent.tests.helpers.host_actor import Outcome
from mem_agent.tests.helpers.host_checkout import TESTS

START = TESTS.parent / "pocket" / "start"
STEP_QUANTITIES = ("loss", "pg_loss", "kl", "grad_norm", "lr")
ROW_QUANTITIES = ("log_probs", "ref_log_probs", "advantages")


def settings(torch_dist: Path, save_path: Path, **changed: Any) -> Config:
    """Two steps of eight trajectories of the pocket model, at a rate that clips in the second."""
    return Config(**{  # type: ignore[arg-type]
        "hf_ckpt": str(START), "torch_dist": str(torch_dist), "save_path": str(save_path), "train_data": "none.jsonl",
        "tracker": "none", "engine_max_len": 512, "num_rollout": 4, "rollout_batch_size": 4, "n_samples_per_prompt": 4,
        "global_batch_size": 8, "temperature": 0.7, "lr": 3e-4, "weight_decay": 0.1, "max_tokens_per_gpu": 512,
        "kl_coef": 0.05, **changed})


def embedded(config: Config, rollouts: Sequence[str]) -> Outcome:
    """The embedded host's trainer on the same files of rows, step by step as ``train.learn`` does it."""
    from mem_agent.training.rows import optimizer_steps, rows_from_train_data
    from mem_agent.training.trainer import Trainer

    trainer = Trainer(config)
    outcome = Outcome([], [], [])
    for path in rollouts:
        rows = rows_from_train_data(json.loads(Path(path).read_text()))
        old = trainer.log_probs(rows)
        reference = trainer.reference_log_probs(rows) if config.kl_coef > 0 else None
        first = 0
        for step in optimizer_steps(rows, config.step_trajectories):
            part = slice(first, first := first + len(step))
            outcome.steps.append(trainer.train_step(step, old[part], reference[part] if reference else None))
        kept = {"log_probs": old, "advantages": [[row.advantage] * row.response_length for row in rows]}
        outcome.rows.append(kept | ({"ref_log_probs": reference} if reference else {}))
        outcome.weights.append(trainer.export_hf())
    return outcome


def _numbers(outcome: Outcome) -> dict[str, list[float]]:
    """All values of each quantity, in their order; none of one that there is not."""
    of_rows = {name: [value for rollout in outcome.rows for row in rollout.get(name, ()) for value in row]
               for name in ROW_QUANTITIES}
    return of_rows | {name: [step[name] for step in outcome.steps if name in step] for name in STEP_QUANTITIES}


def differences(host: Outcome, other: Outcome, start: dict[str, Tensor]) -> dict[str, float]:
    """The largest difference of each quantity: ``grad_norm`` relative, ``weights`` in L2 over the way they moved."""
    apart: dict[str, float] = {}
    expected = _numbers(other)
    for name, values in _numbers(host).items():
        if values and expected[name]:
            apart[name] = max(abs(x - y) / (abs(y) if name == "grad_norm" else 1.0)
                              for x, y in zip(values, expected[name], strict=True))
    apart["weights"] = max(_apart(a, b, start) for a, b in zip(host.weights, other.weights, strict=True))
    return apart


def farthest_tensor(host: Outcome, other: Outcome, start: dict[str, Tensor]) -> tuple[float, str]:
    """How far apart the two are in the tensor where they are farthest, over the way it moved; its name."""
    found, expected = host.weights[-1], other.weights[-1]
    return max((_apart({name: found[name]}, {name: expected[name]}, start), name) for name in found)


def _apart(found: dict[str, Tensor], expected: dict[str, Tensor], start: dict[str, Tensor]) -> float:
    assert found.keys() == expected.keys() - {"lm_head.weight"}
    apart = sum(float((found[name].double() - expected[name].double()).square().sum()) for name in found)
    moved = sum(float((expected[name].double() - start[name].double()).square().sum()) for name in found)
    return (apart / moved) ** 0.5


def table(case: str, host: Outcome, other: Outcome, start: dict[str, Tensor]) -> str:
    """Lines of the table in ``docs/hosts.md``."""
    lines, found, expected = [], _numbers(host), _numbers(other)
    for name in STEP_QUANTITIES:
        for number, (x, y) in enumerate(zip(found[name], expected[name], strict=False), 1):
            lines.append(f"| {case} | {name}, step {number} | {x:.9g} | {y:.9g} | {abs(x - y):.1e} |")
    apart = differences(host, other, start)
    lines += [f"| {case} | {name} | | | {apart[name]:.1e} |" for name in (*ROW_QUANTITIES, "weights") if name in apart]
    return "\n".join(lines)
