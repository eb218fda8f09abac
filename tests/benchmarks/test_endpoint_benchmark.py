"""The endpoint's benchmark where the kernel does not tell how long a thread waited for a core."""

import asyncio
from pathlib import Path

import pytest

from mem_agent.benchmarks import endpoint


@pytest.mark.parametrize(("file", "says"), [
    ("schedstat", "0 ms without the time in which it waited for one of 2 cores"),
    ("absent", "absent tells the time in which it waited for one of 2 cores"),
])
def test_a_kernel_that_does_not_tell_is_a_note(monkeypatch, tmp_path, file, says):
    (tmp_path / "schedstat").write_text("12000000 3000000 7")
    monkeypatch.setattr(endpoint, "_WAITED", tmp_path / file)
    monkeypatch.setattr(endpoint, "_SLEEP", 1e-9)

    async def away_once():
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, done.set)
        return await endpoint.away(done)

    found = asyncio.run(away_once())
    assert found.clock > 0
    said = endpoint.said_of([endpoint.Away(found.cpu, found.clock, 0 * found.running)], 2)
    assert says in said and said.endswith("clients and stub beside it")


def test_the_kernels_own_figure_is_milliseconds(monkeypatch, tmp_path):
    monkeypatch.setattr(endpoint, "_WAITED", Path(tmp_path / "schedstat"))
    (tmp_path / "schedstat").write_text("12000000 3000000 7")
    assert endpoint.waited_for_a_core() == 3.0
