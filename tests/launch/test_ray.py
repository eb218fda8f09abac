"""``run-train.sh`` with a real Ray head and a host whose ``train.py`` writes down what reached it."""

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from mem_agent.tests.helpers.fake_host import settings
from mem_agent.tests.helpers.listeners import listeners
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(" " in sys.executable, reason="Ray starts no workers from a path with a blank"),
]

ROOT = Path(__file__).parents[2]
SEEN = """\
import json, os, sys
import mem_agent.rollout
from mem_agent.config import load_yaml
save = sys.argv[sys.argv.index("--save") + 1]
config = load_yaml(sys.argv[sys.argv.index("--custom-config-path") + 1])
token = open(os.environ["HF_TOKEN_PATH"]).read()
seen = {"chunk": config.mem_chunk_tokens, "pack": mem_agent.__path__[0], "token": token, "env": dict(os.environ)}
json.dump(seen, open(save + "/seen.json", "w"))
"""


@pytest.fixture
def port():
    """Ray's; the next one is its dashboard's, the one after that its agent's.

    All are above the ports of Ray's workers and below those that connections get by themselves, Ray's own among them.
    """
    for first in random.SystemRandom().sample(range(20000, 32000, 3), 100):
        if all(is_free(port) for port in range(first, first + 3)):
            return first
    pytest.fail("no three ports are free")


def is_free(port):
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.fixture
def launch(tmp_path, port):
    """``launch(train)`` starts run-train.sh with a host that runs ``train``: (process, SAVE_PATH)."""
    started = []
    home = tmp_path / "home"
    home.mkdir()

    def start(train, token="none", **changes):
        """``token``: where the user has Ray's, "none", "file" or "variable"."""
        if token == "file":
            (home / ".ray").mkdir()
            (home / ".ray" / "auth_token").write_text("0123456789abcdef" * 2)
        if token == "variable":
            changes["RAY_AUTH_TOKEN"] = "ray_secret" * 4
        env = settings(tmp_path, model="qwen3-0.6b", **changes)
        for driver in ("train.py", "train_async.py"):
            (tmp_path / "slime" / driver).write_text(train)
        env |= {"PYTHON": sys.executable, "RAY_PORT": str(port), "RAY_DASHBOARD_PORT": str(port + 1), "CONVERT": "0",
                "NUM_ROLLOUT": "1", "HF_TOKEN": "hf_secret", "WANDB_API_KEY": "wandb_secret", "NCCL_DEBUG": "WARN",
                "http_proxy": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}  # nobody listens there
        env["HOME"] = str(home)
        clean = {k: v for k, v in os.environ.items() if k not in ("VENV", "RECIPE", "DRY_RUN", "no_proxy", "NO_PROXY")
                 and not k.startswith("RAY_AUTH_")}
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
    """Pids of processes of the head on this port."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if re.search(rb"(?<!\d)%d(?!\d)" % port, (folder / "cmdline").read_bytes()):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def with_children(pids):
    """These processes and all that they started."""
    found = set(pids)
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            found |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
    return found


def test_a_job_gets_settings_hooks_and_tokens_and_leaves_nothing_behind(launch, port, tmp_path):
    process, save = launch(SEEN, "variable", MEM_CHUNK_TOKENS="777")
    output, _ = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 0, output
    seen = json.loads((save / "seen.json").read_text())
    assert seen["chunk"] == 777 and Path(seen["pack"]).resolve() == ROOT.resolve()
    assert seen["env"]["NCCL_DEBUG"] == "WARN" and seen["env"]["CUDA_DEVICE_MAX_CONNECTIONS"] == "1"
    assert seen["env"]["RAY_AUTH_MODE"] == "token"
    assert seen["token"] == "hf_secret" and not any("secret" in value for value in seen["env"].values())
    assert (tmp_path / "model_torch_dist" / "latest_checkpointed_iteration.txt").read_text() == "release"
    written = (save / "launch" / "runtime_env.yaml").read_text() + (save / "launch" / "mem_agent.yaml").read_text()
    assert "secret" not in output + written and not (save / "launch" / "tokens").exists()
    assert yaml.safe_load(written.split("mem_agent:")[0])["env_vars"]["NETRC"].endswith("tokens/netrc")
    wait_for(lambda: not ray_processes(port))


def test_a_failing_job_is_one_line_and_an_exit_code(launch, port):
    process, _ = launch("import sys; print('it broke'); sys.exit(3)", "file")
    output, _ = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 1 and "it broke" in output
    (error,) = [line for line in output.splitlines() if line.startswith("error: ")]
    assert "FAILED" in error
    wait_for(lambda: not ray_processes(port))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_launch_stops_its_job_and_its_ray(sent, launch, port):
    """Of a user who has no token for Ray: the run has one. No other machine reaches any of Ray's processes."""
    process, save = launch("import os, sys, time\n"
                           "assert os.environ['RAY_AUTH_MODE'] == 'token'\n"
                           "assert len(open(os.environ['RAY_AUTH_TOKEN_PATH']).read()) == 64\n"
                           "save = sys.argv[sys.argv.index('--save') + 1]\n"
                           "os.symlink(os.environ['RAY_TMPDIR'], save + '/files')\n"
                           "open(save + '/started', 'w').close()\ntime.sleep(600)")
    wait_for((save / "started").exists, process)
    files = (save / "files").readlink()
    assert files.stat().st_mode & 0o777 == 0o700 and list(files.glob("ray/session_latest/sockets/plasma_store"))
    listening = listeners(with_children(ray_processes(port)))
    assert len(listening) > 5 and {address for address, _ in listening} == {"127.0.0.1"}, listening
    os.kill(process.pid, sent) if sent == signal.SIGTERM else os.killpg(process.pid, sent)
    output, _ = process.communicate(timeout=HANGS_AFTER_S)
    assert process.returncode == 130 and "interrupted" in output, output
    wait_for(lambda: not ray_processes(port))
    assert not (save / "launch" / "tokens").exists() and not files.exists()
