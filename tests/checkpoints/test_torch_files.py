"""What torch did not write is refused before torch reads it, and what it wrote is read as ever."""

import io
import os
import pickle
import stat
import struct
import subprocess
import sys
import zipfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from mem_agent.checkpoints.bounded_pickle import Refused
from mem_agent.checkpoints.damage import DamagedCheckpoint
from mem_agent.checkpoints.metadata import damage_explained
from mem_agent.checkpoints.tensor_pickle import Settings
from mem_agent.checkpoints.torch_dist import ModelTensors
from mem_agent.checkpoints.torch_files import check_file, check_spread

KEY = "embedding.word_embeddings.weight"


def saved(value: object) -> bytes:
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


NUMBERS, MANY = torch.arange(16.0).reshape(4, 4), torch.arange(25_000.0)


def marked(tensor: torch.Tensor) -> torch.Tensor:
    """As Megatron marks its parameters."""
    tensor.tensor_model_parallel = True  # type: ignore[attr-defined]
    return tensor


GOOD = {
    **{str(dtype): NUMBERS.to(dtype) for dtype in (
        torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool,
        torch.uint16, torch.float8_e4m3fn,
    )},
    "a part of a storage": NUMBERS[1:, ::2], "turned": NUMBERS.T, "spread": NUMBERS[:1].expand(9, 4),
    "nothing": torch.empty(0, 3), "a number": torch.tensor(2.0), "a parameter": torch.nn.Parameter(NUMBERS),
    "a marked tensor": marked(NUMBERS.clone()), "a marked parameter": marked(torch.nn.Parameter(NUMBERS)),
    "two of one storage": [NUMBERS, NUMBERS[1:]], "one in each layer": [NUMBERS.view(4, 4) for _ in range(60)],
    "one number for all": torch.ones(1).expand(1, 1024), "settings": {"args": Namespace(a=1), "b": [None, 2.5, "c"]},
}


@pytest.mark.parametrize("value", GOOD.values(), ids=GOOD)
def test_what_torch_wrote_passes(tmp_path, value):
    (tmp_path / "a").write_bytes(saved(value))
    check_file(tmp_path / "a", {("argparse", "Namespace"): Settings})


def test_what_torch_wrote_before_it_told_the_order_of_bytes_passes(tmp_path):
    (tmp_path / "a").write_bytes(zipped({n: data for n, data in members().items() if n != "archive/byteorder"}))
    check_file(tmp_path / "a", {})


# --- what torch did not write ----------------------------------------------------------------------------------------


def members(value: object = NUMBERS) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(saved(value))) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(content: dict[str, bytes], packed: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in content.items():
            file.writestr(name, data, zipfile.ZIP_DEFLATED if name == packed else zipfile.ZIP_STORED)
    return out.getvalue()


def asking(code: bytes) -> dict[str, bytes]:
    return members() | {"archive/data.pkl": b"\x80\x02" + code + b"."}


def renamed(content: dict[str, bytes], old: str, new: str) -> dict[str, bytes]:
    return {new if name == old else name: data for name, data in content.items()}


PAIRS_ALONE = b")" + b"2\x86" * 20
PAIRS = b"})" + b"".join(b"q%ch%c\x86" % (n, n) for n in range(28)) + b"Ns"
BEFORE_ZIPS = b"".join(pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, None))
OLD_FORMAT = BEFORE_ZIPS + b"\x80\x02" + PAIRS + b"."
PICKLED = members()["archive/data.pkl"]


def stored(old: bytes, new: bytes) -> bytes:
    """The pickle with another number in it."""
    assert PICKLED.count(old) == 1
    return zipped(members() | {"archive/data.pkl": PICKLED.replace(old, new)})


def elsewhere(content: bytes) -> bytes:
    """A second list of members, which the zip64 record in front of the end names: torch goes there."""
    at = struct.pack("<Q", 7)
    return content[:-34] + at + content[-26:]


