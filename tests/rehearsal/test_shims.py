"""What answers for a GPU in a rehearsed job: Adam, the start of its processes, an older vLLM, vime's server."""

import copy
import shlex
import subprocess
import sys
from pathlib import Path

import torch

from mem_agent.config import Config
from mem_agent.rehearsal import vime_shim
from mem_agent.rehearsal.cuda_shim import GroupStepAdamW

# --- Adam is torch's, to the last bit; only where it keeps its count differs -----------------------------------------

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


# --- processes -------------------------------------------------------------------------------------------------------

CODE = """
import sys
from mem_agent.rehearsal import cpu_job
cpu_job.prepare()
import json
print('torch' in sys.modules)
import slime.utils.misc, torch
print(slime.utils.misc.get_current_node_ip(), torch.cuda.current_device(), torch.zeros(1, device='cuda').device)
"""


def test_a_shim_acts_when_its_framework_is_imported_and_imports_none_itself(tmp_path):
    (tmp_path / "mem_agent").symlink_to(Path(__file__).parents[2])
    package = tmp_path / "slime" / "utils"
    package.mkdir(parents=True)
    (package / "misc.py").write_text("def get_current_node_ip():\n    return '192.0.2.1'\n")
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.stdout == "False\n127.0.0.1 cpu cpu\n", done.stderr


# --- vime ------------------------------------------------------------------------------------------------------------


def test_values_become_the_flags_that_differ_from_the_defaults():
    """As vime 0747f8e hands them to its child process."""
    values = {"trust_remote_code": True, "seed": 1, "host": "127.0.0.1", "tensor_parallel_size": 1, "tool": ["a", "b"],
              "gpu_memory_utilization": 0.7, "weight_transfer_config": {"backend": "nccl"}, "enable_log": False}
    defaults = {"trust_remote_code": False, "seed": 0, "tensor_parallel_size": 1, "enable_log": True}
    assert shlex.join(vime_shim.as_flags(values, defaults)) == (
        "--trust-remote-code --seed 1 --host 127.0.0.1 --tool a b --gpu-memory-utilization 0.7 "
        """--weight-transfer-config '{"backend": "nccl"}' --no-enable-log"""
    )


def test_the_child_process_becomes_the_server(monkeypatch):
    """Of the pack's own Python, which neither the host nor what answers for CUDA is for."""
    for name, text in vime_shim.engine_variables(Config(), "/pack/bin/python").items():
        monkeypatch.setenv(name, text)
    became = []
    monkeypatch.setattr(vime_shim.os, "execve", lambda *call: became.append(call))
    vime_shim.start({"model": "/models/m", "max_model_len": 256, "weight_transfer_config": {"backend": "nccl"}}, {})
    [(program, command, environment)] = became
    assert program == "/pack/bin/python" and environment["PYTHONPATH"] == str(Path(vime_shim.__file__).parents[2])
    assert command[1:6] == ["-P", "-m", "vllm.entrypoints.openai.api_server", "--model", "/models/m"]
    assert "mem_agent.rehearsal.vllm_weights.GlooWeights" in command and "--kv-cache-memory-bytes" in command
    assert command[-1] == '{"backend": "gloo"}'  # behind vime's own
