"""``.metadata`` is read without running anything it asks for, and what real checkpoints name is understood."""

import io
import pickle
import re
from collections import defaultdict
from collections.abc import Iterator
from enum import EnumMeta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed._shard.sharded_tensor.metadata import MEM_FORMAT_ENCODING
from torch.distributed._shard.sharded_tensor.metadata import TensorProperties as OldProperties
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import WriteItemType

from mem_agent.checkpoints import checkpoint, torch_dist
from mem_agent.checkpoints.bounded_pickle import KNOWN
from mem_agent.checkpoints.convert import main as convert
from mem_agent.checkpoints.damage import DamagedCheckpoint
from mem_agent.checkpoints.folders import CheckpointError
from mem_agent.checkpoints.hashes import write_hashes
from mem_agent.checkpoints.metadata import check_files, read_metadata
from mem_agent.checkpoints.torch_dist import ModelTensors
from mem_agent.tests.helpers.attack import Attack
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.trainer_steps import make_config, make_rows, train
from mem_agent.training.trainer import Trainer


def described(properties: Any, **more: Any) -> Metadata:
    size = torch.Size([2, 3])
    tensor = TensorStorageMetadata(properties, size, [ChunkStorageMetadata(torch.Size([0, 0]), size)])
    info = _StorageInfo("__0_0.distcp", 0, 10)
    return Metadata({"a": tensor}, storage_data={MetadataIndex("a", torch.Size([0, 0])): info}, **more)


def put(folder: Path, content: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / ".metadata").write_bytes(content)
    return folder


GOOD = pickle.dumps(described(TensorProperties(dtype=torch.bfloat16)))


# --- what would run code ---------------------------------------------------------------------------------------------


def named(module: str, name: str) -> bytes:
    return pickle.SHORT_BINUNICODE + _short(module) + pickle.SHORT_BINUNICODE + _short(name) + pickle.STACK_GLOBAL


def _short(text: str) -> bytes:
    return bytes([len(text.encode())]) + text.encode()


def call(module: str, name: str, *arguments: str | bytes) -> bytes:
    """Opcodes that call what ``module`` and ``name`` lead to; an argument in bytes is opcodes itself."""
    pushed = [a if isinstance(a, bytes) else pickle.SHORT_BINUNICODE + _short(a) for a in arguments]
    return named(module, name) + pickle.MARK + b"".join(pushed) + pickle.TUPLE + pickle.REDUCE


def hidden(opcodes: bytes) -> bytes:
    """Good metadata that does something else first."""
    return GOOD[:2] + opcodes + pickle.POP + GOOD[2:]


def attacks(victim: Path) -> dict[str, bytes]:
    """Each makes the file or folder ``victim`` when it is read as any other pickle."""
    shell, python, path = f"touch {victim}", f"open({str(victim)!r}, 'w')", call("pathlib", "PosixPath", str(victim))
    make = pickle.POP + call("os", "mkdir", str(victim))
    return {
        "function behind a package": call("torch", "os.system", shell),
        "function behind a module": call("torch.serialization", "os.system", shell),
        "function behind pathlib": call("pathlib", "os.system", shell),
        "method of a known class": call("pathlib", "PosixPath.touch", path),
        "system": call("posix", "system", shell),
        "os.system": call("os", "system", shell),
        "subprocess": call("subprocess", "getoutput", shell),
        "eval": call("builtins", "eval", python),
        "exec": call("builtins", "exec", python),
        "modules behind collections": call("collections", "_sys.modules.get", "os") + make,
        "getattr": call("builtins", "getattr", named("pathlib", "PosixPath"), "touch") + make,
    }


def alone(opcodes: bytes) -> bytes:
    return pickle.PROTO + b"\4" + opcodes + pickle.STOP


@pytest.mark.parametrize("place", [alone, hidden])
@pytest.mark.parametrize("attack", attacks(Path()))
def test_nothing_runs_that_metadata_asks_for(tmp_path, attack, place):
    victim = tmp_path / "victim"
    content = place(attacks(victim)[attack])
    pickle.loads(content)
    assert victim.exists(), "the attack itself works"
    victim.rmdir() if victim.is_dir() else victim.unlink()
    folder = put(tmp_path / "iter_0000001", content)
    for strict in (False, True):
        with pytest.raises(DamagedCheckpoint, match=r"not read: \.metadata asks for '.*may be an attack$") as error:
            read_metadata(folder, strict=strict)
        assert str(folder) in str(error.value) and "\n" not in str(error.value)
    assert not victim.exists()


