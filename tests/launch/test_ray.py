"""``run-train.sh`` with a real Ray head and a host whose ``train.py`` writes down what reached it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mem_agent.checkpoints.folders import TRACKER
from mem_agent.config import Config
from mem_agent.launch import ray_job
from mem_agent.launch.ray_job import RAY_PORTS
from mem_agent.system.server_url import is_free
from mem_agent.tests.helpers.fake_host import settings
from mem_agent.tests.helpers.local_ray import needs_local_ray
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for

pytestmark = [pytest.mark.servers, needs_local_ray]

ROOT = Path(__file__).parents[2]
SEEN = """\
import json, os, sys
import mem_agent.rollout
from mem_agent.config import load_yaml
save = sys.argv[sys.argv.index("--save") + 1]
config = load_yaml(sys.argv[sys.argv.index("--custom-config-path") + 1])
seen = {"chunk": config.mem_chunk_tokens, "pack": mem_agent.__path__[0], "env": dict(os.environ)}
json.dump(seen, open(save + "/seen.json", "w"))
"""


@pytest.fixture
def port():
    """Ray's; a machine on which another head runs cannot have this one."""
    ray, dashboard = RAY_PORTS
    if not all(is_free(port) for port in (ray, dashboard, dashboard + 1)):
        pytest.skip("a Ray head runs here already")
    return ray


@pytest.fixture
def launch(tmp_path, port):
    """``launch(train)`` starts run-train.sh with a host that runs ``train``: (process, SAVE_PATH)."""
    started = []

    def start(train, **changes):
        env, reference = settings(tmp_path, model="qwen3-0.6b", **changes), tmp_path / "reference"
        reference.mkdir()
        (reference / TRACKER).write_text("release")
        (tmp_path / "slime" / "train.py").write_text(train)
        env |= {"PYTHON": sys.executable, "CONVERT": "0", "TORCH_DIST": str(reference), "NUM_ROLLOUT": "1",
                "HF_TOKEN": "hf_secret", "WANDB_API_KEY": "wandb_secret", "NCCL_DEBUG": "WARN",
                "http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}  # nobody listens there
        clean = {k: v for k, v in os.environ.items() if k not in ("VENV", "RECIPE", "DRY_RUN", "no_proxy", "NO_PROXY")}
        process = subprocess.Popen(
            ["bash", str(ROOT / "run-train.sh")], env=clean | env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, cwd="/", start_new_session=True,
        )
        started.append(process)
        return process, Path(env["SAVE_PATH"])

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(HANGS_AFTER_S)


def ray_processes(port):
    """The processes of the head on this port."""
    named = re.compile(rf"(?<!\d){port}(?!\d)")
    return [p for p in psutil.process_iter(["cmdline"]) if named.search(" ".join(p.info["cmdline"] or []))]


def listening_addresses(processes):
    """Of these processes and all that they have started."""
    found = set()
    for process in processes:
        for member in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                sockets = member.net_connections("tcp")
                found |= {s.laddr.ip.removeprefix("::ffff:") for s in sockets if s.status == "LISTEN"}
    return found


def test_a_head_that_a_busy_machine_starts_too_late_is_started_again(port, tmp_path, monkeypatch):
    late = ("import os, sys\nif not os.path.exists('again'):\n    open('again', 'w').close()\n"
            "    sys.exit('The current node timed out during startup.')\nos.execvp(sys.argv[1], sys.argv[1:])")
    real = ray_job.head_command
    monkeypatch.setattr(ray_job, "head_command", lambda *given: [sys.executable, "-c", late, *real(*given)])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # Ray in this process keeps the mode that an earlier test gave it
    with ray_job.cluster(Config(master_addr="127.0.0.1"), RAY_PORTS, 0, 1, tmp_path / "head.log"):
        assert (tmp_path / "again").exists() and ray_processes(port)


def test_a_job_gets_settings_hooks_and_keys_and_leaves_nothing_behind(launch, port):
    process, save = launch(SEEN, MEM_CHUNK_TOKENS="777")
    output, _ = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 0, output
    seen = json.loads((save / "seen.json").read_text())
    assert seen["chunk"] == 777 and Path(seen["pack"]).resolve() == ROOT.resolve()
    assert seen["env"]["NCCL_DEBUG"] == "WARN" and seen["env"]["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert seen["env"]["HF_TOKEN"] == "hf_secret"
    written = (save / "launch" / "runtime_env.yaml").read_text() + (save / "launch" / "mem_agent.yaml").read_text()
    assert "secret" not in output + written
    wait_for(lambda: not ray_processes(port))


def test_a_stopped_launch_stops_its_job_and_its_ray(launch, port):
    """No other machine reaches any of Ray's processes."""
    process, save = launch("import sys, time\nsave = sys.argv[sys.argv.index('--save') + 1]\n"
                           "open(save + '/started', 'w').close()\ntime.sleep(600)")
    wait_for((save / "started").exists, process)
    listening = listening_addresses(ray_processes(port))
    assert listening == {"127.0.0.1"}, listening
    os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 130 and "interrupted" in output, output
    wait_for(lambda: not ray_processes(port))
