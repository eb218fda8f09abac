"""The server that vime starts becomes one for a CPU, whichever way it starts it."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.config import Config
from mem_agent.rehearsal import vllm_command
from mem_agent.rehearsal.cpu_arguments import cpu_variables

ROOT = Path(__file__).parents[2]
# As vime 1a13bb8 runs it for the pocket recipe.
SERVE = (
    "vllm serve /models/m --tensor-parallel-size 1 --port 15000 --host 127.0.0.1 --seed 1 --trust-remote-code "
    """--logprobs-mode processed_logprobs --weight-transfer-config '{"backend":"nccl"}' """
    "--gpu-memory-utilization 0.7 --max-model-len 256"
)
# As vime 0747f8e hands it to its child process, without what equals vLLM's default.
VALUES = {
    "model": "/models/m", "trust_remote_code": True, "seed": 1, "host": "127.0.0.1", "port": 15000,
    "tensor_parallel_size": 1, "logprobs_mode": "processed_logprobs", "enable_prompt_tokens_details": True,
    "max_model_len": 256, "gpu_memory_utilization": 0.7, "weight_transfer_config": {"backend": "nccl"},
}
DEFAULTS = {"trust_remote_code": False, "seed": 0, "tensor_parallel_size": 1, "port": 8000,
            "enable_prompt_tokens_details": False, "gpu_memory_utilization": 0.92, "weight_transfer_config": None}


def test_a_gpus_flags_become_a_cpus():
    flags = shlex.split(SERVE)[3:]
    assert shlex.join(vllm_command.on_cpu(flags, ["--dtype", "float32", "--seed", "7", "--enforce-eager"])) == (
        "--tensor-parallel-size 1 --port 15000 --host 127.0.0.1 --trust-remote-code "
        """--logprobs-mode processed_logprobs --weight-transfer-config '{"backend": "gloo"}' """
        "--max-model-len 256 --dtype float32 --seed 7 --enforce-eager"
    )


def test_values_become_the_flags_that_differ_from_the_defaults():
    values = {k: v for k, v in VALUES.items() if k != "model"}
    flags = vllm_command.as_flags(values | {"tool": ["a", "b"], "enable_log": False}, DEFAULTS | {"enable_log": True})
    assert shlex.join(flags) == (
        "--trust-remote-code --seed 1 --host 127.0.0.1 --port 15000 --logprobs-mode processed_logprobs "
        "--enable-prompt-tokens-details --max-model-len 256 --gpu-memory-utilization 0.7 "
        """--weight-transfer-config '{"backend": "nccl"}' --tool a b --no-enable-log"""
    )


@pytest.fixture
def job(tmp_path):
    """The environment of a job whose engines' Python prints the server it would have become."""
    python = tmp_path / "python"
    report = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['PYTHONPATH'], dict(os.environ)]))"
    own = shlex.quote(sys.executable)
    server = f'exec {own} -c "{report}" "$@"'
    python.write_text(f'#!/bin/sh\ncase "$*" in *api_server*) {server};; *) exec {own} "$@";; esac\n')
    python.chmod(0o755)
    (tmp_path / "mem_agent").symlink_to(ROOT)
    variables = vllm_command.engine_variables(Config(), str(python))
    return os.environ | variables | {"PYTHONPATH": f"{tmp_path}{os.pathsep}/megatron"}


def test_the_vllm_of_the_jobs_path_becomes_the_server(job, tmp_path):
    environment = job | cpu_variables("vime", job)
    run = subprocess.run(["env", *shlex.split(SERVE)], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    command, python_path, environment = json.loads(run.stdout.splitlines()[-1])
    assert command[:5] == ["-P", "-m", "vllm.entrypoints.openai.api_server", "--model", "/models/m"]
    assert "mem_agent.rehearsal.vllm_weights.GlooWeights" in command and "--kv-cache-memory-bytes" in command
    assert '{"backend": "gloo"}' in command and "--gpu-memory-utilization" not in command
    assert python_path == str(tmp_path), "neither the host nor what answers for CUDA is for the server"
    assert environment["VLLM_SERVER_DEV_MODE"] == "1"
