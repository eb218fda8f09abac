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

pytestmark = pytest.mark.servers
PROMPT = [5, 17, 300, 42] * 20


@torch.no_grad()
def greedy(folder: Path) -> list[int]:
    from transformers import AutoModelForCausalLM

    policy, ids = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), list(PROMPT)
    for _ in range(24):
        ids.append(int(policy(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(PROMPT):]


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Its URL and process, started with the model in ``policy0`` as vime 0747f8e starts its child."""
    port, log = free_ports(1)[0], tmp_path / "vllm.log"
    model = make_tiny_model(tmp_path / "policy0", seed=0, tied=True)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    environment = os.environ | cpu_variables(os.environ) | vime_shim.engine_variables(Config(), sys.executable)
    values = {"model": str(model), "host": "127.0.0.1", "port": port, "trust_remote_code": True,
              "seed": 1, "weight_transfer_config": {"backend": "nccl"},
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
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_an_update_over_gloo_gives_the_new_policy(server, tmp_path):
    url, process = server
    # vime ends the process that it has started: that one must be the server.
    assert "vllm.entrypoints.openai.api_server" in Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")

    def call(path: str, body: dict | None = None) -> dict:
        reply = requests.post(f"{url}/{path}", json=body or {}, timeout=HANGS_AFTER_S)
        assert reply.ok, reply.text
        return reply.json() if reply.content.strip() else {}

    def sampled() -> list[int]:
        sampling = {"max_tokens": 24, "logprobs": 0, "ignore_eos": True, "temperature": 0.0}
        body = {"token_ids": PROMPT, "sampling_params": sampling}
        return call("inference/v1/generate", body)["choices"][0]["token_ids"]

    assert sampled() == greedy(tmp_path / "policy0")
    weights = load_file(make_tiny_model(tmp_path / "policy1", seed=1, tied=True) / "model.safetensors")
    transfer = vime_shim.NCCLWeightTransferEngine
    info = {"master_address": "127.0.0.1", "master_port": free_ports(1)[0], "world_size": 2}
    with ThreadPoolExecutor() as engine:
        joined = engine.submit(call, "init_weight_transfer_engine", {"init_info": info | {"rank_offset": 1}})
        group = transfer.trainer_init(info)
        joined.result()
        call("pause?mode=keep")
        call("reset_prefix_cache")
        call("start_weight_update", {"is_checkpoint_format": True})
        names = list(weights)
        update = {"names": names, "dtype_names": [str(weights[n].dtype).removeprefix("torch.") for n in names],
                  "shapes": [list(weights[n].shape) for n in names], "packed": True}
        received = engine.submit(call, "update_weights", {"update_info": update})
        transfer.trainer_send_weights(iter(weights.items()), vime_shim.NCCLTrainerSendWeightsArgs(group, True))
        received.result()
        call("finish_weight_update")
        call("resume")
    assert sampled() == greedy(tmp_path / "policy1"), "the output layer, tied to the embedding, included"
