"""The store of vectors and token counts: nothing twice, killed anywhere, never mixed."""

import os
import signal

import numpy as np
import pytest

from mem_agent.memsifter.stores.record_store import RecordStore, StoreRefused, key_of

KEYS = [key_of(f"text {number}") for number in range(40)]
VALUES = np.arange(120, dtype=np.float32).reshape(40, 3)


def store(folder, fingerprint="model-1", width=None):
    return RecordStore(folder, fingerprint, "float32", width)


def test_values_come_back_and_are_kept_once(tmp_path):
    first = store(tmp_path)
    assert first.missing(KEYS[:3]) == [0, 1, 2]
    first.add(KEYS[:3], VALUES[:3])
    first.add([KEYS[3], KEYS[0], KEYS[3]], VALUES[[3, 7, 3]])
    again = store(tmp_path)
    for one in (first, again):
        found, there = one.find(KEYS[:5])
        assert there.tolist() == [True] * 4 + [False] and len(one) == 4
        assert np.array_equal(found[:4], VALUES[:4]) and not found[4].any()
    assert store(tmp_path).find([])[0].shape == (0, 3)


def test_two_processes_add_to_one_store(tmp_path):
    one, other = store(tmp_path), store(tmp_path)
    one.add(KEYS[:10], VALUES[:10])
    other.add(KEYS[5:20], VALUES[5:20])
    one.add(KEYS[15:40], VALUES[15:40])
    found, there = store(tmp_path).find(KEYS)
    assert there.all() and np.array_equal(found, VALUES) and len(store(tmp_path)) == 40


def test_killed_while_it_writes_it_has_what_was_written(tmp_path):
    store(tmp_path).add(KEYS[:10], VALUES[:10])
    child = os.fork()
    if child == 0:
        half = store(tmp_path)
        half.add(KEYS[10:20], VALUES[10:20])
        half._base.execute("INSERT INTO vectors VALUES (?, ?)", (KEYS[20], VALUES[20].tobytes()))
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    after = store(tmp_path)
    missing = after.missing(KEYS)
    assert missing == list(range(20, 40))
    after.add([KEYS[n] for n in missing], VALUES[missing])
    assert np.array_equal(store(tmp_path).find(KEYS)[0], VALUES)


def test_another_model_is_refused(tmp_path):
    store(tmp_path).add(KEYS[:1], VALUES[:1])
    with pytest.raises(StoreRefused, match="model-1"):
        store(tmp_path, "model-2")
    with pytest.raises(StoreRefused, match="3"):
        store(tmp_path).add(KEYS[:1], VALUES[:1, :2])
