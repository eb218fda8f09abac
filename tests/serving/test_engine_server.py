"""The server whose engine is forked: what it changes of vLLM, and what it refuses."""

import os
import subprocess
import sys

from mem_agent.serving.engine import engine_environment

CODE = """
import multiprocessing
from mem_agent.serving.engine_server import fork_engines
fork_engines()
from vllm.v1.engine import utils
print(utils.get_mp_context().get_start_method())
"""


def forked(**env: str) -> subprocess.CompletedProcess:
    env = engine_environment(os.environ, "cpu", 0) | env
    return subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True)


def test_vllm_forks_its_engine_whatever_its_cpu_platform_has_set():
    done = forked(VLLM_WORKER_MULTIPROC_METHOD="spawn")
    assert done.stdout.split() == ["fork"], done.stderr[-500:]


def test_an_engine_with_a_team_of_threads_is_not_forked():
    done = forked(OMP_NUM_THREADS="2")
    assert done.returncode == 1 and "OpenMP threads that are gone" in done.stderr
