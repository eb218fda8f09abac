"""The one fault that changes what is trained: an engine that is well answers nonsense to one turn of a rollout.

Its trajectory fails, is masked and counted, and that rollout has one line less to learn from::

    rollout             0   1   2
    failed, unbroken    0   0   0      every trajectory has rows
    failed, drilled     0   1   0      rollout 0 equals the unbroken run's; every rollout has its trajectories
"""

from __future__ import annotations

from mem_agent.training.run_log import read_metrics

from .drill import OBSERVED, InOrder, Strike, carry_out, lasting, settings
from .faults import ENGINE_GARBAGE
from .moments import Moment
from .scene import can_mount, in_module, scene

ROLLOUT, ROLLOUTS, TURN = 1, 3, 9
Lines = list[dict[str, float]]


def counted(**more: object) -> str:
    """How it was survived.

    Raises:
        AssertionError: it was not, or more than it was lost.
    """
    whole, _ = _lines([], **more)
    strike = Strike(ENGINE_GARBAGE, Moment.SAMPLING, ROLLOUT, TURN)
    drilled, how = _lines([strike], **more)
    assert how == "went on"
    assert [line["failed"] for line in whole] == [0, 0, 0]
    assert [line["failed"] for line in drilled] == [number == ROLLOUT for number in range(ROLLOUTS)]
    assert [line["trajectories"] for line in drilled] == [line["trajectories"] for line in whole]
    assert [lasting(line) for line in drilled[:ROLLOUT]] == [lasting(line) for line in whole[:ROLLOUT]]
    assert drilled[ROLLOUT]["repeated"] == 0, "the engine is well, so nothing is sampled again"
    [kind] = [name for name in drilled[ROLLOUT] if name.startswith("failed/")]
    return f"went on; 1 of {drilled[ROLLOUT]['trajectories']} trajectories masked and counted as {kind}"


def _lines(strikes: list[Strike], **more: object) -> tuple[Lines, str]:
    """A run's metrics, and how it survived."""
    with scene(can_mount()) as place:
        env = settings(place, **{"NUM_ROLLOUT": ROLLOUTS, **more})
        outcomes = carry_out(place, env, InOrder(strikes), in_module(OBSERVED))
        assert len(outcomes) == len(strikes)
        return read_metrics(place.save), "".join(outcome.how for outcome in outcomes)
