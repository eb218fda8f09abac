"""The one fault that loses something: an engine that is well answers nonsense to one turn.

In a rollout its trajectory fails, is masked and counted, and that rollout has one line less to learn from. In an
evaluation amid a run its question is counted and left out of the means, and nothing of the training changes::

    rollout                          0   1     2
    failed, unbroken                 0   0     0      every trajectory has rows
    failed, a rollout drilled        0   1     0      rollout 0 equals the unbroken run's; all have their trajectories
    eval/train/failed, drilled       0   1     0      all but eval/* of rollout 1 equals the unbroken run's
"""

from __future__ import annotations

from mem_agent.training.run_log import read_metrics

from .drill import OBSERVED, InOrder, Strike, carry_out, evaluating, lasting
from .faults import ENGINE_GARBAGE
from .moments import Moment
from .scene import can_mount, in_module, scene

ROLLOUT, ROLLOUTS, TURN = 1, 3, 9
Lines = list[dict[str, float]]


def counted(moment: Moment, **more: object) -> str:
    """How it was survived, in a rollout or in an evaluation.

    Raises:
        AssertionError: it was not, or more than it was lost.
    """
    whole, _ = _lines([], **more)
    drilled, how = _lines([Strike(ENGINE_GARBAGE, moment, ROLLOUT, TURN)], **more)
    assert how == "went on"
    assert [line["failed"] + line["eval/train/failed"] for line in whole] == [0, 0, 0]
    assert drilled[ROLLOUT]["repeated"] == 0, "the engine is well, so nothing is sampled again"
    return {Moment.SAMPLING: _in_rollout, Moment.EVALUATION: _in_evaluation}[moment](whole, drilled)


def _in_rollout(whole: Lines, drilled: Lines) -> str:
    assert [line["failed"] for line in drilled] == [number == ROLLOUT for number in range(ROLLOUTS)]
    assert [line["trajectories"] for line in drilled] == [line["trajectories"] for line in whole]
    assert [lasting(line) for line in drilled[:ROLLOUT]] == [lasting(line) for line in whole[:ROLLOUT]]
    [kind] = [name for name in drilled[ROLLOUT] if name.startswith("failed/")]
    return f"went on; 1 of {drilled[ROLLOUT]['trajectories']} trajectories masked and counted as {kind}"


def _in_evaluation(whole: Lines, drilled: Lines) -> str:
    questions = drilled[ROLLOUT]["eval/train/trajectories"]
    assert [line["eval/train/failed"] for line in drilled] == [0, 1, 0]
    for number, (one, other) in enumerate(zip(whole, drilled, strict=True)):
        unequal = {name for name, _ in lasting(one).items() ^ lasting(other).items()}
        assert all(number == ROLLOUT and name.startswith("eval/train/") for name in unequal), unequal
    return f"went on; 1 of {questions:g} questions counted as failed, the training is the unbroken run's"


def _lines(strikes: list[Strike], **more: object) -> tuple[Lines, str]:
    """A run's metrics, and how it survived."""
    with scene(can_mount()) as place:
        env = evaluating(place, **{"NUM_ROLLOUT": ROLLOUTS, **more})
        outcomes = carry_out(place, env, InOrder(strikes), in_module(OBSERVED))
        assert len(outcomes) == len(strikes)
        return read_metrics(place.save), "".join(outcome.how for outcome in outcomes)
