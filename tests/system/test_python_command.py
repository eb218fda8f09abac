"""No Python that the pack starts takes modules from the working folder, which may be that of a stranger's model."""

import ast
import asyncio
import os
import re
import subprocess
import sys

import pytest

from mem_agent.asking.document_texts import DocumentTexts
from mem_agent.config import Config
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.sources import ROOT, SOURCES
from mem_agent.training.evaluation import Evaluation

OTHERS = ("inscriptis", "psutil", "tqdm", "aiohttp", "orjson")
SCRIPTS = sorted(path for pattern in ("*.sh", "scripts/*/*.sh", "rehearsal/bin/*") for path in ROOT.glob(pattern))


@pytest.fixture
def strangers_folder(tmp_path, monkeypatch):
    """A working folder whose modules leave a file ``ran``."""
    for name in OTHERS:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise ImportError('mine')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_document_is_read_with_the_packs_own_modules(strangers_folder):
    page = b"<html><body>Ann was here.</body></html>"
    assert "Ann was here." in asyncio.run(DocumentTexts(60).text("a.html", page))
    assert not (strangers_folder / "ran").exists()


def test_an_evaluation_is_a_command_of_the_packs_own_modules(strangers_folder):
    evaluation = Evaluation(Config(save_path=str(strangers_folder)), "before", strangers_folder)
    with pytest.raises(MemAgentError, match=r"has no config\.json"):
        evaluation.start_check().result()
    assert not (strangers_folder / "ran").exists()


OWN = "from mem_agent.agents.memagent import MemAgent\nclass Mine(MemAgent): pass\n"


@pytest.mark.parametrize(("named", "said"), [
    ([], "AGENT='mine:Mine': mine cannot be imported (ModuleNotFoundError: No module named 'mine'); add its"),
    (["."], "TRAIN_DATA='/nowhere': no such file"),
])
def test_a_class_in_the_working_folder_is_there_for_a_command_if_it_is_for_those_that_it_starts(tmp_path, named, said):
    (tmp_path / "mine.py").write_text(OWN)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT.parent), *named]), "AGENT": "mine:Mine",
                        "HF_CKPT": str(ROOT / "pocket" / "start"), "TRAIN_DATA": "/nowhere",
                        "SAVE_PATH": str(tmp_path)}
    command = [sys.executable, "-m", "mem_agent", "train", "--check"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith(f"error: {said}"), done.stderr


def starts_a_module(path):
    lists = [node.elts for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.List | ast.Tuple)]
    return any(isinstance(item, ast.Constant) and item.value == "-m" for items in lists for item in items)


def test_a_module_is_started_by_python_module_alone():
    assert [path.name for path in SOURCES if starts_a_module(path)] == ["python_command.py"]


def test_scripts_say_so_themselves():
    unsafe = re.compile(r'python"? -[mc]\b(?! .import sys; sys\.exit)|/python"\)')
    lines = [line for path in SCRIPTS for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    assert len(lines) > 300 and [line for line in lines if unsafe.search(line)] == []
