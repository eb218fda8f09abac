"""What vime imports is looked for in the vLLM that is installed, without importing either."""

import sys
from importlib.machinery import ModuleSpec

import pytest

from mem_agent.config import ConfigError
from mem_agent.launch import engine_imports
from mem_agent.launch.checkout import Checkout
from mem_agent.launch.engine_imports import check_engine_imports


@pytest.fixture
def check(tmp_path, monkeypatch):
    """``check(text)``: a vime of one file with ``text`` against a small vLLM."""
    modules = {"__init__": "", "utils/__init__": "from .a import moved", "utils/args": "class Parser: ...\nWIDTH = 1",
               "lazy": "names = {'Later': 'elsewhere'}"}
    for name, text in modules.items():
        file = tmp_path / "vllm" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    spec = ModuleSpec("vllm", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path / "vllm")]
    monkeypatch.setattr(engine_imports.importlib.util, "find_spec", lambda name: spec)

    def check(text, name="vime"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "actor.py").write_text(text)
        check_engine_imports(Checkout(name, tmp_path))

    return check


@pytest.mark.parametrize("text", [
    "from vllm.utils.args import Parser, WIDTH", "from vllm.utils import moved, args", "from vllm.lazy import Later",
    "from vllm import utils", "try:\n    from vllm.gone import X\nexcept ImportError:\n    X = None",
    "def later():\n    from vllm.gone import X", "from vllm_router.gone import X",
])
def test_what_is_there_or_may_be_absent_is_no_problem(text, check):
    check(text)
    assert "vllm" not in sys.modules or not hasattr(sys.modules["vllm"], "lazy")


@pytest.mark.parametrize("text,message", [
    ("from vllm.utils.args import Gone", r"imports: vllm.utils.args.Gone \(vime/actor.py\); install the version"),
    ("from vllm.gone import A, B", r"imports: vllm.gone.A \(vime/actor.py\) and 1 more; install"),
])
def test_what_has_moved_is_one_line(text, message, check):
    with pytest.raises(ConfigError, match=message) as error:
        check(text)
    assert "\n" not in str(error.value)
    check(text, "slime")
