"""How many processes train, and that the one that dies is named."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mem_agent.config import Config
from mem_agent.system.processes import ChildProcess, ProcessError
from mem_agent.training import ranks
from mem_agent.training.ranks import with_train_procs

POCKET = Path(__file__).parents[2] / "pocket" / "start"
SMALL, LARGE = 2_500_000, 135_000_000


@pytest.mark.parametrize("parameters,cores,gib,settings,expected", [
    (SMALL, 64, 24, {}, 1), (LARGE, 1, 24, {}, 1),
    (LARGE, 16, 24, {}, 2),  # more were not measured
    (LARGE, 4, 24, {"tp": 2}, 4),  # copies, halved
    (LARGE, 2, 8, {}, 1),  # two copies of 3 GiB would not leave half of it
    (SMALL, 2, 24, {"train_procs": 3}, 3),
])
def test_a_large_model_gets_a_second_copy_where_it_fits(parameters, cores, gib, settings, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=gib * 2**30))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(ranks, "parameter_count", lambda config: parameters)
    assert with_train_procs(Config(**settings), POCKET).train_procs == expected


@pytest.mark.parametrize("other,error,expected", [
    ("import sys; print('MemoryError: none left'); sys.exit(3)", RuntimeError("Connection closed by peer"),
     (ProcessError, r"trainer-1 .* code 3; log .*: MemoryError: none left")),
    ("import time; time.sleep(600)", ZeroDivisionError("of rank 0"), (ZeroDivisionError, "of rank 0")),
])
def test_a_rank_that_died_is_named_and_an_error_of_rank_zero_itself_passes(
    other, error, expected, tmp_path, monkeypatch
):
    def start(name, *_):
        return ChildProcess(name, [sys.executable, "-c", other], os.environ, tmp_path / "log")

    monkeypatch.setattr(ranks, "ChildProcess", start)
    monkeypatch.setattr(ranks, "DEATH_SEEN_S", 1.0)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(expected[0], match=expected[1]), ranks.other_ranks(Config(train_procs=2), []):
        raise error
