"""What vime meets in a rehearsal: an older vLLM's modules, and a server for this CPU, whichever way vime starts it."""

import importlib
import logging
import os
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from mem_agent.config import Config
from mem_agent.rehearsal import vime_shim, vllm_command
from mem_agent.rehearsal.cpu_arguments import cpu_variables


def test_modules_of_an_older_vllm_are_found(monkeypatch):
    transfer, old = "vllm.distributed.weight_transfer.nccl_engine", "vllm.entrypoints.openai.cli_args"
    for name in (transfer, old):
        monkeypatch.setitem(sys.modules, name, None)
    new = types.ModuleType("cli_args")
    monkeypatch.setitem(sys.modules, "vllm.entrypoints.launchers.cli_args", new)
    vime_shim.give_weight_transfer(sys)
    vime_shim.keep_old_places(sys)
    found = importlib.import_module(transfer)  # of the trainer's half, for which vLLM is not imported
    assert found.NCCLWeightTransferEngine is vime_shim.NCCLWeightTransferEngine
    assert importlib.import_module(old) is new


def test_devices_are_logged_as_the_numbers_of_a_gpu(caplog):
    logger = logging.getLogger("of a host")
    vime_shim.log_devices(types.SimpleNamespace(logger=logger))
    logger.warning("device=%d of %s", torch.device("cpu"), "all")
    assert caplog.messages == ["device=0 of all"]


# As vime 1a13bb8 runs it for the pocket recipe.
SERVE = (
    "vllm serve /models/m --tensor-parallel-size 1 --port 15000 --host 127.0.0.1 --seed 1 --trust-remote-code "
    """--logprobs-mode processed_logprobs --weight-transfer-config '{"backend":"nccl"}' """
    "--gpu-memory-utilization 0.7 --max-model-len 256"
)


def test_values_become_the_flags_that_differ_from_the_defaults():
    """As vime 0747f8e hands them to its child process."""
    values = {"trust_remote_code": True, "seed": 1, "host": "127.0.0.1", "tensor_parallel_size": 1, "tool": ["a", "b"],
              "gpu_memory_utilization": 0.7, "weight_transfer_config": {"backend": "nccl"}, "enable_log": False}
    defaults = {"trust_remote_code": False, "seed": 0, "tensor_parallel_size": 1, "enable_log": True}
    assert shlex.join(vllm_command.as_flags(values, defaults)) == (
        "--trust-remote-code --seed 1 --host 127.0.0.1 --tool a b --gpu-memory-utilization 0.7 "
        """--weight-transfer-config '{"backend": "nccl"}' --no-enable-log"""
    )


@pytest.fixture
def job(tmp_path):
    """The environment of a job whose engines' Python prints the server that it would have become."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$*" in *api_server*) echo "$PYTHONPATH $*";; *) exec '
                      f'{shlex.quote(sys.executable)} "$@";; esac\n')
    python.chmod(0o755)
    (tmp_path / "mem_agent").symlink_to(Path(__file__).parents[2])
    job = os.environ | vllm_command.engine_variables(Config(), str(python))
    job["PYTHONPATH"] = f"{tmp_path}{os.pathsep}/megatron"
    return job | cpu_variables(job)


def test_the_vllm_of_the_jobs_path_becomes_the_server(job, tmp_path):
    run = subprocess.run(["env", *shlex.split(SERVE)], env=job, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    python_path, *command = run.stdout.splitlines()[-1].split()
    assert python_path == str(tmp_path), "neither the host nor what answers for CUDA is for the server"
    assert command[:5] == ["-P", "-m", "vllm.entrypoints.openai.api_server", "--model", "/models/m"]
    assert "mem_agent.rehearsal.vllm_weights.GlooWeights" in command and "--kv-cache-memory-bytes" in command
    assert command[-2:] == ['{"backend":', '"gloo"}']  # behind vime's own
