"""The evaluation hook is the host's own evaluation with a dict that the log hook can fill."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from mem_agent.rollout import evaluate


@pytest.fixture
def host(monkeypatch, tmp_path):
    """A slime whose evaluation gives ``metrics``; returns what it was called with."""
    for folder in ("slime", "slime/rollout"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    calls = []

    def install(metrics):
        module = ModuleType("slime.rollout.sglang_rollout")

        def generate_rollout(args, rollout_id, data_source, evaluation):
            calls.append((args, rollout_id, data_source, evaluation))
            return SimpleNamespace(data={"dev": {}}, metrics=metrics)

        module.generate_rollout = generate_rollout
        monkeypatch.setitem(sys.modules, "slime.rollout.sglang_rollout", module)
        return calls

    yield install
    for name in [n for n in sys.modules if n.split(".")[0] == "slime"]:
        del sys.modules[name]


@pytest.mark.parametrize("metrics,expected", [(None, {}), ({"a": 1}, {"a": 1})])
def test_none_becomes_a_dict_and_a_dict_stays(metrics, expected, host):
    calls = host(metrics)
    output = evaluate("args", 7, "source", evaluation=True)
    assert output.metrics == expected and output.data == {"dev": {}} and calls == [("args", 7, "source", True)]