HARMLESS = [("torch", "load"), ("megatron.core", "os.system"), ("__builtin__", "eval")]


@pytest.mark.parametrize(("module", "name"), HARMLESS)
def test_names_that_nothing_is_done_with_are_placeholders_and_strictly_refused(tmp_path, module, name):
    folder = put(tmp_path, hidden(call(module, name, "open('victim', 'w')")))
    assert read_metadata(folder).state_dict_metadata["a"].size == torch.Size([2, 3])
    with pytest.raises(DamagedCheckpoint, match=f"asks for '{module}.{name}', which it has no need of"):
        read_metadata(folder, strict=True)


def test_a_name_with_line_breaks_stays_one_line(tmp_path):
    with pytest.raises(DamagedCheckpoint) as error:
        read_metadata(put(tmp_path, hidden(named("os", "a\nb\x1b" + "c" * 200))))
    assert "\n" not in str(error.value) and "\x1b" not in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize("path", ["/etc/passwd", "../other/__0_0.distcp", "below/__0_0.distcp"])
def test_files_outside_the_checkpoint_are_refused(tmp_path, path):
    metadata = described(TensorProperties())
    next(iter(metadata.storage_data.values())).relative_path = path
    with pytest.raises(DamagedCheckpoint, match="outside of it"):
        read_metadata(put(tmp_path, pickle.dumps(metadata)))


def place_of(kind: type, **fields: Any) -> Any:
    made = kind.__new__(kind)
    vars(made).update({"relative_path": "__0_0.distcp", "offset": 0, "length": 10} | fields)
    return made


@pytest.mark.parametrize("place", [
    place_of(Metadata, relative_path="../other/__0_0.distcp"), place_of(Metadata), None, "__0_0.distcp",
    place_of(_StorageInfo, relative_path=("__0_0.distcp",)), place_of(_StorageInfo, relative_path=7),
], ids=["elsewhere", "another class", "none", "a text", "a tuple", "a number"])
def test_places_that_are_none_are_refused(tmp_path, place):
    """torch opens whatever has such fields."""
    metadata = described(TensorProperties())
    metadata.storage_data[MetadataIndex("a", torch.Size([1, 0]))] = place
    with pytest.raises(DamagedCheckpoint, match=r"\.metadata: has a place that is none$"):
        read_metadata(put(tmp_path, pickle.dumps(metadata)))


def test_a_dict_that_makes_its_values_is_refused(tmp_path):
    metadata = described(TensorProperties())
    metadata.storage_data = defaultdict(dict, metadata.storage_data)
    with pytest.raises(DamagedCheckpoint, match=r"\.metadata: describes no tensors$"):
        read_metadata(put(tmp_path, pickle.dumps(metadata)))


@pytest.mark.parametrize("content", [b"", GOOD[:50], pickle.dumps(None), pickle.dumps({"a": 1}), b"\x80\x04\xff."])
def test_other_bytes_are_damage(tmp_path, content):
    with pytest.raises(DamagedCheckpoint, match=r"the checkpoint is damaged: \.metadata: "):
        read_metadata(put(tmp_path, content))


# --- what real checkpoints name --------------------------------------------------------------------------------------


DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.uint8, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", [torch.strided, torch.sparse_coo], ids=str)
def test_every_number_format_and_layout_is_read(tmp_path, dtype, layout):
    folder = put(tmp_path, pickle.dumps(described(TensorProperties(dtype=dtype, layout=layout))))
    properties = read_metadata(folder, strict=True).state_dict_metadata["a"].properties
    assert (properties.dtype, properties.layout, properties.memory_format) == (dtype, layout, torch.contiguous_format)


def test_a_path_as_the_checkpoints_id_is_read(tmp_path):
    metadata = described(TensorProperties(), storage_meta=StorageMeta(checkpoint_id=Path("/a/b")))
    assert str(read_metadata(put(tmp_path, pickle.dumps(metadata)), strict=True).storage_meta.checkpoint_id) == "/a/b"


def test_properties_of_torch_until_2_2_are_read(tmp_path):
    old = OldProperties(dtype=torch.bfloat16)
    assert old.__reduce_ex__(4)[2][3] is MEM_FORMAT_ENCODING.TORCH_CONTIGUOUS_FORMAT
    folder = put(tmp_path, pickle.dumps(described(old)))
    assert read_metadata(folder).state_dict_metadata["a"].properties == TensorProperties(dtype=torch.bfloat16)