OTHER_ORDER = b"big" if sys.byteorder == "little" else b"little"
NO_DESCRIPTION = "has parts that describe no tensor"
REFUSED = {
    "pairs of pairs": (zipped(asking(PAIRS)), NO_DESCRIPTION),
    "under a name that only torch finds": (
        zipped(renamed(asking(PAIRS), "archive/data.pkl", "archive/data.PKL")), NO_DESCRIPTION),
    "beside what would pass": (zipped(members() | {"archive/DATA.pkl": PICKLED}), "which torch has not named"),
    "in another folder": (zipped(members() | {"b/data.pkl": PICKLED}), "which torch has not named"),
    "a zip behind the format of before": (OLD_FORMAT + zipped(members()), "is no zip file from its first byte on"),
    "the format of before": (OLD_FORMAT, "is no zip file from its first byte on"),
    "a packed storage": (zipped(members(), packed="archive/data/0"), "unpacks to more than its length"),
    "a packed pickle": (zipped(members(), packed="archive/data.pkl"), "unpacks to more than its length"),
    "of another machine": (zipped(members() | {"archive/byteorder": OTHER_ORDER}), "in the order b'"),
    "of another machine, under a name that only torch finds": (
        zipped(renamed(members() | {"archive/byteorder": OTHER_ORDER}, "archive/byteorder", "archive/ByteOrder")),
        "in the order b'"),
    "of no machine": (zipped(members() | {"archive/byteorder": b""}), "in the order b''"),
    "a second list": (elsewhere(saved(NUMBERS)), "has two lists of what is in it"),
    "something behind it": (saved(NUMBERS) + bytes(30), "does not end as a zip file of torch's"),
    "something before it": (b"PK\3\4" + zipped(members()), "that is not before its end"),
    "something before all that its end names": (b"PK\3\4" + saved(NUMBERS), "has two lists of what is in it"),
    "cut": (saved(NUMBERS)[:10], "is cut"),
    "empty": (b"", "is no zip file from its first byte on"),
    "no pickle": (zipped({"archive/data/0": bytes(64)}), "has no data.pkl"),
    "a storage longer than its member": (stored(b"K\x10tq\x05", b"K\x11tq\x05"), "of another length than is said"),
    "a storage of which nothing is used": (stored(b"K\x10tq\x05", b"K\x00tq\x05"), "of another length than is said"),
    "a storage that is not there": (stored(b"X\1\0\0\x000", b"X\1\0\0\x009"), "9"),
    "one storage under two names": (stored(b"X\1\0\0\x000", b"X\1\0\0\0a"), "a"),
    "a tensor that is longer than its storage": (stored(b"K\4K\4\x86", b"K\4K\5\x86"), "is larger than its storage"),
    "a tensor that begins in its storage": (stored(b"QK\0K\4", b"QK\1K\4"), "is larger than its storage"),
    "a tensor that is spread": (saved(torch.ones(1).expand(10**12)), "much longer than all storages"),
    "tensors of one storage": (saved([MANY.view(-1) for _ in range(100)]), "much longer than all storages"),
    "a wider tensor than its storage": (zipped(asking(
        b"ctorch._utils\n_rebuild_tensor_v3\n((U\7storagectorch\nFloatStorage\nU\0010U\3cpuK\x10tQK\0K\x10\x85K\1\x85\x89}"
        b"ctorch\nfloat64\ntR")), "is larger than its storage"),
    "a storage that is called by pairs of pairs": (zipped(asking(
        b"(U\7storagectorch\nFloatStorage\n" + PAIRS_ALONE + b"U\3cpuK\x10tQ")), "asks for what is no storage"),
    "pairs of pairs in the place of a storage": (zipped(asking(
        b"(" + PAIRS_ALONE + b"ctorch\nFloatStorage\nU\0010U\3cpuK\x10tQ")), "asks for what is no storage"),
    "attributes that are pairs of pairs": (zipped(asking(
        b"ctorch._utils\n_rebuild_parameter_with_state\n(N\x88}" + PAIRS_ALONE + b"tR")), "has a tensor with a state"),
    "a tensor that is told pairs of pairs": (zipped(asking(
        b"ctorch._utils\n_rebuild_tensor_v2\n((U\7storagectorch\nFloatStorage\nU\0010U\3cpuK\x10tQK\0(K\4K\4t(K\4K\1t\x89}}U\1a"
        + PAIRS_ALONE + b"stR")), "has a tensor that is told what torch tells none"),
    "a parameter of pairs of pairs": (zipped(asking(
        b"ctorch._utils\n_rebuild_parameter\n(" + PAIRS_ALONE + b"\x88}tR")), "has a parameter of no tensor"),
    "another size of all numbers": (zipped(asking(b"ctorch\nFloatStorage\n}U\10itemsizeK\0sb")), NO_DESCRIPTION),
    "a tensor with a state": (
        zipped(members() | {"archive/data.pkl": PICKLED[:-1] + b"}b."}), "has a tensor with a state"),
}


