"""Files are written by ``atomic_file``, which refuses what is no file and names what failed, or have a reason.

Else a full disk ends a command with an error that names nothing. Benchmarks write what is thrown away.
"""

import ast
import re

import pytest

from mem_agent.tests.helpers.sources import ROOT, SOURCES

ELSEWHERE = {
    "checkpoints/hf_folder.py": "weights: WeightsNotWritten names them",
    "checkpoints/hf_to_torch_dist.py": "torch.save to memory",
    "data/document_process.py": "memory, which has no file",
    "pocket/model.py": "weights that the pack's makers make, once",
    "pocket/tokenizer.py": "the tokenizer beside them",
    "rehearsal/tiny_model.py": "weights: WeightsNotWritten names them",
    "rewards/intrinsic/state_file.py": "a part of an archive that `replacing` gave",
    "rewards/math_worker.py": "its own output, a pipe",
    "system/atomic_file.py": "the module itself",
    "system/file_lock.py": "an empty file",
    "system/one_line_errors.py": "no file",
}
WRITING = {"write_text", "write_bytes", "TemporaryFile", "NamedTemporaryFile", "save_file", "save_pretrained"}
MODE = re.compile("[rbt]*[wax+][bt+]*")
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT"}
OPEN_FILES = {"file", "out", "self._file"}
"""What is handed to libraries that would else open a path themselves."""


def writes(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in FLAGS:
            yield node.lineno
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]
        modes = [one.value for one in given if isinstance(one, ast.Constant) and MODE.fullmatch(str(one.value))]
        if name in WRITING or (name in {"open", "fdopen"} and modes) or ast.unparse(node.func) == "os.truncate":
            yield node.lineno
        if name == "ParquetWriter" and ast.unparse(node.args[0]) not in OPEN_FILES:
            yield node.lineno
        if ast.unparse(node.func) in {"torch.save", "np.save", "json.dump", "pq.write_table", "pickle.dump"} and (
                ast.unparse(node.args[1]) not in OPEN_FILES):
            yield node.lineno


def test_files_are_written_in_one_module():
    found = {
        file for path in SOURCES if not (file := path.relative_to(ROOT).as_posix()).startswith("benchmarks/")
        if any(writes(ast.parse(path.read_text())))
    }
    assert found == set(ELSEWHERE)


@pytest.mark.parametrize("code,found", [
    ("open('x', 'w')", 1), ("p.open('ab')", 1), ("p.open(mode='r+')", 1), ("p.write_text('')", 1), ("p.open('rb')", 0),
    ("open('w')", 1), ("os.open(p, os.O_WRONLY)", 1), ("os.open(p, os.O_RDONLY)", 0), ("replacing(p)", 0),
    ("os.truncate(p, 9)", 1), ("file.truncate(9)", 0),
    ("torch.save(x, p)", 1), ("torch.save(x, file)", 0), ("pq.ParquetWriter(p, s)", 1), ("save_file(x, p)", 1),
])
def test_writes_are_found(code, found):
    assert len(list(writes(ast.parse(code)))) == found
