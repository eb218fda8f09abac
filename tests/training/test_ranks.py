"""How many processes train, that they meet and talk over loopback, and that the one that dies is named."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.checkpoints.hf_folder import HfTensors
from mem_agent.checkpoints.hf_model import parameter_count
from mem_agent.config import Config
from mem_agent.system.processes import ChildProcess, ProcessError
from mem_agent.training import ranks
from mem_agent.training.ranks import train_processes, with_train_procs

POCKET = Path(__file__).parents[2] / "pocket" / "start"
GIB = 2**30
POCKET_SIZE, SMOL = 2_500_000, 135_000_000


@pytest.mark.parametrize("parameters,cores,gpus,tp,memory,expected", [
    (POCKET_SIZE, 64, 0, 1, 24 * GIB, 1),
    (SMOL, 1, 0, 1, 24 * GIB, 1),
    (SMOL, 16, 0, 1, 24 * GIB, 2),  # more were not measured
    (SMOL, 2, 0, 2, 24 * GIB, 2),  # one copy, halved
    (SMOL, 4, 0, 2, 24 * GIB, 4),
    (SMOL, 2, 0, 1, 8 * GIB, 1),  # two copies of 3 GiB would not leave half of it
    (SMOL, 16, 4, 2, 512 * GIB, 2),
])
def test_how_many_processes(parameters, cores, gpus, tp, memory, expected):
    assert train_processes(parameters, cores, gpus, tp, memory) == expected


def test_parameters_are_counted_from_the_config():
    stored = sum(math.prod(shape) for shape in HfTensors(POCKET).shapes.values())
    assert parameter_count(json.loads((POCKET / "config.json").read_text())) == pytest.approx(stored, rel=0.005)
    smollm2 = {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
               "intermediate_size": 1536, "vocab_size": 49152, "tie_word_embeddings": True}
    assert parameter_count(smollm2) == pytest.approx(134_515_008, rel=0.001)  # HuggingFaceTB/SmolLM2-135M's tensors
    assert parameter_count({}) == 0


@pytest.mark.parametrize("given,began,expected", [
    ({}, 0, 2), ({"train_procs": 1}, 2, 1), ({}, 1, 1), ({}, 4, 4),
    ({"tp": 4}, 2, 4),  # halves of a model are no quarters
    ({"rollout_batch_size": 1, "n_samples_per_prompt": 1}, 0, 1),  # one trajectory a step has no two shares
])
def test_what_is_given_wins_then_what_the_run_began_with_then_what_the_machine_has(
    given, began, expected, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2))
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 2)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr(ranks, "WORTH_A_PROCESS", 1)
    assert with_train_procs(Config(**given), POCKET, began).train_procs == expected


# --- started, and met ------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("other,error,expected", [
    ("import sys; print('MemoryError: none left'); sys.exit(3)", RuntimeError("Connection closed by peer"),
     (ProcessError, r"trainer-1 .* code 3; log .*: MemoryError: none left")),
    ("import time; time.sleep(600)", ZeroDivisionError("of rank 0"), (ZeroDivisionError, "of rank 0")),
])
def test_a_rank_that_died_is_named_and_an_error_of_rank_zero_itself_passes(
    other, error, expected, tmp_path, monkeypatch
):
    def start(rank, *_):
        return ChildProcess(f"trainer-{rank}", [sys.executable, "-c", other], os.environ, tmp_path / "log")

    monkeypatch.setattr(ranks, "_start", start)
    monkeypatch.setattr(ranks, "DEATH_SEEN_S", 3.0)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(expected[0], match=expected[1]), ranks.other_ranks(Config(train_procs=2), []):
        raise error


RANK = """
import os, sys, torch, torch.distributed as dist
from mem_agent.training import ranks
ranks.join(1)
total = torch.ones(1)
dist.all_reduce(total)
from mem_agent.tests.helpers.listeners import listeners
addresses = sorted({address for address, _ in listeners([os.getpid()])})
told = ranks.broadcast(f"by-{os.environ['RANK']}")
print(int(total), told, os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"], *addresses)
dist.barrier()
ranks.leave()
"""


def test_real_ranks_listen_on_loopback_alone_and_the_users_interfaces_stay(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.endswith("SOCKET_IFNAME")}
    env |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "NCCL_SOCKET_IFNAME": "eth7"}
    env |= {ranks.MEETING: str(tmp_path / "store"), "WORLD_SIZE": "2"}
    started = [
        subprocess.Popen([sys.executable, "-c", RANK], env=env | {"RANK": rank, "LOCAL_RANK": rank},
                         stdout=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    for process in started:
        total, told, gloo, nccl, *addresses = process.communicate()[0].split()
        assert (int(total), told, gloo, nccl) == (2, "by-0", "lo", "eth7")
        assert process.returncode == 0 and set(addresses) <= {"127.0.0.1", "::1"}, addresses