@pytest.mark.parametrize(("content", "said"), REFUSED.values(), ids=REFUSED)
def test_what_torch_did_not_write_is_one_line(tmp_path, content, said):
    file = tmp_path / "common.pt"
    file.write_bytes(content)
    with pytest.raises(DamagedCheckpoint) as refused, damage_explained(tmp_path, "common.pt"):
        check_file(file, {})
    assert str(refused.value).startswith(f"{tmp_path}: the checkpoint is damaged: common.pt: ")
    assert said in str(refused.value) and "\n" not in str(refused.value)
    file.write_bytes(saved(NUMBERS))
    check_file(file, {})  # what one file says is of that file


CALLS = {"bytearray": b"cbuiltins\nbytearray\n", "set": b"cbuiltins\nset\n", "float tensor": b"ctorch\nFloatTensor\n",
         "qtensor": b"ctorch._utils\n_rebuild_qtensor\n"}


@pytest.mark.parametrize("named", CALLS.values(), ids=CALLS)
def test_a_call_that_makes_as_much_as_a_number_says_is_refused(tmp_path, named):
    (tmp_path / "a").write_bytes(zipped(asking(named + b"\x8a\x06\0\0\0\0\0\1\x85R")))
    with pytest.raises(Refused):
        check_file(tmp_path / "a", {})


@pytest.mark.parametrize("named", [b"torch\nFloatStorage", b"torch\nTensor", b"torch.nn.parameter\nParameter"])
@pytest.mark.parametrize("how", [b"R", b"\x81"])
def test_a_class_that_a_tensor_names_is_not_called(tmp_path, named, how):
    (tmp_path / "a").write_bytes(zipped(asking(b"c" + named + b"\n\x8a\x06\0\0\0\0\0\1\x85" + how)))
    with pytest.raises((TypeError, AttributeError)):
        check_file(tmp_path / "a", {})


@pytest.mark.parametrize("state", [b"](U\1aK\1\x86e", b"N}U\1aK\1s\x86", PAIRS_ALONE])
def test_settings_are_names_with_values(tmp_path, state):
    (tmp_path / "a").write_bytes(zipped(asking(b"cargparse\nNamespace\n)\x81" + state + b"b")))
    with pytest.raises(ValueError, match=r"has settings that are none|has parts that"):
        check_file(tmp_path / "a", {("argparse", "Namespace"): Settings})


def test_what_stands_in_a_value_is_counted_wherever_it_stands():
    pairs: tuple = ()
    for _ in range(40):
        pairs = pairs, pairs
    for again in (pairs, {"a": pairs}, {"a": [Namespace(b=pairs)]}, [pairs]):
        with pytest.raises(ValueError, match="repeats what is in it"):
            check_spread(again, 10_000)
    check_spread({"args": Namespace(a=1), "b": [None, {"c": (1, 2)}]}, 20)


# --- in a checkpoint -------------------------------------------------------------------------------------------------


def checkpoint(folder: Path, content: bytes, change: Callable[[Metadata], None] = lambda metadata: None) -> Path:
    """Of the tensor KEY, in two parts behind each other."""
    size, starts = torch.Size([8, 4]), [torch.Size([0, 0]), torch.Size([4, 0])]
    chunks = [ChunkStorageMetadata(start, torch.Size([4, 4])) for start in starts]
    places = [_StorageInfo("__0_0.distcp", n * len(content), len(content)) for n in range(2)]
    tensor = TensorStorageMetadata(TensorProperties(dtype=torch.float32), size, chunks)
    indices = [MetadataIndex(KEY, start) for start in starts]
    metadata = Metadata({KEY: tensor}, storage_data=dict(zip(indices, places, strict=True)))
    change(metadata)
    (folder / "__0_0.distcp").write_bytes(2 * content)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    return folder


def test_the_parts_of_a_tensor_are_read(tmp_path):
    assert torch.equal(ModelTensors(checkpoint(tmp_path, saved(NUMBERS))).read(KEY), torch.cat([NUMBERS, NUMBERS]))


@pytest.mark.parametrize(("content", "said"), REFUSED.values(), ids=REFUSED)
def test_a_part_that_torch_did_not_write_is_one_line_before_weights_are_read(tmp_path, content, said):
    with pytest.raises(DamagedCheckpoint) as refused:
        ModelTensors(checkpoint(tmp_path, content))
    assert "\n" not in str(refused.value) and (said in str(refused.value) or len(content) < NUMBERS.nbytes)


