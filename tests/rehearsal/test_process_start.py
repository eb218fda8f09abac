"""What a rehearsed job's processes do as they start, in processes of their own: it stays in a process for good."""

import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2]


def run(code, tmp_path):
    (tmp_path / "mem_agent").symlink_to(PACKAGE)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_a_process_that_needs_no_framework_imports_none(tmp_path):
    code = (
        "import sys\nfrom mem_agent.rehearsal import process_start\nprocess_start.prepare()\n"
        "import json\nprint('torch' in sys.modules)"
    )
    assert run(code, tmp_path) == ["False"]


def test_a_shim_acts_when_a_framework_has_been_imported(tmp_path):
    package = tmp_path / "slime" / "utils"
    package.mkdir(parents=True)
    (package / "misc.py").write_text("def get_current_node_ip():\n    return '192.0.2.1'\n")
    code = (
        "import sys\nfrom mem_agent.rehearsal import process_start\nprocess_start.prepare()\n"
        "import slime.utils.misc\nimport torch\n"
        "print(slime.utils.misc.get_current_node_ip(), torch.cuda.current_device())"
    )
    assert run(code, tmp_path) == ["127.0.0.1 cpu"]
