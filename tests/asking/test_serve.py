"""Where `mem-agent serve` listens, for whom, and what ends it before engines start."""

import socket

import pytest

from mem_agent.asking.serve import bound_socket, main, read_keys
from mem_agent.config import ConfigError


def test_keys_come_from_a_file_or_the_environment(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one\n\n two \n")
    assert read_keys(file, {"MEM_AGENT_API_KEY": "three"}) == ("one", "two")
    assert read_keys(None, {"MEM_AGENT_API_KEY": " three "}) == ("three",)
    assert read_keys(None, {}) == ()
    file.write_text("\n")
    with pytest.raises(ConfigError, match="--api-key-file"):
        read_keys(file, {})


@pytest.mark.parametrize("words", [
    ["--port", "65536"], ["--concurrency", "0"],
])
def test_bad_options_are_usage_errors(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["MODEL", *words])
    assert ended.value.code == 2 and words[0] in capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "model.example"])
def test_other_machines_need_a_key(host, capsys, monkeypatch):
    monkeypatch.delenv("MEM_AGENT_API_KEY", raising=False)
    assert main(["/no/model", "--host", host]) == 2
    assert "MEM_AGENT_API_KEY" in capsys.readouterr().err


def test_a_port_that_is_taken_is_said_before_a_model_is_looked_at(capsys, silent_port):
    with socket.create_server(("127.0.0.1", silent_port)):
        assert main(["/no/model", "--port", str(silent_port)]) == 2
    assert f"--port {silent_port}" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"--host no\.such\.machine\.invalid"):
        bound_socket("no.such.machine.invalid", 0)
