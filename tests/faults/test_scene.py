"""Which processes belong to a drill: those of a group that a guard of it leads or led, and of no later one."""

import os
import signal
import subprocess

import psutil
import pytest

from mem_agent.tests.faults.scene import Scene

TWO = ["sh", "-c", "sleep 600 & echo; read _"]


@pytest.fixture
def leader():
    """Of a group of two, which do not carry the mark of a drill."""
    process = subprocess.Popen(TWO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == b"\n"
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def found(scene, group):
    return sum(os.getpgid(process.pid) == group for process in scene.processes())


def test_the_group_of_a_guard_is_of_the_run_while_it_lives_and_when_it_has_died(tmp_path, leader):
    scene = Scene(tmp_path, None, {leader.pid: psutil.Process(leader.pid).create_time()})
    assert found(scene, leader.pid) == 2
    leader.kill()
    leader.wait()
    assert found(scene, leader.pid) == 1


def test_a_group_that_got_the_number_of_an_earlier_guard_is_not_of_the_run(tmp_path, leader):
    scene = Scene(tmp_path, None, {leader.pid: psutil.Process(leader.pid).create_time() - 100})
    assert found(scene, leader.pid) == 0