def test_a_part_that_asks_for_memory_is_refused(tmp_path):
    with pytest.raises(DamagedCheckpoint, match=r"asks for 'builtins\.bytearray', which it has no need of"):
        ModelTensors(checkpoint(tmp_path, zipped(asking(CALLS["bytearray"] + b"K\1\x85R"))))



def one_start(metadata: Metadata) -> None:
    entry = metadata.state_dict_metadata[KEY]
    assert isinstance(entry, TensorStorageMetadata)
    entry.chunks *= 1000


def of_size(*sizes: object) -> Callable[[Metadata], None]:
    def change(metadata: Metadata) -> None:
        entry = metadata.state_dict_metadata[KEY]
        assert isinstance(entry, TensorStorageMetadata)
        for chunk, size in zip(entry.chunks, sizes, strict=True):
            chunk.sizes = size  # type: ignore[assignment]

    return change


def one_part(metadata: Metadata) -> None:
    entry = metadata.state_dict_metadata[KEY]
    assert isinstance(entry, TensorStorageMetadata)
    del entry.chunks[1]


def packed(metadata: Metadata) -> None:
    for place in metadata.storage_data.values():
        place.transform_descriptors = ["stream.zstd"]


def longer(metadata: Metadata) -> None:
    """Than the file, together."""
    for n in range(1000):
        metadata.storage_data[MetadataIndex(KEY, torch.Size([n, n]))] = _StorageInfo("__0_0.distcp", 0, 1000)


def before_the_file(metadata: Metadata) -> None:
    for place in metadata.storage_data.values():
        place.offset = -4


READ_AGAIN = {
    "one part a thousand times": (one_start, "has one part twice"),
    "parts that share a row": (of_size(torch.Size([5, 4]), torch.Size([4, 4])), "has parts that overlap"),
    "a part that makes up for it": (of_size(torch.Size([16, 4]), torch.Size([-8, 4])), "has a part without a size"),
    "one part of two": (one_part, "lacks a part"),
    "half a part": (of_size(torch.Size([4, 4]), torch.Size([2, 4])), "lacks a part"),
    "a part of no size": (of_size([4, 4], torch.Size([4, 4])), "has a part without a size"),
    "a file a thousand times": (longer, r"__0_0\.distcp: is shorter than the tensors that are in it"),
    "packed": (packed, "is packed"),
    "a place before the file": (before_the_file, "is in a place that is none"),
}


@pytest.mark.parametrize(("change", "said"), READ_AGAIN.values(), ids=READ_AGAIN)
def test_what_metadata_says_makes_nobody_read_more_than_the_files(tmp_path, change, said):
    with pytest.raises(DamagedCheckpoint, match=said):
        ModelTensors(checkpoint(tmp_path, saved(NUMBERS), change))



def test_numbers_that_a_part_repeats_take_no_memory(tmp_path):
    """Of many such each would be as long as all files."""
    content, size = saved(torch.ones(1).expand(32, 32)), torch.Size([32, 32])
    assert len(content) < size.numel() * 4

    def spread(metadata: Metadata) -> None:
        entry = metadata.state_dict_metadata[KEY]
        assert isinstance(entry, TensorStorageMetadata)
        entry.size, entry.chunks = size, [ChunkStorageMetadata(torch.Size([0, 0]), size)]

    checkpoint(tmp_path, content, spread)
    with (tmp_path / "__0_0.distcp").open("ab") as file:
        file.write(bytes(size.numel() * 4))
    with pytest.raises(DamagedCheckpoint, match=f"has {len(content)} bytes for a part of {size.numel() * 4}$"):
        ModelTensors(tmp_path)


def test_what_no_part_covers_is_no_memory_of_the_process(tmp_path, monkeypatch):
    """Which would go into the model, and to the hub."""
    def overlapping(metadata: Metadata) -> None:
        entry, place = metadata.state_dict_metadata[KEY], metadata.storage_data.pop(MetadataIndex(KEY, [4, 0]))
        assert isinstance(entry, TensorStorageMetadata)
        entry.chunks[1] = ChunkStorageMetadata(torch.Size([2, 0]), torch.Size([4, 4]))
        metadata.storage_data[MetadataIndex(KEY, [2, 0])] = place

    monkeypatch.setattr(torch, "empty", lambda size, **kind: torch.full(size, 7, **kind))
    assert not ModelTensors(checkpoint(tmp_path, saved(NUMBERS), overlapping)).read(KEY)[6:].any()


