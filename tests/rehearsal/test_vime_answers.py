"""The two halves of a weight update meet as vime and its engine hold them: one process each."""

import logging
import multiprocessing
import sys
from types import SimpleNamespace

import torch

from ...rehearsal import vime_answers
from ...system.processes import free_ports


def receive(port, shapes, answers):
    from ...rehearsal.gloo_weights import WeightGroup

    group = WeightGroup("127.0.0.1", port, 1, 2)
    weights = [torch.empty(shape) for shape in shapes]
    for weight in weights:
        group.broadcast(weight)
    answers.put([weight.tolist() for weight in weights])


def test_the_trainers_weights_arrive():
    [port] = free_ports(1)
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.SimpleQueue()
    engine = spawn.Process(target=receive, args=(port, [(2, 3), (4,)], answers))
    engine.start()
    transfer = vime_answers.NCCLWeightTransferEngine
    info = {"master_address": "127.0.0.1", "master_port": port, "world_size": 2}
    weights = [("a", torch.arange(6.0).reshape(2, 3)), ("b", torch.ones(4))]
    arguments = vime_answers.NCCLTrainerSendWeightsArgs(group=transfer.trainer_init(info), packed=True)
    transfer.trainer_send_weights(iter(weights), arguments)
    assert answers.get() == [weight.tolist() for _, weight in weights]
    engine.join(30)
    assert engine.exitcode == 0


def test_vllm_is_not_imported_for_the_trainers_half(monkeypatch):
    name = "vllm.distributed.weight_transfer.nccl_engine"
    monkeypatch.delitem(sys.modules, name, raising=False)
    vime_answers._give_weight_transfer(sys)
    from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

    assert NCCLWeightTransferEngine is vime_answers.NCCLWeightTransferEngine
    monkeypatch.delitem(sys.modules, name)


def test_devices_are_logged_as_the_numbers_of_a_gpu(caplog):
    module = SimpleNamespace(logger=logging.getLogger("of a host"))
    vime_answers._log_devices(module)
    module.logger.warning("device=%d of %s", torch.device("cpu"), "all")
    assert caplog.messages == ["device=0 of all"]
