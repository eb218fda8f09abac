"""The hook in a host's trainer processes: a continued run sends its engines the policy first, not the reference.

    --custom-megatron-init-path mem_agent.rollout.keep_policy

slime and vime load the reference into the model after the policy, and bring the policy back only where trainer and
engines share GPUs. Elsewhere the first weight update of a continued run would send the reference, and a whole rollout
would be sampled from it. The hosts call this hook in each trainer process before they load anything.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

TRAINERS = ("slime.backends.megatron_utils.actor", "vime.backends.megatron_utils.actor")
LOADS, RETURNS = "load_other_checkpoint", "_switch_model"
"""What the hosts' actor calls to load another model's weights, and to bring some back."""


def keep_policy(args: Any) -> None:
    """Make this process's actor switch back to the policy's weights whenever it has loaded others."""
    for actor in [sys.modules[name].MegatronTrainRayActor for name in TRAINERS if name in sys.modules]:
        for made in (actor, *actor.__subclasses__()):
            if LOADS in vars(made):
                _return_after_loading(made)


@functools.cache
def _return_after_loading(actor: type) -> None:
    """Wrap the method that this very class has: Ray makes a subclass of an actor with a wrapper for each method."""
    load = vars(actor)[LOADS]

    @functools.wraps(load)
    def load_and_return(self: Any, *args: Any, **options: Any) -> Any:
        result = load(self, *args, **options)
        getattr(self, RETURNS)("actor")
        return result

    setattr(actor, LOADS, load_and_return)
