"""What holds for every test, and in the processes that tests start.

They import the mem_agent of this checkout, whatever its folder is called and wherever the environment's own mem_agent
lies, and scripts use the environment that the tests run in.

One OpenMP thread for every test process: several spinning ones on a small machine cost more than they give. Ray's
workers have the priority of other processes: with Ray's own, the lowest but four, a busy machine never comes to them.

No deadline for property tests either: how long an example takes on a busy machine says nothing about the code.
"""

import atexit
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings


def show_checkout() -> None:
    """Put a folder with a link `mem_agent` to this checkout first on the path; once for all workers of xdist."""
    checkout = Path(__file__).parents[1]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if not (os.path.isabs(paths[0]) and os.path.realpath(f"{paths[0]}/mem_agent") == os.path.realpath(checkout)):
        shown = tempfile.TemporaryDirectory(prefix="mem-agent-")
        atexit.register(shown.cleanup)
        Path(shown.name, "mem_agent").symlink_to(checkout)
        paths.insert(0, shown.name)
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    sys.path.insert(0, paths[0])


show_checkout()
os.environ |= {"VENV": sys.prefix, "INSTALL_VENV": "0"}  # scripts take it as it is
os.environ.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", GOMP_SPINCOUNT="0", TORCHDYNAMO_DISABLE="1",
                  RAY_worker_niceness="0")

# Run by test_hosts.py in a process inside the host; elsewhere its imports are not there.
collect_ignore = [] if "INSIDE_HOST" in os.environ else ["inside_host"]

settings.register_profile("pack", deadline=None)
settings.load_profile("pack")


HOSTS = ("SLIME_ROOT", "VIME_ROOT", "MEGATRON_ROOT", "REHEARSAL_PYTHON", "SGLANG_PYTHON", "MEMAGENT_ROOT",
         "REMEMR1_ROOT", "RULER_ROOT")
"""Variables that name what some tests need; the reason of such a skip names one."""


def pytest_addoption(parser):
    parser.addoption("--require-hosts", action="store_true", help=f"fail where a test skips for want of {HOSTS}")


def pytest_collection_modifyitems(items):
    """The longest first: else the other workers are done when one begins it."""
    items.sort(key=lambda item: "test_drill" not in item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.skipped and item.config.getoption("require_hosts") and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if any(name in reason for name in HOSTS):
            report.outcome, report.longrepr = "failed", f"--require-hosts: {reason}"
    return report


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A loopback port at which nobody listens, but servers of the test that name it, one after the other.

    It is bound while the test runs: the kernel gives it to no socket that wants any port. It never listens and lets
    others share its address, as servers do that start again.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture(autouse=True)
def _no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that a test injects fails at once; tests of retries set their own number."""
    monkeypatch.setattr("mem_agent.rollout_client.RETRIES", 0)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer and the length of its model, without weights."""
    from mem_agent.tests.helpers.evaluations import make_model  # the libraries take seconds

    return make_model(tmp_path_factory.mktemp("model"), positions=4096)