def test_enums_as_the_first_python_3_11_pickles_them_are_read(tmp_path):
    class Pickler(pickle._Pickler):
        def reducer_override(self, value: Any) -> Any:
            return (getattr, (type(value), value.name)) if isinstance(type(value), EnumMeta) else NotImplemented

    out = io.BytesIO()
    Pickler(out, 4).dump(described(TensorProperties(dtype=torch.bfloat16)))
    assert b"getattr" in out.getvalue()
    folder = put(tmp_path, out.getvalue())
    assert read_metadata(folder, strict=True).state_dict_metadata["a"].properties.dtype == torch.bfloat16


def test_files_that_are_missing_or_short_are_named(tmp_path):
    folder = put(tmp_path, GOOD)
    metadata = read_metadata(folder)
    with pytest.raises(DamagedCheckpoint, match=r"__0_0\.distcp: is missing$"):
        check_files(folder, metadata)
    (folder / "__0_0.distcp").write_bytes(b"123456789")
    with pytest.raises(DamagedCheckpoint, match=r"__0_0\.distcp: has 9 of at least 10 bytes$"):
        check_files(folder, metadata)
    (folder / "__0_0.distcp").write_bytes(b"1234567890" * 3)
    check_files(folder, metadata)


# --- what would take memory ------------------------------------------------------------------------------------------


def test_a_memo_longer_than_the_file_is_refused_and_not_made(tmp_path):
    """As an array it would be of 32 GB."""
    content = GOOD[:-1] + pickle.LONG_BINPUT + (2**31 - 1).to_bytes(4, "little") + pickle.STOP
    with pytest.raises(DamagedCheckpoint, match=r"\.metadata: asks for more memory than its length allows$"):
        read_metadata(put(tmp_path, content))


def shared(opcodes: bytes, levels: int = 20) -> bytes:
    """A pair of a pair of a pair ..., of ``opcodes``: 2 ** levels of them, in two bytes for each level."""
    return opcodes + (pickle.DUP + pickle.TUPLE2) * levels


def number(value: int) -> bytes:
    return pickle.BININT + value.to_bytes(4, "little")


