"""The two halves of a weight update meet as vime and its engine hold them: one process each."""

import json
import logging
import subprocess
import sys
from types import SimpleNamespace

import torch

from mem_agent.rehearsal import vime_shim
from mem_agent.system.ports import free_ports

RECEIVE = """
import json, sys, torch
from mem_agent.rehearsal.vime_shim import WeightGroup
group = WeightGroup(int(sys.argv[1]), 1, 2)
weights = [torch.empty(shape) for shape in json.loads(sys.argv[2])]
for weight in weights:
    group.broadcast(weight)
print(json.dumps([weight.tolist() for weight in weights]))
del group  # its threads end with it; the interpreter's own end does not wait for them
"""


def test_the_trainers_weights_arrive():
    [port] = free_ports(1)
    weights = [("a", torch.arange(6.0).reshape(2, 3)), ("b", torch.ones(4))]
    shapes = json.dumps([list(weight.shape) for _, weight in weights])
    command = [sys.executable, "-c", RECEIVE, str(port), shapes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        transfer = vime_shim.NCCLWeightTransferEngine
        info = {"master_address": "192.0.2.1", "master_port": port, "world_size": 2}
        arguments = vime_shim.NCCLTrainerSendWeightsArgs(group=transfer.trainer_init(info), packed=True)
        transfer.trainer_send_weights(iter(weights), arguments)
        assert json.loads(engine.communicate()[0]) == [weight.tolist() for _, weight in weights]
    assert engine.returncode == 0


def test_vllm_is_not_imported_for_the_trainers_half(monkeypatch):
    name = "vllm.distributed.weight_transfer.nccl_engine"
    monkeypatch.delitem(sys.modules, name, raising=False)
    vime_shim.give_weight_transfer(sys)
    from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

    assert NCCLWeightTransferEngine is vime_shim.NCCLWeightTransferEngine
    monkeypatch.delitem(sys.modules, name)


def test_devices_are_logged_as_the_numbers_of_a_gpu(caplog):
    module = SimpleNamespace(logger=logging.getLogger("of a host"))
    vime_shim.log_devices(module)
    module.logger.warning("device=%d of %s", torch.device("cpu"), "all")
    assert caplog.messages == ["device=0 of all"]
