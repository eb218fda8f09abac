"""The store of vectors and token counts: nothing twice, killed anywhere, damaged anywhere, never mixed."""

import json
import os
import signal
import zlib

import numpy as np
import pytest

from mem_agent.sifter.stores import record_store
from mem_agent.sifter.stores.record_store import RecordStore, StoreRefused, key_of
from mem_agent.system.atomic_file import NotAFile

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


@pytest.mark.parametrize("name", ["keys.bin", "values.bin"])
def test_a_store_whose_file_has_other_names_is_not_added_to(tmp_path, name):
    """What cuts half a value off would empty a file of the user's."""
    store(tmp_path).add(KEYS[:2], VALUES[:2])
    (tmp_path / name).unlink()
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / name).hardlink_to(tmp_path / "mine")
    with pytest.raises(NotAFile, match=rf"{name}: has other names"):
        store(tmp_path).add(KEYS[2:3], VALUES[2:3])
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_two_processes_add_to_one_store(tmp_path):
    one, other = store(tmp_path), store(tmp_path)
    one.add(KEYS[:10], VALUES[:10])
    other.add(KEYS[5:20], VALUES[5:20])
    one.add(KEYS[15:40], VALUES[15:40])
    found, there = store(tmp_path).find(KEYS)
    assert there.all() and np.array_equal(found, VALUES) and len(store(tmp_path)) == 40


@pytest.mark.parametrize("fsync", [1, 2, 3, 4])
def test_killed_while_it_writes_it_has_what_was_written(tmp_path, monkeypatch, fsync):
    store(tmp_path).add(KEYS[:10], VALUES[:10])
    child = os.fork()
    if child == 0:
        calls = iter(range(1, 100))
        monkeypatch.setattr(os, "fsync", lambda file: os.kill(os.getpid(), signal.SIGKILL)
                            if next(calls) == fsync else None)
        half = store(tmp_path)
        half.add(KEYS[10:20], VALUES[10:20])
        half.add(KEYS[20:30], VALUES[20:30])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    after = store(tmp_path)
    missing = after.missing(KEYS)
    assert missing == list(range({1: 10, 2: 20, 3: 20, 4: 30}[fsync], 40))
    after.add([KEYS[n] for n in missing], VALUES[missing])
    assert np.array_equal(store(tmp_path).find(KEYS)[0], VALUES)
    assert (tmp_path / "values.bin").stat().st_size == VALUES.nbytes


def test_a_torn_or_damaged_record_is_made_again_and_the_others_stay(tmp_path):
    store(tmp_path).add(KEYS[:10], VALUES[:10])
    with (tmp_path / "values.bin").open("r+b") as file:
        file.seek(4 * 12 + 1)
        file.write(b"\xff")
        file.truncate(9 * 12 + 5)
    damaged = store(tmp_path)
    assert damaged.missing(KEYS[:10]) == [4, 9]
    damaged.add([KEYS[4], KEYS[9]], VALUES[[4, 9]])
    for one in (damaged, store(tmp_path)):
        assert np.array_equal(one.find(KEYS[:10])[0], VALUES[:10])


def test_another_model_is_refused(tmp_path):
    store(tmp_path).add(KEYS[:1], VALUES[:1])
    with pytest.raises(StoreRefused, match="holds float32 values of 3 of model-1, not float32 of 3 of model-2; name"):
        store(tmp_path, "model-2")
    with pytest.raises(StoreRefused, match="holds values of 3, not of 2"):
        store(tmp_path).add(KEYS[:1], VALUES[:1, :2])


@pytest.mark.parametrize("about", [None, b"{"])
@pytest.mark.parametrize("width", [3, None])
def test_a_lost_or_damaged_about_is_written_again(tmp_path, about, width, capsys):
    store(tmp_path).add(KEYS[:10], VALUES[:10])
    before = (tmp_path / "about.json").read_bytes()
    (tmp_path / "about.json").unlink() if about is None else (tmp_path / "about.json").write_bytes(about)
    with (tmp_path / "values.bin").open("r+b") as file:
        file.write(b"\xff")  # one value is damaged, and a kill left two without keys
        file.seek(0, os.SEEK_END)
        file.write(bytes(24))
    again = store(tmp_path, width=width)
    assert again.missing(KEYS[:11]) == [0, 10]
    again.add(KEYS[:11], VALUES[:11])
    assert (tmp_path / "about.json").read_bytes() == before
    assert np.array_equal(store(tmp_path).find(KEYS[:11])[0], VALUES[:11])


def test_no_length_is_tried_beyond_that_of_any_embedding(tmp_path, monkeypatch):
    summed = []
    monkeypatch.setattr(record_store.zlib, "crc32", lambda content, crc=zlib.crc32: summed.append(len(content)) or 1)
    sums = []
    for length in (2**20, 2**22):
        (tmp_path / "keys.bin").write_bytes(bytes(20))
        (tmp_path / "values.bin").write_bytes(bytes(length))
        with pytest.raises(StoreRefused, match="the values do not fit their keys"):
            store(tmp_path)
        sums.append(sum(summed))
        summed.clear()
    assert sums[0] == sums[1] > 0


def test_a_damaged_about_stays_until_it_is_replaced_under_the_lock(tmp_path):
    """Another process may have mended it since it was read."""
    store(tmp_path).add(KEYS[:10], VALUES[:10])
    about = tmp_path / "about.json"
    good = about.read_bytes()
    about.write_bytes(b"{")
    late = store(tmp_path)
    assert about.read_bytes() == b"{"
    late.add(KEYS[10:12], VALUES[10:12])
    assert about.read_bytes() == good


@pytest.mark.parametrize("width", [0, -1, 1e999, 2.5, "3", [[]], None])
def test_an_about_with_no_length_is_a_damaged_one(tmp_path, width):
    store(tmp_path).add(KEYS[:1], VALUES[:1])
    about = json.loads((tmp_path / "about.json").read_bytes())
    (tmp_path / "about.json").write_text(json.dumps(about | {"width": width}))
    assert store(tmp_path).missing(KEYS[:1]) == []


def test_values_that_no_length_fits_are_refused_in_a_line(tmp_path):
    store(tmp_path).add(KEYS[:10], VALUES[:10])
    (tmp_path / "about.json").unlink()
    (tmp_path / "values.bin").write_bytes(bytes(120))
    with pytest.raises(StoreRefused, match=r"about\.json is lost or damaged, and the values do not fit their keys"):
        store(tmp_path)


def test_a_store_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match=r"file/store: cannot be written \(Not a directory\); name another folder"):
        store(tmp_path / "file" / "store").add(KEYS[:1], VALUES[:1])
