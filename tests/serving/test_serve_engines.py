"""``serve_engines``: the command that serves a model until it is stopped."""

import json
import socket
import subprocess
import sys
import urllib.request

import psutil

from mem_agent.config import Config
from mem_agent.serving import serve_engines
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.stub_fleet import STUB, model, stubs
from mem_agent.tests.system.test_processes import group_members

__all__ = ["model", "stubs"]


def test_serve_announces_its_url_and_stops_cleanly_on_sigterm(stubs, model, tmp_path):
    config = Config(save_path=str(tmp_path / "run")).model_dump()
    code = (
        "import sys; from mem_agent.config import Config; from mem_agent.serving import serve_engines, servers\n"
        f"servers.engine_command = lambda c, m, port, d, i: [sys.executable, {str(STUB)!r}, str(port), "
        f"{str(stubs.journal)!r}, 'child']\n"
        f"Config.from_env = classmethod(lambda cls, *_, **__: cls(**{config!r}))\n"
        f"sys.exit(serve_engines.main(['--model', {str(model)!r}]))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        ready = serving.stdout.readline().split()
        assert ready[0] == "READY"
        with urllib.request.urlopen(ready[1] + "/list_workers") as reply:
            assert len(json.load(reply)["urls"]) == 1
        children = [child.pid for child in psutil.Process(serving.pid).children()]
        assert len(children) == 2
        serving.terminate()
        assert serving.wait(HANGS_AFTER_S) == 0
    wait_for(lambda: all(group_members(g) == [] for g in children))


def test_a_bad_model_folder_or_port_is_one_line(model, tmp_path, capsys):
    assert serve_engines.main(["--model", str(tmp_path)]) == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve_engines.main(["--model", str(model), "--port", str(port)]) == 2
    first, *_, last = capsys.readouterr().err.splitlines()
    assert "no config.json" in first and f"port {port} " in last