@pytest.mark.parametrize("make", [lambda path: os.mknod(path, stat.S_IFSOCK | 0o600), Path.mkdir, lambda path: None])
def test_a_part_in_what_is_no_file_is_not_opened(tmp_path, make):
    """Of a pipe, that would not end."""
    def elsewhere(metadata: Metadata) -> None:
        metadata.storage_data[MetadataIndex(KEY, torch.Size([4, 0]))].relative_path = "__0_1.distcp"

    make(tmp_path / "__0_1.distcp")
    with pytest.raises(DamagedCheckpoint, match=r"__0_1\.distcp, .*: is missing$"):
        ModelTensors(checkpoint(tmp_path, saved(NUMBERS), elsewhere))


STACKED = "decoder.layers.mlp.linear_fc2.weight"
LAYERS = {
    "in a row": NUMBERS.reshape(8, 2), "turned": torch.arange(48.0).reshape(3, 2, 8).permute(2, 0, 1),
    "a part of a storage": torch.arange(64.0).reshape(16, 4)[::2, 1:3], "of two bytes": NUMBERS.bfloat16(),
    "of one byte": NUMBERS.to(torch.uint8), "a parameter": torch.nn.Parameter(NUMBERS),
    "nothing": torch.empty(8, 0, 3), "spread": NUMBERS[:1].expand(9, 4),
}


def stacked(folder: Path, part: torch.Tensor, size: torch.Size, before: int = 0) -> Path:
    """A checkpoint with layers of ``size`` in one part."""
    content, start = saved(part), torch.Size([0] * len(size))
    entry = TensorStorageMetadata(TensorProperties(dtype=part.dtype), size, [ChunkStorageMetadata(start, size)])
    place = _StorageInfo("__0_0.distcp", before, len(content))
    (folder / "__0_0.distcp").write_bytes(bytes(before) + content)
    described = Metadata({STACKED: entry}, storage_data={MetadataIndex(STACKED, start): place})
    (folder / ".metadata").write_bytes(pickle.dumps(described))
    return folder


@pytest.mark.parametrize("whole", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("before", [0, 7])
def test_layers_in_one_part_are_read_one_by_one(tmp_path, monkeypatch, whole, before):
    """Torch reads all of it for each."""
    stacked(tmp_path, whole, whole.shape, before)
    load, loaded = torch.load, []

    def counted(*args, **kwargs):
        loaded.append(args)
        return load(*args, **kwargs)

    monkeypatch.setattr(torch, "load", counted)
    tensors = ModelTensors(tmp_path)
    for layer in range(len(whole)):
        read = tensors.read(f"decoder.layers.{layer}.mlp.linear_fc2.weight")
        assert read.dtype == whole.dtype and torch.equal(read, whole[layer])
    assert len(loaded) == (whole.numel() > 0)


@pytest.mark.parametrize("left", [0, 1024 * 1024])
def test_a_file_that_is_cut_between_two_layers_is_one_line(tmp_path, left):
    """In a process of its own: what ended it was a signal."""
    stacked(tmp_path, torch.ones(4, 1024, 256), torch.Size([4, 1024, 256]))
    asked = f"""if True:
        import os, sys
        from mem_agent.checkpoints.torch_dist import ModelTensors
        tensors = ModelTensors(sys.argv[1])
        print(int(tensors.read("decoder.layers.0.mlp.linear_fc2.weight").sum()))
        os.truncate(sys.argv[1] + "/__0_0.distcp", {left})
        try:
            tensors.read("decoder.layers.3.mlp.linear_fc2.weight")
        except Exception as error:
            print(type(error).__name__, error)
    """
    done = subprocess.run([sys.executable, "-c", asked, str(tmp_path)], capture_output=True, text=True, check=True)
    number, line = done.stdout.splitlines()
    assert number == "262144"
    assert line.startswith(f"DamagedCheckpoint {tmp_path}: the checkpoint is damaged: __0_0.distcp: ends before byte ")


SMALLER = {"fewer layers": NUMBERS[:2], "fewer axes": NUMBERS[0], "smaller layers": NUMBERS[:, :3],
           "none": NUMBERS[:0]}


@pytest.mark.parametrize("part", SMALLER.values(), ids=SMALLER)
def test_of_a_part_that_is_smaller_than_said_nothing_else_is_read(tmp_path, part):
    with pytest.raises(DamagedCheckpoint, match=f"{STACKED}: has a part of "):
        ModelTensors(stacked(tmp_path, part, NUMBERS.shape)).read("decoder.layers.3.mlp.linear_fc2.weight")
