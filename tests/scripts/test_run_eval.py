"""run-eval.sh and the processes under it."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def ready():
    if not Path(sys.prefix, "installed-pack").exists():
        pytest.skip("not in an environment of the pack's own; tests/run.sh sets one up")


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


def test_what_a_library_prints_is_not_taken_for_what_the_check_says(tmp_path):
    """Past Python's own standard output. All answers are there, so that the script starts no engine."""
    (tmp_path / "eval_1.json").write_text(json.dumps([{"context": "c", "input": "q", "answers": ["a"]}]))
    (tmp_path / "nothing.env").touch()
    (tmp_path / "own.py").write_text("import os\nfrom mem_agent.agents.memagent import MemAgent\n"
                                     "os.write(1, b'Loading my tokenizer\\n')\nclass Own(MemAgent): pass\n")
    model, output = str(ROOT / "pocket" / "start"), tmp_path / "out"
    env = {name: value for name, value in os.environ.items() if name != "BASE_URL"} | {
        "MODEL_PATH": model, "DATA_ROOT": str(tmp_path), "RESULTS": str(tmp_path), "SAVE_FILE": "out", "LENGTH": "1",
        "RECIPE": str(tmp_path / "nothing.env"), "AGENT": f"{tmp_path}/own.py:Own", "ENGINE_MAX_LEN": "256",
        "MEM_CHUNK_TOKENS": "32", "MEM_MAX_MEMORY": "8", "MEM_MAX_FINAL": "12", "MEM_MAX_QUESTION": "16",
        "MEM_PROMPTS": str(ROOT / "pocket" / "prompts.yaml"),
    }
    client = [sys.executable, "-P", "-m", "mem_agent", "eval", "--model", model, "--output", str(output)]
    with running_beside(FakeRouter(default=[5])) as router:
        without = {name: value for name, value in env.items() if name != "RECIPE"}
        subprocess.run([*client, "--url", f"http://127.0.0.1:{router.port}"], env=without, check=True)
    done = subprocess.run(["bash", str(ROOT / "run-eval.sh")], env=env, capture_output=True, text=True)
    assert f"{output} has all answers" in done.stderr, done.stderr
