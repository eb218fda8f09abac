"""The trainer of slime and vime against the embedded host's: same rows, same weights, two optimizer steps.

    SLIME_ROOT=... VIME_ROOT=... MEGATRON_ROOT=... REHEARSAL_PYTHON=... python -m pytest tests/hooks/test_parity.py

The host's real parser and actor run without Ray and without a GPU; the rows are the converter's, with failed, aborted,
removed, truncated and padding ones among them. ``-s`` prints the table of ``docs/hosts.md``.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from mem_agent.checkpoints import hf_to_torch_dist
from mem_agent.tests.helpers import host_actor, parity, parity_rows
from mem_agent.tests.helpers.host_actor import Job, Outcome
from mem_agent.tests.helpers.host_checkout import HOSTS

pytestmark = pytest.mark.servers

CASES = {
    "trajectory, KL": {},
    "trajectory": {"kl_coef": 0.0},
    "token, KL": {"loss_agg": "token"},
    "token": {"loss_agg": "token", "kl_coef": 0.0},
}
FLOAT32 = ", float32 gradients"
# Float32 sums in another order; the second step's losses also see what Adam made of the first step's. `grad_norm` is
# relative, `weights` the distance over the way moved.
TOLERANCES = {
    "log_probs": 1e-5, "ref_log_probs": 1e-5, "advantages": 1e-6, "lr": 0.0,
    "loss": 1e-6, "pg_loss": 1e-6, "kl": 1e-5, "grad_norm": 1e-5, "weights": 1e-4,
}
# vime's loss goes through Megatron's fused cross entropy, whose backward pass rounds the gradient of the logits to
# bfloat16, 8 bits, whatever the model's dtype: so it is for its users. Forward passes are as exact as slime's.
ROUNDED = TOLERANCES | {"loss": 1e-3, "pg_loss": 1e-3, "kl": 1e-2, "grad_norm": 2e-2, "weights": 1e-1}


Outcomes = dict[str, Outcome]
"""By case; vime's with float32 gradients have names of their own."""


@pytest.fixture(scope="module")
def embedded(tmp_path_factory) -> tuple[Path, Path, Outcomes]:
    """The reference, the rows, and what the embedded host makes of them."""
    folder = tmp_path_factory.mktemp("embedded")
    reference, rows = folder / "reference", folder / "rollout.json"
    assert hf_to_torch_dist.main(["--hf", str(parity.START), "--output", str(reference)]) == 0
    rows.write_text(json.dumps(parity_rows.rollout(parity.START, parity.settings(reference, folder), seed=1)))
    torch.set_num_threads(1)
    settings = {case: parity.settings(reference, folder / "run", **changed) for case, changed in CASES.items()}
    return reference, rows, {case: parity.embedded(config, [str(rows)]) for case, config in settings.items()}


@pytest.fixture(scope="module", params=HOSTS, ids=lambda host: host.name)
def compared(request, embedded, tmp_path_factory) -> tuple[Outcomes, Outcomes]:
    host, (reference, rows, expected) = request.param, embedded
    folder, jobs = tmp_path_factory.mktemp(host.name), []
    for number, (case, changed) in enumerate(CASES.items()):
        out = folder / str(number)
        line = host_actor.command_line(host, parity.settings(reference, folder / "run", **changed), out)
        jobs.append(Job(case, host.name, line, [str(rows)], str(out)))
        if host.name == "vime":
            jobs.append(Job(case + FLOAT32, host.name, line, [str(rows)], f"{out}f", fp32_cross_entropy=True))
    return host_actor.run(host, jobs, folder), expected


@pytest.mark.parametrize("case", CASES)
def test_a_hosts_trainer_and_the_embedded_one_do_the_same(compared, case):
    found, expected = compared
    start = load_file(parity.START / "model.safetensors")
    exact = case + FLOAT32 if case + FLOAT32 in found else case
    for name, tolerances in ((case, TOLERANCES if exact == case else ROUNDED), (exact, TOLERANCES)):
        print("\n" + parity.table(name, found[name], expected[case], start))
        apart = parity.differences(found[name], expected[case], start)
        assert {"log_probs", "advantages", "loss", "grad_norm", "weights"} < apart.keys()
        beyond = {quantity: value for quantity, value in apart.items() if value > tolerances[quantity]}
        assert not beyond, (name, beyond)