MANY = pickle.MARK + pickle.NONE * 100 + pickle.TUPLE
INDEX = "torch.distributed.checkpoint.metadata", "MetadataIndex"
PLACE = "torch.distributed.checkpoint.filesystem", "_StorageInfo"
GROWING = {
    "a key of shared pairs": pickle.EMPTY_DICT + shared(pickle.EMPTY_TUPLE) + pickle.NONE + pickle.SETITEM,
    "such keys at once": pickle.EMPTY_DICT + pickle.MARK + shared(pickle.EMPTY_TUPLE) + pickle.NONE + pickle.SETITEMS,
    "a set of such": pickle.EMPTY_SET + pickle.MARK + shared(pickle.EMPTY_TUPLE) + pickle.ADDITEMS,
    "a frozen one": pickle.MARK + shared(pickle.EMPTY_TUPLE) + pickle.FROZENSET,
    "a key with such a part": pickle.EMPTY_DICT + named(*INDEX) + pickle.EMPTY_TUPLE + pickle.NEWOBJ
    + pickle.EMPTY_DICT + pickle.MARK + b"".join(
        pickle.SHORT_BINUNICODE + _short(name) + shared(pickle.EMPTY_TUPLE) for name in ("fqn", "offset", "index"))
    + pickle.SETITEMS + pickle.BUILD + pickle.NONE + pickle.SETITEM,
    "a state of such a part, which may be a key already": named(*INDEX) + pickle.EMPTY_TUPLE + pickle.NEWOBJ
    + pickle.EMPTY_DICT + pickle.SHORT_BINUNICODE + _short("fqn") + shared(pickle.EMPTY_TUPLE) + pickle.SETITEM
    + pickle.BUILD,
    "a layout that is called by pairs": call("torch.serialization", "_get_layout", shared(pickle.EMPTY_TUPLE)),
    "a state of two long ones": named(*PLACE) + pickle.EMPTY_TUPLE + pickle.NEWOBJ + pickle.EMPTY_DICT + pickle.MARK
    + b"".join(number(n) + pickle.NONE for n in range(100)) + pickle.SETITEMS + pickle.NONE + pickle.TUPLE2
    + pickle.BUILD,
    "one state again and again": named(*PLACE) + pickle.EMPTY_TUPLE + pickle.NEWOBJ + pickle.BINPUT + b"\x32"
    + pickle.EMPTY_DICT + pickle.MARK + b"".join(number(n) + pickle.NONE for n in range(60)) + pickle.SETITEMS
    + pickle.BINPUT + b"\x33" + pickle.BUILD + (pickle.BINGET + b"\x33" + pickle.BUILD) * 100,
    "a dict with methods of its own": call("collections", "OrderedDict") + pickle.EMPTY_DICT
    + pickle.SHORT_BINUNICODE + _short("get") + pickle.NONE + pickle.SETITEM + pickle.BUILD,
    "numbers of one hash": pickle.EMPTY_DICT + pickle.MARK + b"".join(
        pickle.LONG1 + b"\x0a" + (n * (2**61 - 1)).to_bytes(10, "little") + pickle.NONE for n in range(100))
    + pickle.SETITEMS,
    "numbers of one hash, one by one": pickle.EMPTY_DICT + b"".join(
        pickle.LONG1 + b"\x0a" + (n * (2**61 - 1)).to_bytes(10, "little") + pickle.NONE + pickle.SETITEM
        for n in range(100)),
    "a set of them": pickle.EMPTY_SET + pickle.MARK + b"".join(
        pickle.LONG1 + b"\x0a" + (n * (2**61 - 1)).to_bytes(10, "little") for n in range(100)) + pickle.ADDITEMS,
    "a key of many letters": pickle.EMPTY_DICT + pickle.BINUNICODE + (2000).to_bytes(4, "little") + b"a" * 2000
    + pickle.NONE + pickle.SETITEM,
    "a long key": pickle.EMPTY_DICT + MANY + pickle.NONE + pickle.SETITEM,
    "a copy": call("builtins", "list", MANY),
    "a set's copy": call("builtins", "frozenset", MANY),
    "a number's": call("builtins", "int", pickle.SHORT_BINUNICODE + _short("7")),
    "a tensor of 100 dimensions": call("torch", "Size", pickle.MARK + number(1) * 100 + pickle.TUPLE),
    "a member that is named in full when it is none": call(
        "torch.distributed.checkpoint.planner", "WriteItemType", shared(pickle.EMPTY_TUPLE)),
    "a format that is": named("torch.distributed.checkpoint.metadata", "TensorProperties") + pickle.EMPTY_TUPLE
    + pickle.NEWOBJ + pickle.MARK + pickle.NONE * 3 + shared(pickle.EMPTY_TUPLE) + pickle.NONE + pickle.TUPLE
    + pickle.BUILD,
    "a long state": named(*INDEX) + pickle.EMPTY_TUPLE + pickle.NEWOBJ + pickle.EMPTY_DICT + pickle.MARK
    + b"".join(number(n) + pickle.NONE for n in range(100)) + pickle.SETITEMS + pickle.BUILD,
    "many arguments": named(*INDEX) + MANY + pickle.NEWOBJ,
    "an argument that is copied": call(*INDEX, pickle.SHORT_BINUNICODE + _short("a"), MANY),
    "a long path": call("pathlib", "PosixPath", pickle.BINUNICODE + (5000).to_bytes(4, "little") + b"a" * 5000),
    "bytes that are made before they are read": pickle.BYTEARRAY8 + (2**20).to_bytes(8, "little") + bytes(2**20),
    "a number without end": pickle.LONG4 + (300).to_bytes(4, "little") + b"\1" * 300,
}


@pytest.mark.parametrize("case", GROWING)
@pytest.mark.parametrize("strict", [False, True])
def test_nothing_takes_more_time_or_memory_than_the_file_is_long(tmp_path, case, strict):
    """Larger ones of each took hours, or all memory."""
    with pytest.raises(DamagedCheckpoint, match=r"the checkpoint is damaged: \.metadata: ") as error:
        read_metadata(put(tmp_path, hidden(GROWING[case])), strict=strict)
    assert len(str(error.value)) < 500


def test_a_long_name_that_many_places_share_is_looked_at_once(tmp_path):
    """A pickle has it once; 80,000 places of 8 MB took 9 s."""
    metadata, name = described(TensorProperties()), "a" * 2**20
    metadata.storage_data = {MetadataIndex("a", torch.Size([n, 0])): _StorageInfo(name, 0, 10) for n in range(500)}
    folder = put(tmp_path, pickle.dumps(metadata))
    with pytest.raises(DamagedCheckpoint, match=rf"\.metadata: has a name of {2**20} letters$"):
        read_metadata(folder)


