"""The server that vime starts takes the weights that vime's trainer sends, as vime sends them."""

import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
import torch
from safetensors.torch import load_file

from mem_agent.config import Config
from mem_agent.rehearsal import vime_shim
from mem_agent.rehearsal.cpu_job import cpu_variables
from mem_agent.system.server_url import free_ports
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.serving.test_fleet_servers import SETTINGS, greedy, log_prob_gap, prompts
from mem_agent.tests.system.test_processes import group_members

pytestmark = pytest.mark.servers


@pytest.fixture
def folders(tmp_path) -> list[Path]:
    return [make_tiny_model(tmp_path / f"policy{seed}", seed=seed, tied=True) for seed in range(2)]


@pytest.fixture
def server(folders, tmp_path, monkeypatch):
    """Its URL and process, started as vime 0747f8e starts its child."""
    port, log = free_ports(1)[0], tmp_path / "vllm.log"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    environment = os.environ | cpu_variables(os.environ)
    environment |= vime_shim.engine_variables(Config(**SETTINGS), sys.executable)
    values = {"model": str(folders[0]), "host": "127.0.0.1", "port": port, "seed": 1, "trust_remote_code": True,
              "logprobs_mode": "processed_logprobs", "weight_transfer_config": {"backend": "nccl"},
              "gpu_memory_utilization": 0.7, "max_model_len": 1024}
    command = [sys.executable, "-c", f"from mem_agent.rehearsal import vime_shim; vime_shim.start({values!r}, {{}})"]
    with tempfile.TemporaryDirectory(prefix="vime-") as temporary, log.open("w") as file:  # sockets' paths are short
        process = subprocess.Popen(command, env=environment | {"TMPDIR": temporary}, stdout=file, stderr=file,
                                   start_new_session=True)
        try:
            wait_for(lambda: process.poll() is not None or "startup complete" in log.read_text())
            assert process.poll() is None, log.read_text()[-3000:]
            yield f"http://127.0.0.1:{port}", process
        finally:
            for member in group_members(process.pid):
                os.kill(member, signal.SIGKILL)
            process.wait()


def call(url: str, path: str, body: dict | None = None) -> dict:
    reply = requests.post(f"{url}/{path}", json=body or {}, timeout=HANGS_AFTER_S)
    assert reply.ok, reply.text
    return reply.json() if reply.content.strip() else {}


def test_an_update_over_gloo_gives_the_new_policy_and_nothing_outlives_the_process(server, folders):
    from transformers import AutoModelForCausalLM

    url, process = server
    policies = [AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32).eval() for f in folders]
    weights = load_file(folders[1] / "model.safetensors")

    def agrees(policy) -> bool:
        sampling = {"max_tokens": 24, "logprobs": 0, "ignore_eos": True, "temperature": 0.0}
        for prompt in prompts():
            body = {"token_ids": prompt, "sampling_params": sampling}
            choice = call(url, "inference/v1/generate", body)["choices"][0]
            if choice["token_ids"] != greedy(policy, prompt) or log_prob_gap(policy, prompt, choice, 1.0) > 1e-4:
                return False
        return True

    assert agrees(policies[0])
    transfer = vime_shim.NCCLWeightTransferEngine
    info = {"master_address": "127.0.0.1", "master_port": free_ports(1)[0], "world_size": 2}
    with ThreadPoolExecutor() as engine:
        joined = engine.submit(call, url, "init_weight_transfer_engine", {"init_info": info | {"rank_offset": 1}})
        group = transfer.trainer_init(info)
        joined.result()
        call(url, "pause?mode=keep")
        call(url, "reset_prefix_cache")
        call(url, "start_weight_update", {"is_checkpoint_format": True})
        names = list(weights)
        update = {"names": names, "dtype_names": [str(weights[n].dtype).removeprefix("torch.") for n in names],
                  "shapes": [list(weights[n].shape) for n in names], "packed": True}
        received = engine.submit(call, url, "update_weights", {"update_info": update})
        transfer.trainer_send_weights(iter(weights.items()), vime_shim.NCCLTrainerSendWeightsArgs(group, True))
        received.result()
        call(url, "finish_weight_update")
        call(url, "resume")
    assert agrees(policies[1]), "the output layer, tied to the embedding, included"
    # vime ends the process that it has started and its children: nothing may stay behind in another tree.
    assert "vllm.entrypoints.openai.api_server" in Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
    process.terminate()
    process.wait(HANGS_AFTER_S)
    wait_for(lambda: group_members(process.pid) == [])
