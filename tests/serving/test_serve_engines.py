"""``serve_engines``: the command that serves a model until it is stopped."""

import asyncio
import dataclasses
import errno
import json
import os
import socket
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from mem_agent.config import Config
from mem_agent.serving import fleet, serve_engines
from mem_agent.system.atomic_file import NotAFile
from mem_agent.system.ports import hold_ports
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for
from mem_agent.tests.helpers.stub_fleet import STUB, make_fleet, model, stubs
from mem_agent.tests.system.test_processes import group_members

__all__ = ["model", "stubs"]


def test_serve_announces_its_url_and_stops_cleanly_on_sigterm(stubs, model, tmp_path):
    config = dataclasses.asdict(Config(engine_start_timeout=HANGS_AFTER_S, save_path=str(tmp_path / "run")))
    code = (
        "import sys; from mem_agent.config import Config; from mem_agent.serving import engine, serve_engines\n"
        f"engine.engine_command = lambda c, m, port, d, i: [sys.executable, {str(STUB)!r}, str(port), "
        f"{str(stubs.journal)!r}, 'child']\n"
        f"Config.from_env = classmethod(lambda cls, *_, **__: cls(**{config!r}))\n"
        f"sys.exit(serve_engines.main(['--model', {str(model)!r}, '--url-file', {str(tmp_path / 'url')!r}]))"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        ready = serving.stdout.readline().split()
        assert ready[0] == "READY" and (tmp_path / "url").read_text().strip() == ready[1]
        with urllib.request.urlopen(ready[1] + "/list_workers") as reply:
            assert len(json.load(reply)["urls"]) == 1
        children = [int(s.parent.name) for s in Path("/proc").glob("[0-9]*/status")
                    if f"PPid:\t{serving.pid}\n" in _read(s)]
        assert len(children) == 2
        serving.terminate()
        assert serving.wait(HANGS_AFTER_S) == 0
    wait_for(lambda: all(group_members(g) == [] for g in children))
    assert not (tmp_path / "url").exists()


def _read(status: Path) -> str:
    try:
        return status.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_serve_refuses_a_bad_model_folder_with_one_line(tmp_path, capsys):
    assert serve_engines.main(["--model", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "no config.json" in message


def test_serve_refuses_a_port_that_is_in_use_or_about_to_be(model, tmp_path, capsys):
    url = tmp_path / "url"
    url.write_text("of the run that has the port")
    [held] = hold_ports(1)
    with closing(held), socket.create_server(("127.0.0.1", 0)) as taken:
        for port in (taken.getsockname()[1], held.number):
            assert serve_engines.main(["--model", str(model), "--port", str(port), "--url-file", str(url)]) == 2
            told = capsys.readouterr().err
            assert told.splitlines()[-1] == f"error: port {port} on 127.0.0.1 is in use; choose another one or none"
    assert url.read_text() == "of the run that has the port"


def test_serve_refuses_a_port_that_only_root_may_have(model, capsys, monkeypatch):
    def refused(port):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(fleet, "hold_port", refused)
    assert serve_engines.main(["--model", str(model), "--port", "80"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: port 80 on 127.0.0.1: Permission denied; choose another one or none"
    )


@pytest.mark.asyncio
async def test_a_url_file_that_is_no_file_stays(stubs, model, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotAFile, match="pipe: is no regular file and stays as it is"):
        await serve_engines._serve(make_fleet(model), tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.asyncio
async def test_a_url_file_that_a_second_command_has_written_since_is_its_own(tmp_path):
    class Served:
        """A fleet of no engines."""

        def __init__(self, url):
            self.url = url

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            pass

    url_file, serving = tmp_path / "url", []
    for url in ("http://127.0.0.1:1", "http://127.0.0.1:2"):
        serving.append(asyncio.create_task(serve_engines._serve(Served(url), url_file)))
        while not url_file.is_file() or url_file.read_text() != f"{url}\n":
            await asyncio.sleep(0)
    first, second = serving
    for task, left in ((first, True), (second, False)):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert url_file.exists() is left
