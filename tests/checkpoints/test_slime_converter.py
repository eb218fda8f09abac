"""slime's own converter makes the same Hugging Face model of this pack's checkpoints, bit for bit.

    SLIME_ROOT=... python -m pytest tests/checkpoints/test_slime_converter.py
"""

import os
import subprocess
import sys

import pytest

from mem_agent.checkpoints.convert import convert
from mem_agent.checkpoints.hf_folder import HfTensors
from mem_agent.checkpoints.hf_to_torch_dist import write_release
from mem_agent.tests.helpers.tiny_model import make_tiny_model

SLIME = os.environ.get("SLIME_ROOT", "")
# Its package imports CUDA libraries that neither the converter nor the names of tensors need.
RUN = """
import runpy, sys, types
root, dist, out, model = sys.argv[1:]
package = types.ModuleType("slime.backends.megatron_utils")
package.__path__ = [root + "/slime/backends/megatron_utils"]
sys.modules[package.__name__] = package
tool = root + "/tools/convert_torch_dist_to_hf.py"
sys.argv = [tool, "--input-dir", dist, "--output-dir", out, "--origin-hf-dir", model, "--vocab-size", "512"]
runpy.run_path(tool, run_name="__main__")
"""


@pytest.mark.skipif(not SLIME, reason="SLIME_ROOT names no checkout of slime")
@pytest.mark.parametrize("architecture,tied", [("qwen3", True), ("qwen2", False)])
def test_slimes_converter_makes_the_same_model(tmp_path, architecture, tied):
    model = make_tiny_model(tmp_path / "hf", architecture=architecture, tied=tied, heads=4, kv_heads=2)
    folder = write_release(model, tmp_path / "dist")
    command = [sys.executable, "-c", RUN, SLIME, str(folder), str(tmp_path / "theirs"), str(model)]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": SLIME}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    convert(folder, model, tmp_path / "ours")
    ours, theirs = HfTensors(tmp_path / "ours"), HfTensors(tmp_path / "theirs")
    assert ours.shapes == theirs.shapes == HfTensors(model).shapes
    assert all(ours.read(name).equal(theirs.read(name)) for name in ours.shapes)
