"""Ports of servers that are about to start: nobody else is given them meanwhile."""

import os
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from mem_agent.system import ports as module
from mem_agent.system.ports import NoPort, free_ports, hold_port, hold_ports, listening_users


@pytest.fixture
def held():
    [port] = hold_ports(1)
    with closing(port):
        yield port


@pytest.fixture
def only_that(monkeypatch, held):
    monkeypatch.setattr(module, "PORTS", range(held.number, held.number + 1))


def test_ports_differ_and_those_to_avoid_are_left_out(monkeypatch):
    ports = free_ports(5)
    assert len(set(ports)) == 5
    monkeypatch.setattr(module, "PORTS", range(ports[0], ports[0] + 1))
    with pytest.raises(NoPort, match=f"fewer than 1 free ports between {ports[0]}"):
        hold_ports(1, avoid=ports)


def test_a_port_that_is_held_is_given_to_nobody_else_before_it_is_let_go(held, only_that):
    with pytest.raises(NoPort):
        free_ports(1)
    held.close()
    assert len(free_ports(1)) == 1


def test_who_looks_for_a_free_port_passes_over_one_that_is_held(held):
    with socket.socket() as sock, pytest.raises(OSError, match="in use"):
        sock.bind(("127.0.0.1", held.number))


def test_none_are_held_where_none_are_wanted():
    assert hold_ports(0) == []


def test_a_server_listens_on_the_port_that_is_held_for_it_and_after_it_another_one(held, only_that):
    for _ in range(2):
        with socket.create_server(("127.0.0.1", held.number)) as server:  # says SO_REUSEADDR, as servers do
            with socket.create_connection(("127.0.0.1", held.number)):
                server.accept()[0].close()
            with pytest.raises(NoPort):
                free_ports(1)
    with pytest.raises(NoPort):
        free_ports(1)


def test_a_named_port_is_refused_while_somebody_holds_it_or_listens_there(held):
    assert hold_port(held.number) is None
    held.close()
    with socket.create_server(("127.0.0.1", held.number)):
        assert hold_port(held.number) is None
    first = hold_port(held.number)
    assert first is not None and hold_port(held.number) is None
    first.close()


def test_a_named_port_is_free_though_connections_to_its_last_server_linger(held):
    held.close()
    with socket.create_server(("127.0.0.1", held.number)) as server:
        with socket.create_connection(server.getsockname()) as client:
            server.accept()[0].close()  # who closes first lingers
            assert client.recv(1) == b""
    with socket.socket() as sock, pytest.raises(OSError, match="in use"):
        sock.bind(("127.0.0.1", held.number))
    again = hold_port(held.number)
    assert again is not None
    again.close()


def test_too_few_ports_leave_none_of_them_held(monkeypatch):
    ports = free_ports(1)
    monkeypatch.setattr(module, "PORTS", range(ports[0], ports[0] + 1))
    with pytest.raises(NoPort):
        hold_ports(2)
    assert free_ports(1) == ports


def test_a_child_does_not_keep_a_port(held, only_that):
    command = [sys.executable, "-c", "print('runs', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False) as child:
        assert child.stdout.readline() == b"runs\n"  # a parent goes on before the system has closed the child's copies
        held.close()
        assert len(free_ports(1)) == 1
        child.stdin.write(b"\n")


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1"])
def test_who_listens_on_a_port_is_known_by_the_system(address, held):
    assert listening_users(held.number) == set()
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, held.number), family=family):
        assert listening_users(held.number) == {os.geteuid()}


@pytest.mark.skipif(os.geteuid() != 0, reason="is another user for a moment")
def test_another_user_who_listens_is_told_apart(held):
    os.seteuid(65534)
    try:
        server = socket.create_server(("127.0.0.1", held.number))
    finally:
        os.seteuid(0)
    with server:
        assert listening_users(held.number) == {65534}


def test_a_system_that_does_not_tell_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_LISTENERS", (tmp_path / "tcp", tmp_path / "tcp6"))
    assert listening_users(1) is None
