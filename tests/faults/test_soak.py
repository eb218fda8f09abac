"""What a soak measures of a process is its own memory, and of a role those processes alone that have it."""

import mmap
import os

import psutil
import pytest

from mem_agent.tests.faults.soak import MB, memory, role_of

GUARDED = "python -I -S /pack/system/guard.py 7 -- "
ENGINE = "python -P -m mem_agent.serving.engine_server --model m"


def test_memory_is_what_was_allocated_and_no_pages_of_files(tmp_path):
    before = memory(psutil.Process())
    (tmp_path / "library").write_bytes(bytes(64 * MB))
    with (tmp_path / "library").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as library:
        assert sum(library[at] for at in range(0, len(library), mmap.PAGESIZE)) == 0
        assert memory(psutil.Process()) - before < 16 * MB
        own = bytearray(os.urandom(64 * MB))
        assert memory(psutil.Process()) - before >= 64 * MB - 16 * MB, len(own)


@pytest.mark.parametrize("line,parent,role", [
    (ENGINE, GUARDED + ENGINE, "engine"),
    (ENGINE, ENGINE, "engine core"),
    ("VLLM::EngineCore", ENGINE, "engine core"),
    (GUARDED + ENGINE, "python -m mem_agent.tests.faults.observed_train", "guard"),
    ("python -m vllm_router.launch_router --port 1", GUARDED, "router"),
    ("vllm::router", GUARDED + "python -m vllm_router.launch_router", "router"),
    ("python -m mem_agent.tests.faults.observed_train", "python", "trainer"),
    ("compiler --fast", ENGINE, "compiler"),
])
def test_each_process_counts_for_the_role_that_it_has(line, parent, role):
    assert role_of(line, parent) == role
