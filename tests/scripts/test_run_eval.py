"""run-eval.sh on a server: its process is the evaluation, and the recipe of this machine is not the server's."""

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
COMMAND = ["bash", str(ROOT / "run-eval.sh")]


@pytest.fixture
def asking(tmp_path):
    """``asking(port)``: the environment of an evaluation of one question."""
    (tmp_path / "eval_1.json").write_text(json.dumps([{"context": "c", "input": "q", "answers": ["a"]}]))
    clean = {name: value for name, value in os.environ.items() if name != "RECIPE"}
    return lambda port: clean | {
        "BASE_URL": f"http://127.0.0.1:{port}", "MODEL_PATH": str(ROOT / "pocket" / "start"), "LENGTH": "1",
        "DATA_ROOT": str(tmp_path), "RESULTS": str(tmp_path), "SAVE_FILE": "out",
    }


def test_a_signal_ends_the_evaluation_in_order(asking):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(HANGS_AFTER_S)
        env = asking(silent.getsockname()[1]) | {"RECIPE": str(ROOT / "recipes" / "pocket.env")}
        script = subprocess.Popen(COMMAND, env=env, stderr=subprocess.PIPE, text=True)
        silent.accept()
        script.send_signal(signal.SIGTERM)
        _, said = script.communicate(timeout=HANGS_AFTER_S)
    assert script.returncode == 130 and said.splitlines()[-1].startswith("interrupted; ")


def test_a_running_server_is_not_asked_with_the_recipe_of_this_machine(asking, tmp_path):
    """recipes/cpu.env, the default for what a machine without a GPU serves by itself, has answers of 64 tokens."""
    router = FakeRouter(default=[5], models=({"id": "served"},))
    with running_beside(router):
        env = asking(router.port) | {"MEM_CHUNK_TOKENS": "32", "MEM_MAX_MEMORY": "8"}
        done = subprocess.run(COMMAND, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "out" / "run.json").read_text())["settings"]
    assert settings["mem_max_final"] == 256 and settings["mem_max_question"] == 1024
