"""The evaluation hook: the host's own evaluation, with room for this pack's metrics.

    --eval-function-path mem_agent.hooks.eval.evaluate

Hosts give their evaluation log hook the ``metrics`` of the evaluation function, which is None in theirs: whatever the
hook adds is lost. With an empty dict in its place ``rollout_log.log_eval`` reaches the tracker.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from ..rollout import HOST_ROLLOUTS


def evaluate(args: Any, rollout_id: int, data_source: Any, evaluation: bool = True) -> Any:
    """One evaluation of all of the host's evaluation sets, through the same ``generate`` hook as training."""
    assert evaluation, "this is the evaluation function; training has --rollout-function-path"
    output = _host_rollout().generate_rollout(args, rollout_id, data_source, evaluation=True)
    if output.metrics is None:
        output.metrics = {}
    return output


def _host_rollout() -> Any:
    """The rollout module of the host that runs this process: the one it has loaded, else one that is installed."""
    for name in HOST_ROLLOUTS:
        if name in sys.modules:
            return sys.modules[name]
    for name in HOST_ROLLOUTS:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            return importlib.import_module(name)
    raise ModuleNotFoundError(f"none of {', '.join(HOST_ROLLOUTS)} can be imported; this hook needs slime or vime")
