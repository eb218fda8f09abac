"""`mem-agent serve`: where it listens, for whom, what ends it before engines start, and a life of it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from mem_agent.asking.serve import listening_socket, main, read_keys
from mem_agent.pocket.task import make_examples
from mem_agent.tests.helpers.patience import HANGS_AFTER_S


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


# --- on real engines ------------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]


@pytest.mark.servers
def test_the_pocket_model_is_served(tmp_path):
    command = [sys.executable, "-m", "mem_agent", "serve", str(ROOT / "pocket" / "start"), "--port", "0"]
    env = os.environ | {"RECIPE": str(ROOT / "recipes" / "pocket.env")}
    with subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        url = process.stdout.readline().decode().split()[1]
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
        (example,) = make_examples(seed=7, count=1, chunks=3)
        question = {"role": "user", "content": f"{example.context}\n\nQuestion: {example.question}"}
        ask = {"model": "start", "temperature": 0, "messages": [question]}
        whole = client.chat.completions.create(stop=["zzz"], **ask)
        chunks = list(client.chat.completions.create(stream=True, **ask))
        assert whole.choices[0].message.content == "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_AFTER_S) == 0


def test_an_answer_is_sent_without_waiting_for_the_clients_acknowledgement() -> None:
    with listening_socket("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        assert listening.accept()[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
