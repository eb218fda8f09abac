"""A whole rehearsal by each host's own train.py: it trains, saves, resumes, converts, and says so; nothing is left.

    SLIME_ROOT=... VIME_ROOT=... MEGATRON_ROOT=... REHEARSAL_PYTHON=... SGLANG_PYTHON=... pytest tests/rehearsal
"""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.pocket.prepare import prepare
from mem_agent.tests.helpers import host_actor
from mem_agent.tests.helpers.fake_host import recipe
from mem_agent.tests.helpers.host_checkout import HOSTS
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.servers
SMALL = {"ROLLOUT_BATCH_SIZE": "2", "N_SAMPLES_PER_PROMPT": "4"}


@pytest.fixture(params=HOSTS, ids=lambda host: host.name)
def start(request, tmp_path):
    """``start()`` begins a rehearsal of the pocket task, as run-train.sh does: (process, its SAVE_PATH)."""
    host = request.param
    python = host_actor.rehearsal_python()
    sglang = {"SGLANG_PYTHON": host_actor.sglang_python()} if host.name == "slime" else {}
    prepare(tmp_path / "data", seed=1)
    env = {name: value.replace("${PACK_DIR}", str(ROOT)) for name, value in recipe("pocket").items()
           if name not in ("POCKET_DATA", "DATA_ROOT", "LENGTH")}
    env |= {
        "HOST": host.name, "HOST_ROOT": str(host_actor.checkout(host)), "SAVE_PATH": str(tmp_path),
        "MEGATRON_ROOT": str(host_actor.megatron(host)), "TRAIN_DATA": str(tmp_path / "data" / "train.jsonl"),
        "MEM_AGENT_ENGINE_PYTHON": sys.executable, "PYTHONPATH": str(host_actor.importable(tmp_path)),
        **SMALL, **sglang,
    }
    started = []

    def begin():
        log = (tmp_path / "log").open("w")
        started.append(subprocess.Popen(
            [python, "-m", "mem_agent", "rehearse", "--rollouts", "1", "--ranks", "1"],
            env=host_actor.inherited() | env, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True,
        ))
        return started[0], tmp_path

    yield begin
    for process in started:
        process.kill()


def test_it_trains_saves_resumes_and_converts(start):
    process, folder = start()
    assert process.wait(HANGS_AFTER_S) == 0, (folder / "log").read_text()[-4000:]
    (made,) = (folder / "rehearsals").iterdir()
    page = (made / "rehearsal.md").read_text()
    differences = re.search(r"log-probs of trainer and engine, mean difference \| (.*) \|", page)[1].split(", ")
    assert len(differences) == 2 and max(map(float, differences)) < 1e-5, page
    assert "continued with rollout 1" in page and "| trajectories that failed, a rollout | 0.000, 0.000 |" in page
    assert (made / "hf" / "iter_0000001" / "config.json").is_file()


def test_an_interrupt_ends_all_that_was_started(start):
    process, folder = start()
    wait_for(lambda: process.poll() is not None or list(folder.glob("rehearsals/*/launch/job.log")))
    assert process.poll() is None, (folder / "log").read_text()[-4000:]
    process.send_signal(signal.SIGINT)
    assert process.wait(HANGS_AFTER_S) == 130
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    assert str(folder) not in listed, listed