EVERYBODYS = {
    "a class": (MetadataIndex, named(*INDEX)), "a function": (KNOWN["torch", "Size"], named("torch", "Size")),
    "an enum": (KNOWN["torch.distributed.checkpoint.planner", "WriteItemType"],
                named("torch.distributed.checkpoint.planner", "WriteItemType")),
    "its member": (WriteItemType(1), call("torch.distributed.checkpoint.planner", "WriteItemType", number(1))),
}


@pytest.mark.parametrize("case", EVERYBODYS)
@pytest.mark.parametrize("in_slots", [False, True])
def test_nothing_is_left_in_what_the_next_file_is_read_with(tmp_path, case, in_slots):
    of, opcodes = EVERYBODYS[case]
    state = pickle.EMPTY_DICT + pickle.SHORT_BINUNICODE + _short("left") + number(1) + pickle.SETITEM
    state = pickle.NONE + state + pickle.TUPLE2 if in_slots else state
    with pytest.raises(DamagedCheckpoint, match=r"\.metadata: has parts that describe no tensor$"):
        read_metadata(put(tmp_path, hidden(opcodes + state + pickle.BUILD)))
    assert not hasattr(of, "left")


@pytest.mark.parametrize("size", [[[2], [3]], torch.Size([-2, 3])])
def test_sizes_that_are_no_sizes_are_damage(tmp_path, size):
    metadata = described(TensorProperties())
    metadata.state_dict_metadata["a"].size = size
    (tmp_path / "__0_0.distcp").write_bytes(bytes(1024))
    with pytest.raises(DamagedCheckpoint, match=r"'a' has no size$"):
        check_files(tmp_path, read_metadata(put(tmp_path, pickle.dumps(metadata))))


SIZES = {
    "layers": ("decoder.layers.mlp.linear_fc1.weight", [10**5, 3]),
    "empty layers": ("decoder.layers.mlp.linear_fc1.weight", [10**5, 0]),
    "one too many": ("embedding.word_embeddings.weight", [129, 4]),
    "a product beyond 64 bits": ("embedding.word_embeddings.weight", [2**40, 2**40]),
}


@pytest.mark.parametrize("case", SIZES)
def test_no_tensor_is_larger_than_the_files(tmp_path, case):
    key, size = SIZES[case]
    metadata = described(TensorProperties(dtype=torch.bfloat16))
    stored = metadata.state_dict_metadata.pop("a")
    stored.size = torch.Size(size)
    metadata.state_dict_metadata[key] = stored
    folder = put(tmp_path, pickle.dumps(metadata))
    (folder / "__0_0.distcp").write_bytes(bytes(1024))
    for read in (ModelTensors, lambda folder: check_files(folder, read_metadata(folder))):
        with pytest.raises(DamagedCheckpoint, match=r"is said to be \[.*\]; the files have 1024 bytes$"):
            read(folder)
    stored.size = torch.Size([128, 4])
    check_files(put(tmp_path, pickle.dumps(metadata)), read_metadata(folder))


def test_layers_without_number_are_refused_though_their_bytes_are_there(tmp_path):
    metadata = described(TensorProperties(dtype=torch.uint8))
    stored = metadata.state_dict_metadata.pop("a")
    stored.size = torch.Size([2000, 1])
    metadata.state_dict_metadata["decoder.layers.mlp.linear_fc1.weight"] = stored
    folder = put(tmp_path, pickle.dumps(metadata))
    (folder / "__0_0.distcp").write_bytes(bytes(2000))
    with pytest.raises(DamagedCheckpoint, match=r"'decoder\.layers\.mlp\.linear_fc1\.weight' has 2000 layers$"):
        ModelTensors(folder)


def test_layers_of_all_tensors_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_dist, "_MOST_LETTERS", 140_000)
    metadata = described(TensorProperties(dtype=torch.uint8))
    stored = metadata.state_dict_metadata.pop("a")
    stored.size = torch.Size([1000, 0])
    for n in range(5):
        metadata.state_dict_metadata[f"decoder.layers.mlp.linear_{n}.weight"] = stored
    folder = put(tmp_path, pickle.dumps(metadata))
    (folder / "__0_0.distcp").write_bytes(bytes(1000))
    with pytest.raises(DamagedCheckpoint, match=r"describes tensors whose names have more than 140000 letters$"):
        ModelTensors(folder)


