"""Hooks on imports, in processes of their own: they stay in a process for good."""

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2]


def run(code, tmp_path):
    (tmp_path / "mem_agent").symlink_to(PACKAGE)
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "__init__.py").write_text("print('later is executed')")
    (tmp_path / "later" / "inner.py").write_text("value = 1")
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_what_is_to_be_done_before_is_done_once_and_first(tmp_path):
    code = (
        "from mem_agent.rehearsal.imports import before_import\n"
        "before_import(('later', 'other'), lambda: print('before'))\n"
        "import json\nimport later\nimport later.inner"
    )
    assert run(code, tmp_path) == ["before", "later is executed"]


def test_a_module_is_changed_right_after_it_is_executed_or_at_once(tmp_path):
    code = (
        "from mem_agent.rehearsal.imports import after_import\n"
        "def double(module): module.value *= 2\n"
        "after_import('later.inner', double)\n"
        "import later.inner\nprint(later.inner.value)\n"
        "after_import('later.inner', double)\nprint(later.inner.value)"
    )
    assert run(code, tmp_path) == ["later is executed", "2", "4"]


def test_several_changes_of_one_module_all_happen(tmp_path):
    code = (
        "from mem_agent.rehearsal.imports import after_import\n"
        "def add(module): module.value += 1\n"
        "def double(module): module.value *= 2\n"
        "after_import('later.inner', add)\nafter_import('later.inner', double)\n"
        "import later.inner\nprint(later.inner.value)"
    )
    assert run(code, tmp_path)[-1] == "4"


def test_a_process_that_needs_no_framework_imports_none(tmp_path):
    code = (
        "import sys\nfrom mem_agent.rehearsal import process_start\nprocess_start.prepare()\n"
        "import json\nprint('torch' in sys.modules)"
    )
    assert run(code, tmp_path) == ["False"]
