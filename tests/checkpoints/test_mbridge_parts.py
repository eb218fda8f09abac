"""A part of mbridge is imported, and whoever wants the whole still gets it."""

import subprocess
import sys

PARTS = """
import sys
from mem_agent.checkpoints import mbridge_parts
loaded = sorted(name for name in sys.modules if name.startswith("mbridge.models."))
assert loaded == ["mbridge.models.llama", "mbridge.models.qwen2", "mbridge.models.qwen3"], loaded
assert "mbridge" not in sys.modules and "mbridge.models" not in sys.modules
"""
WHOLE = """
import mbridge
from mbridge.core.bridge import _MODEL_REGISTRY
assert {"llama", "qwen2", "qwen3", "gemma3", "glm4_moe"} <= set(_MODEL_REGISTRY), set(_MODEL_REGISTRY)
assert _MODEL_REGISTRY["qwen3"] is mbridge.models.Qwen3Bridge is mbridge_parts.Qwen3Bridge
assert issubclass(mbridge.models.GLM4MoEBridge, mbridge_parts.LLMBridge)
assert mbridge.__version__ and mbridge.models.__file__.endswith("__init__.py") and mbridge.AutoBridge
"""


def test_the_whole_can_be_imported_after_the_parts():
    subprocess.run([sys.executable, "-c", PARTS + WHOLE], check=True)


def test_the_parts_are_those_of_a_whole_that_is_there():
    whole_first = "import mbridge as kept\nfrom mem_agent.checkpoints import mbridge_parts\n"
    subprocess.run([sys.executable, "-c", whole_first + WHOLE + "assert mbridge is kept"], check=True)
