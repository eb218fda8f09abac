"""slime's own converter makes the same Hugging Face model of this pack's checkpoints, bit for bit.

    SLIME_ROOT=... python -m pytest tests/checkpoints/test_slime_converter.py
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from mem_agent.checkpoints.convert import convert
from mem_agent.checkpoints.hf_to_torch_dist import write_release
from mem_agent.tests.helpers.tiny_model import make_tiny_model

SLIME = os.environ.get("SLIME_ROOT", "")
# Its package imports CUDA libraries that neither the converter nor the names of tensors need.
RUN = """
import runpy, sys, types
package = types.ModuleType("slime.backends.megatron_utils")
package.__path__ = [sys.argv[1] + "/slime/backends/megatron_utils"]
sys.modules[package.__name__] = package
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.skipif(not SLIME, reason="SLIME_ROOT names no checkout of slime")
@pytest.mark.parametrize("architecture,tied", [("qwen3", True), ("qwen2", False)])
def test_slimes_converter_makes_the_same_model(tmp_path, architecture, tied):
    model = make_tiny_model(tmp_path / "hf", architecture=architecture, tied=tied, heads=4, kv_heads=2)
    folder = write_release(model, tmp_path / "dist")
    tool = Path(SLIME) / "tools" / "convert_torch_dist_to_hf.py"
    options = ["--input-dir", folder, "--output-dir", tmp_path / "theirs", "--origin-hf-dir", model,
               "--vocab-size", "512"]
    command = [sys.executable, "-c", RUN, SLIME, tool, *options]
    done = subprocess.run(list(map(str, command)), env=os.environ | {"PYTHONPATH": SLIME}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    convert(folder, model, tmp_path / "ours")
    ours, theirs = (
        {name: tensor for file in (tmp_path / who).glob("*.safetensors") for name, tensor in load_file(file).items()}
        for who in ("ours", "theirs")
    )
    assert ours.keys() == theirs.keys() == load_file(model / "model.safetensors").keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)
