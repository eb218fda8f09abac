"""Which processes belong to a drill: those of a group that a guard of it leads or led, and of no later one.

Which of an API server's children are engines.
"""

import os
import signal
import subprocess

import psutil
import pytest

from mem_agent.tests.faults.moments import MARK
from mem_agent.tests.faults.scene import ENGINE, ENGINE_CORE, Scene, scene
from mem_agent.tests.helpers.patience import wait_for

TWO = ["sh", "-c", "sleep 600 & echo; read _"]


@pytest.fixture
def leader():
    """Of a group of two, which do not carry the mark of a drill."""
    process = subprocess.Popen(TWO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout.readline() == b"\n"
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def found(place, group):
    return sum(os.getpgid(process.pid) == group for process in place.processes())


def test_the_group_of_a_guard_is_of_the_run_while_it_lives_and_when_it_has_died(tmp_path, leader):
    place = Scene(tmp_path, None, {leader.pid: psutil.Process(leader.pid).create_time()})
    assert found(place, leader.pid) == 2
    leader.kill()
    leader.wait()
    assert found(place, leader.pid) == 1


def test_a_group_that_got_the_number_of_an_earlier_guard_is_not_of_the_run(tmp_path, leader):
    place = Scene(tmp_path, None, {leader.pid: psutil.Process(leader.pid).create_time() - 100})
    assert found(place, leader.pid) == 0


def test_who_has_ended_since_they_were_seen_is_none_of_those_named_or_guarded(tmp_path, leader, monkeypatch):
    place = Scene(tmp_path, None, {leader.pid: psutil.Process(leader.pid).create_time()})
    seen = place.processes()
    gone = subprocess.Popen(["sleep", "600"])
    seen.append(psutil.Process(gone.pid))
    gone.kill()
    gone.wait()
    monkeypatch.setattr(place, "processes", lambda: seen)
    assert leader.pid in (named := {process.pid for process in place.named("sleep")}) and gone.pid not in named
    monkeypatch.setattr(place, "guards", lambda what: seen)
    assert {child.pid for child in place.servers("")} == {child.pid for child in psutil.Process(leader.pid).children()}


def test_a_scene_ends_with_what_is_left_of_its_run_though_nobody_reaps_it():
    with scene(disks=False) as place:
        command = ["sh", "-c", 'env "$0" sleep 600 & echo $!; read _', f"{MARK}={place.mark}"]
        parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        left = int(parent.stdout.readline())
        wait_for(place.processes)
    assert psutil.Process(left).status() == psutil.STATUS_ZOMBIE and not place.folder.exists()
    parent.communicate()


def test_an_engine_core_is_a_fork_of_its_server_or_has_its_title_and_no_program_that_the_server_runs(tmp_path):
    core = "(sleep 600; :) & echo $!"
    titled = f"sh -c 'sleep 600; :' {ENGINE_CORE}_DP0 & echo $!"
    command = ["sh", "-c", f"sleep 600 & {core}; {titled}; echo; read _", ENGINE]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        cores = {int(server.stdout.readline()) for _ in range(2)}
        place = Scene(tmp_path, None, {})
        # a program that is about to replace the fork that runs it looks like one
        wait_for(lambda: {found.pid for found in place.engine_cores(psutil.Process(server.pid))} == cores)
        assert len(psutil.Process(server.pid).children()) == 3
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.communicate()