@pytest.mark.parametrize("shape", [(), (9,), (9, 4, 1)])
def test_a_vocabulary_of_another_shape_is_told(shape):
    wanted = {"embedding.word_embeddings.weight": (8, 4)}
    assert torch_dist.misfit(dict.fromkeys(wanted, shape), wanted).startswith("mis-shaped: embedding.word_embeddings")


# --- everything that reads a checkpoint ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, Path]:
    """(model folder, run folder with the checkpoint iter_0000001)."""
    model = make_tiny_model(tmp_path_factory.mktemp("model"))
    trainer, save_path = Trainer(make_config(model)), tmp_path_factory.mktemp("run")
    train(trainer, make_rows(), 1)
    checkpoint.save(save_path, 1, trainer, {})
    return model, save_path


def test_no_reader_runs_what_a_checkpoint_asks_for(run, tmp_path, capsys):
    model, save_path = run
    victim, folder, file = tmp_path / "victim", save_path / "iter_0000001", save_path / "iter_0000001" / ".metadata"
    good = file.read_bytes()
    file.write_bytes(good[:2] + call("torch", "os.system", f"touch {victim}") + pickle.POP + good[2:])
    write_hashes(folder)  # an attack brings its own
    try:
        assert convert(["--input", str(folder), "--hf", str(model), "--output", str(tmp_path / "out")]) == 1
        assert "asks for 'torch.os.system'" in capsys.readouterr().err
        with pytest.raises(DamagedCheckpoint, match=r"asks for 'torch\.os\.system'"):
            Trainer(make_config(model, torch_dist=str(save_path)))
        resuming = Trainer(make_config(model))
        with pytest.raises(CheckpointError, match=r"asks for 'torch\.os\.system'"):
            checkpoint.load(save_path, resuming)
    finally:
        file.write_bytes(good)
    assert not victim.exists()


@pytest.fixture
def armed(run, tmp_path) -> Iterator[Metadata]:
    """The metadata of the checkpoint, to be changed; beside it a file that makes ``victim`` when it is unpickled."""
    _, save_path = run
    folder, victim, stored = save_path / "iter_0000001", tmp_path / "victim", io.BytesIO()
    torch.save(Attack(victim), stored)
    (folder / "__0_9.distcp").write_bytes(stored.getvalue())
    good = (folder / ".metadata").read_bytes()
    yield pickle.loads(good)
    (folder / ".metadata").write_bytes(good)
    assert not victim.exists()


def point_to_attack(run: tuple[Path, Path], metadata: Metadata, part: str) -> None:
    """Of all entries in whose names ``part`` is found."""
    folder = run[1] / "iter_0000001"
    infos = [info for index, info in metadata.storage_data.items() if re.search(part, index.fqn)]
    assert infos
    attack = (folder / "__0_9.distcp").read_bytes()
    for number, info in enumerate(infos):
        info.relative_path, info.offset, info.length = "__0_9.distcp", number * len(attack), len(attack)
    (folder / "__0_9.distcp").write_bytes(len(infos) * attack)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    write_hashes(folder)


def test_resuming_runs_no_object_in_the_tensor_files(run, armed):
    """megatron-core would unpickle ``_extra_state`` entries with everything allowed."""
    point_to_attack(run, armed, "_extra_state")
    assert checkpoint.load(run[1], Trainer(make_config(run[0]))) == {}


def test_a_tensor_that_is_an_object_on_disk_is_refused(run, armed):
    name = "embedding.word_embeddings.weight"
    armed.state_dict_metadata[name] = BytesStorageMetadata()
    point_to_attack(run, armed, f"^{name}")
    with pytest.raises(CheckpointError, match=f"no tensor {name}"):
        checkpoint.load(run[1], Trainer(make_config(run[0])))
    with pytest.raises(CheckpointError, match=f"missing: {name}"):
        Trainer(make_config(run[0], torch_dist=str(run[1])))


def test_an_object_in_the_place_of_a_tensor_does_not_run(run, armed):
    point_to_attack(run, armed, "embedding.word_embeddings.weight")
    with pytest.raises(CheckpointError, match=r"word_embeddings.* asks for '"):
        checkpoint.load(run[1], Trainer(make_config(run[0])))
    with pytest.raises(DamagedCheckpoint, match="word_embeddings"):
        Trainer(make_config(run[0], torch_dist=str(run[1])))
