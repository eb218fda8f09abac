"""Weights that torch wrote for a model are read, in the form of before 2020 as well; nothing else reaches torch."""

import io
import os
import pickle
import struct
import tarfile
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from mem_agent.checkpoints.hf_model import check_weights_of_torch, with_local_models
from mem_agent.config import Config
from mem_agent.evaluation.retrieval import retriever_for
from mem_agent.hooks.intrinsic import encoder_folder
from mem_agent.system.errors import ConfigError
from mem_agent.tests.helpers.attack import Attack

MAGIC = 0x1950A86A20F9469CFC6C
NAME = "pytorch_model.bin"


def network():
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.LSTM(4, 2))


GOOD = {
    "a state": lambda: network().state_dict(), "parameters": lambda: dict(network().named_parameters()),
    "half": lambda: network().half().state_dict(), "bfloat16": lambda: network().bfloat16().state_dict(),
    "shared": lambda: OrderedDict(a=(one := torch.ones(4, 4)), b=one, c=one[1:], d=torch.arange(3)),
    "nothing": lambda: {"a": torch.empty(0)}, "positions": lambda: {"a": torch.arange(9).expand((1, -1))},
    "layers that are one": lambda: {str(n): one for n, one in enumerate(torch.ones(64, 64).expand(60, 64, 64))},
}


@pytest.mark.parametrize("make", GOOD.values(), ids=GOOD)
@pytest.mark.parametrize("zipped", [True, False])
def test_what_torch_wrote_is_taken(tmp_path, make, zipped):
    torch.save(make(), tmp_path / NAME, _use_new_zipfile_serialization=zipped)
    check_weights_of_torch(tmp_path)


class _Named:
    def __init__(self, *pid):
        self.pid = pid


class _Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.pid if isinstance(value, _Named) else None


class _Tensor:
    def __init__(self, storage):
        self.storage = storage

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, (self.storage, 0, (2,), (1,), False, OrderedDict())


def in_zip(code):
    """A pickle in the place of torch's own."""
    first, out = io.BytesIO(), io.BytesIO()
    torch.save({}, first)
    with zipfile.ZipFile(first) as held, zipfile.ZipFile(out, "w") as file:
        for name in held.namelist():
            file.writestr(name, code if name.endswith("data.pkl") else held.read(name))
    return out.getvalue()


def before_zips(code, keys=(), numbers=b""):
    parts = (MAGIC, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}})
    return b"".join(pickle.dumps(part, 2) for part in parts) + code + pickle.dumps(list(keys), 2) + numbers


def tensor(entries=2, view=None, kind=torch.FloatStorage):
    out = io.BytesIO()
    _Pickler(out, 2).dump({"a": _Tensor(_Named("storage", kind, "0", "cpu", entries, view))})
    return out.getvalue()


def spread(zipped):
    out = io.BytesIO()
    torch.save({"a": torch.ones(1).expand(10**12)}, out, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


def also_tar():
    """A file of the old form that Python takes for a tar: its version is a text of two blocks, the first a header."""
    magic, padding = pickle.dumps(MAGIC, 2), 2 * tarfile.BLOCKSIZE
    header = tarfile.TarInfo("n" * 100)
    header.size, header.type = 1, tarfile.XHDTYPE
    block = bytearray(header.tobuf(tarfile.USTAR_FORMAT))
    start = magic + b"B" + struct.pack("<I", padding - len(magic) - 5)
    block[: len(start)] = start
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    parts = pickle.dumps({}, 2), pickle.dumps({}, 2), pickle.dumps([], 2)
    return bytes(block) + b"1".ljust(tarfile.BLOCKSIZE, b"\0") + b"." + b"".join(parts)


STORED = struct.pack("<q2f", 2, 1.0, 2.0)
PAIRS = b"".join(b"q\x00h\x00\x86" for _ in range(200))
DICT = b"\x80\x02ccollections\nOrderedDict\n)R"
CODES = {
    "a key that takes for ever to hash": b"\x80\x02})" + PAIRS + b"K\x01s.",
    "memory": b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
    "a text that is not there": b"\x80\x02X\xff\xff\xff\xff.",
    "a program": pickle.dumps(Attack(Path("x")), 2),
    "a state of a dict": DICT + b"}X\x03\x00\x00\x00getK\x01sb.",
    "versions that are none": DICT + b"}X\x09\x00\x00\x00_metadata}X\x01\x00\x00\x00aK\x01ssb.",
}
BAD = {
    **{f"{name}, {form.__name__}": form(code) for name, code in CODES.items() for form in (in_zip, before_zips)},
    "nothing": b"", "a text": b"weights", "another pickle": pickle.dumps({}, 2), "a zip": b"PK\3\4",
    "no numbers": before_zips(tensor(), ["0"]), "cut": before_zips(tensor(), ["0"], STORED[:-1]),
    "long": before_zips(tensor(2**40), ["0"], STORED), "less than none": before_zips(tensor(-(2**40)), ["0"], STORED),
    "a part": before_zips(tensor(view=("1", 0, 2)), ["0"], STORED), "others": before_zips(tensor(), ["1"], STORED),
    "also a tar": also_tar(), "terabytes of one number": spread(True), "the same, before zips": spread(False),
    "twice": before_zips(tensor(), ["0", "0"], STORED), "short": before_zips(tensor(1), ["0"], STORED),
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_what_torch_did_not_write_is_one_line(tmp_path, content):
    (tmp_path / NAME).write_bytes(before_zips(tensor(), ["0"], STORED))
    check_weights_of_torch(tmp_path)
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{NAME}: (is no file of weights that torch|asks for '.*', which)") as told:
        check_weights_of_torch(tmp_path)
    assert "\n" not in str(told.value)


def test_what_is_no_file_is_not_waited_for(tmp_path):
    """Which no library takes for weights."""
    os.mkfifo(tmp_path / NAME)
    (tmp_path / "pytorch_model-1.bin").mkdir()
    check_weights_of_torch(tmp_path)


@pytest.mark.parametrize("place", [NAME, f"2_Dense/{NAME}", "pytorch_model-00001-of-00002.bin"])
@pytest.mark.parametrize("read", [
    lambda folder: encoder_folder(str(folder)),
    lambda folder: retriever_for(Config(eval_retriever="embedding", eval_embedding=str(folder))),
    lambda folder: with_local_models(Config(agent="rememr1", mem_recall="embedding", mem_recall_model=str(folder))),
], ids=["intrinsic", "evaluation", "recall"])
def test_whoever_reads_a_model_looks_at_its_weights_first(tmp_path, read, place):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_bytes(in_zip(CODES["memory"]))
    with pytest.raises(ConfigError, match=rf"{place}: "):
        read(tmp_path)
