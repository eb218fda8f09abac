"""What a rehearsed job's processes do as they start, in a process of its own: it stays in a process for good."""

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from mem_agent.rehearsal import process_start
process_start.prepare()
import json
print('torch' in sys.modules)
import slime.utils.misc, torch
print(slime.utils.misc.get_current_node_ip(), torch.cuda.current_device(), torch.zeros(1, device='cuda').device)
"""


def test_a_shim_acts_when_its_framework_is_imported_and_imports_none_itself(tmp_path):
    (tmp_path / "mem_agent").symlink_to(Path(__file__).parents[2])
    package = tmp_path / "slime" / "utils"
    package.mkdir(parents=True)
    (package / "misc.py").write_text("def get_current_node_ip():\n    return '192.0.2.1'\n")
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.stdout == "False\n127.0.0.1 cpu cpu\n", done.stderr
