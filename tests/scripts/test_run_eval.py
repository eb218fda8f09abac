"""run-eval.sh and the processes under it."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_client_ends_with_the_script(tmp_path, number):
    (tmp_path / "eval_1.json").write_text(json.dumps([{"context": "c", "input": "q", "answers": ["a"]}]))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(HANGS_AFTER_S)
        env = os.environ | {
            "BASE_URL": f"http://127.0.0.1:{silent.getsockname()[1]}", "MODEL_PATH": str(ROOT / "pocket" / "start"),
            "DATA_ROOT": str(tmp_path), "RESULTS": str(tmp_path), "SAVE_FILE": "out", "LENGTH": "1",
            "RECIPE": str(ROOT / "recipes" / "pocket.env"),
        }
        script = subprocess.Popen(["bash", str(ROOT / "run-eval.sh")], env=env, stderr=subprocess.DEVNULL)
        client, _ = silent.accept()
        script.send_signal(number)
        with client:
            client.settimeout(HANGS_AFTER_S)
            while client.recv(2**16):  # until the client's process is gone
                pass
        assert script.wait(HANGS_AFTER_S) == (130 if number == signal.SIGTERM else -number)


def test_a_running_server_is_not_asked_with_the_recipe_of_this_machine(tmp_path):
    """recipes/cpu.env, the default for what a machine without a GPU serves by itself, has answers of 64 tokens."""
    (tmp_path / "eval_1.json").write_text(json.dumps([{"context": "c", "input": "q", "answers": ["a"]}]))
    router = FakeRouter(default=[5], models=({"id": "served"},))
    with running_beside(router):
        env = {name: value for name, value in os.environ.items() if name != "RECIPE"} | {
            "BASE_URL": f"http://127.0.0.1:{router.port}", "MODEL_PATH": str(ROOT / "pocket" / "start"),
            "DATA_ROOT": str(tmp_path), "RESULTS": str(tmp_path), "SAVE_FILE": "out", "LENGTH": "1",
            "MEM_CHUNK_TOKENS": "32", "MEM_MAX_MEMORY": "8",
        }
        done = subprocess.run(["bash", str(ROOT / "run-eval.sh")], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "out" / "run.json").read_text())["settings"]
    assert settings["mem_max_final"] == 256 and settings["mem_max_question"] == 1024
