"""What a soak measures of a process is its own memory, and not what it shares with whoever else is there."""

import mmap
import os

import psutil

from mem_agent.tests.faults.soak import MB, memory


def test_memory_is_what_was_allocated_and_no_pages_of_files(tmp_path):
    before = memory(psutil.Process())
    (tmp_path / "library").write_bytes(bytes(64 * MB))
    with (tmp_path / "library").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as library:
        assert sum(library[at] for at in range(0, len(library), mmap.PAGESIZE)) == 0
        assert memory(psutil.Process()) - before < 16 * MB
        own = bytearray(os.urandom(64 * MB))
        assert memory(psutil.Process()) - before >= 64 * MB - 16 * MB, len(own)
