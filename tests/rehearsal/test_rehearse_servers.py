"""A whole rehearsal by each host's own train.py: it trains, saves, resumes, converts, and says so.

    SLIME_ROOT=... VIME_ROOT=... MEGATRON_ROOT=... REHEARSAL_PYTHON=... SGLANG_PYTHON=... pytest tests/rehearsal
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.pocket.prepare import prepare
from mem_agent.tests.helpers import host_actor
from mem_agent.tests.helpers.fake_host import recipe
from mem_agent.tests.helpers.host_checkout import HOSTS
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.servers
SMALL = {"ROLLOUT_BATCH_SIZE": "2", "N_SAMPLES_PER_PROMPT": "4"}


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_it_trains_saves_resumes_and_converts(host, tmp_path):
    """As run-train.sh starts it, of the pocket task."""
    python = host_actor.rehearsal_python()
    prepare(tmp_path / "data", seed=1)
    env = {name: value.replace("${PACK_DIR}", str(ROOT)) for name, value in recipe("pocket").items()
           if name not in ("POCKET_DATA", "DATA_ROOT", "LENGTH")}
    env |= {
        "HOST": host.name, "HOST_ROOT": str(host.checkout()), "SAVE_PATH": str(tmp_path),
        "MEGATRON_ROOT": str(host_actor.megatron(host)), "TRAIN_DATA": str(tmp_path / "data" / "train.jsonl"),
        "MEM_AGENT_ENGINE_PYTHON": sys.executable, "PYTHONPATH": str(host_actor.importable(tmp_path)), **SMALL,
    }
    if host.name == "slime":
        env["SGLANG_PYTHON"] = host_actor.sglang_python()
    command = [python, "-m", "mem_agent", "rehearse", "--rollouts", "1", "--ranks", "1"]
    done = subprocess.run(command, env=host_actor.inherited() | env, cwd=tmp_path, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=HANGS_AFTER_S)
    assert done.returncode == 0, done.stdout[-4000:]
    (made,) = (tmp_path / "rehearsals").iterdir()
    page = (made / "rehearsal.md").read_text()
    differences = re.search(r"log-probs of trainer and engine, mean difference \| (.*) \|", page)[1].split(", ")
    assert len(differences) == 2 and max(map(float, differences)) < 1e-5, page
    assert "continued with rollout 1" in page and "| trajectories that failed, a rollout | 0, 0 |" in page
    assert (made / "hf" / "iter_0000001" / "config.json").is_file()
