"""`mem-agent serve` as a process, in front of a router that plays a script."""

import signal
import subprocess
import sys

from mem_agent.tests.helpers.asking import model_folder, reply
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside

__all__ = ["model_folder"]


def test_it_ends_on_request_and_says_nothing(model_folder, tmp_path):
    router = FakeRouter(default=reply("x"), models=({"id": "served", "max_model_len": 8192},))
    with running_beside(router):
        command = [sys.executable, "-m", "mem_agent", "serve", model_folder, "--port", "0", "--url",
                   f"http://127.0.0.1:{router.port}"]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            assert process.stdout is not None and process.stdout.readline().startswith("READY http://127.0.0.1:")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate()
    assert (process.returncode, out, err) == (0, "", "")
