"""`mem-agent serve`: where it listens, for whom, what ends it before engines start, and a life of it."""

import os
import signal
import socket
import subprocess
import sys

import openai
import pytest

from mem_agent.asking.serve import main, read_keys
from mem_agent.tests.helpers.asking import ASKED, REPLIES, SETTINGS, model_folder, reply
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

__all__ = ["model_folder"]


def test_keys_come_from_a_file_or_the_environment(tmp_path):
    (tmp_path / "keys").write_text("one\n\n two \n")
    assert read_keys(tmp_path / "keys", {"MEM_AGENT_API_KEY": "three"}) == ("one", "two")
    assert read_keys(None, {"MEM_AGENT_API_KEY": " three "}) == ("three",) and read_keys(None, {}) == ()


@pytest.mark.parametrize("words,named", [
    (["--host", "0.0.0.0"], "MEM_AGENT_API_KEY"), (["--port", "PORT"], "--port"),
    (["--api-key-file", "/dev/null"], "--api-key-file"),
])  # fmt: skip
def test_what_cannot_listen_is_said_before_a_model_is_looked_at(words, named, capsys, monkeypatch, silent_port):
    monkeypatch.delenv("MEM_AGENT_API_KEY", raising=False)
    with socket.create_server(("127.0.0.1", silent_port)):
        assert main(["/no/model", *[word.replace("PORT", str(silent_port)) for word in words]]) == 2
    assert named in capsys.readouterr().err


def test_a_life_in_front_of_a_server(model_folder):
    router = FakeRouter([reply("x"), *map(reply, REPLIES)], default=reply("x"), streams=True)
    env = {name.upper(): str(value) for name, value in SETTINGS.items()} | {"MEM_AGENT_API_KEY": "secret"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with running_beside(router):
        command = [sys.executable, "-m", "mem_agent", "serve", str(model_folder), "--port", "0",
                   "--url", f"http://127.0.0.1:{router.port}"]
        with subprocess.Popen(command, env=os.environ | env, **pipes) as process:
            ready = next(line for line in process.stdout if line.startswith("READY")).split()
            client = openai.OpenAI(base_url=ready[1], api_key="secret", max_retries=0)
            done = client.chat.completions.create(model=ready[-1], messages=ASKED)
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=HANGS_AFTER_S)
    assert (process.returncode, done.mem_agent["answer"], out) == (0, "key", "")
