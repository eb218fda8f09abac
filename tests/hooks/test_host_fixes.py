"""The policy is what an actor holds after it has loaded, whatever it loaded last."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from mem_agent.hooks import host_fixes


def host_actor():
    class MegatronTrainRayActor:
        """As in the hosts: weights by tag, the model holds what was loaded or brought back last."""

        def init(self, args):
            host_fixes.keep_policy(args)
            self.backups, self.model = {"actor": "policy"}, "policy"
            self.load_other_checkpoint("ref", "/reference")
            return self.model

        def load_other_checkpoint(self, tag, path):
            self.backups[tag] = self.model = path

        def _switch_model(self, tag):
            self.model = self.backups[tag]

    return MegatronTrainRayActor


@pytest.mark.parametrize("host", ["slime", "vime"])
def test_an_actor_holds_the_policy_after_it_has_loaded_the_reference(host, monkeypatch):
    module = ModuleType(f"{host}.backends.megatron_utils.actor")
    module.MegatronTrainRayActor = host_actor()
    monkeypatch.setitem(sys.modules, module.__name__, module)

    original = module.MegatronTrainRayActor.load_other_checkpoint

    class Made(module.MegatronTrainRayActor):
        """As Ray makes one: with a wrapper of its own for each method, which calls the one it found."""

        def load_other_checkpoint(self, *args):
            return original(self, *args)

    actor = Made()
    assert actor.init(SimpleNamespace()) == "policy" and actor.backups["ref"] == "/reference"
    assert Made().init(SimpleNamespace()) == "policy"  # the second actor of a process is not wrapped twice
