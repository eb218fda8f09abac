"""Files are written through ``atomic_file``, which refuses what is no file and names what failed, or have a reason."""

import ast

import pytest

from mem_agent.tests.helpers.sources import ROOT, SOURCES

FOLDER = "files in a new folder of its own, which is renamed when it is whole"
LOCK = "holds a lock on a file of its own"
OWN = "a file that it has just made, in a private folder"
REASONS = {
    "checkpoints/agent_settings.py": FOLDER, "checkpoints/convert.py": FOLDER, "checkpoints/hf_folder.py": FOLDER,
    "checkpoints/hf_to_torch_dist.py": FOLDER, "rewards/answer_utility.py": FOLDER,
    "rehearsal/rehearse.py": FOLDER, "rehearsal/sglang_engine.py": FOLDER, "rehearsal/tiny_model.py": FOLDER,
    "pocket/prepare.py": FOLDER, "pocket/tokenizer.py": FOLDER,
    "launch/ray_cluster.py": OWN, "launch/remote_env.py": "opened for its owner alone, in a private folder",
    "launch/ray_jobs.py": "the run's own log",
    "rewards/math_worker.py": "its standard output", "rewards/intrinsic/state_file.py": "a member of an archive",
    "asking/document_texts.py": "a file in memory", "system/file_lock.py": LOCK,
    "system/one_line_errors.py": "the null device, for a reader that has left",
    "evaluation/results.py": "cuts a file that is there", "traces/rollout_files.py": "cuts a file that is there",
    "sifter/blocks/row_journal.py": "a path from file_to_write",
    "sifter/stores/record_store.py": "paths from file_to_write",
}


def writes(tree: ast.AST) -> list[ast.Call]:
    """Calls that open or make a file to write in it."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _writes(node)]


def _writes(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("write_text", "write_bytes"):
        return True
    if name not in ("open", "fdopen"):
        return False
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    modes = [a.value for a in given if isinstance(a, ast.Constant) and isinstance(a.value, str) and len(a.value) <= 3]
    flags = {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
    return any(set(mode) & set("wax+") for mode in modes) or bool(flags & {"O_WRONLY", "O_RDWR"})


def test_whoever_writes_a_file_by_itself_has_a_reason():
    found = set()
    for file in SOURCES:
        place = file.relative_to(ROOT).as_posix()
        if not place.startswith("benchmarks/") and writes(ast.parse(file.read_text())):
            found.add(place)
    assert found == set(REASONS)


@pytest.mark.parametrize("code,found", [
    ("open('x', 'w')", 1), ("p.open('ab')", 1), ("p.open(mode='r+')", 1), ("p.write_text('')", 1), ("p.open('rb')", 0),
    ("open('w')", 1), ("os.open(p, os.O_WRONLY | os.O_CREAT)", 1), ("os.open(p, os.O_RDONLY)", 0), ("replacing(p)", 0),
])
def test_writes_are_found(code, found):
    assert len(writes(ast.parse(code))) == found
