"""An end to a run of slime or vime whose trajectories all fail: no engine, no answer that can be read.

Hosts go on where trajectories fail. A batch of nothing else is trained on all the same: every row is masked, and the
optimizer still moves what it has momentum for; a checkpoint of that is then what the next start continues. With a
dynamic filter no batch becomes full, and they sample for ever. So the converter asks for one trajectory that ended,
and the filter counts groups without one: as many in succession as a rollout has end the run::

    group            4 5 6 7 8 9       a batch of 2
    with a survivor  x . x . .         the fifth raises: 7 and 8 had none

A run that is started again goes on from its checkpoint, once its engines answer.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..system.errors import MemAgentError
from .host import HostArgs
from .record import Record
from .sample import ended, has_failed

_dead: Counter[str] = Counter()
"""Groups in succession, by the run's folder."""
_lock = threading.Lock()


class AllFailed(MemAgentError):
    """Not one trajectory of a whole rollout ended by itself, and one at least failed."""


def require(samples: Sequence[Any]) -> None:
    """Raises AllFailed where there are none but failed and aborted ``samples``."""
    if any(map(has_failed, samples)) and not any(map(ended, samples)):
        raise AllFailed(
            f"all {len(samples)} trajectories of a rollout failed, nothing is trained on them; the same command "
            f"continues from the newest checkpoint; the first: {_first_reason(samples)}"
        )


def begin(host: HostArgs) -> None:
    """The coming rollout is sampled from its first group on, by engines that may be others."""
    with _lock:
        _dead.pop(host.save, None)


def judged(host: HostArgs, group: Sequence[Any]) -> None:
    """The dynamic filter looks at ``group``. Raises AllFailed."""
    alive = any(map(ended, group)) or not any(map(has_failed, group))
    with _lock:
        _dead[host.save] = 0 if alive else _dead[host.save] + 1
        hopeless = _dead[host.save] >= host.rollout_groups
    if hopeless:
        raise AllFailed(
            f"all trajectories of {_dead[host.save]} groups in succession failed, as many as a rollout has; the same "
            f"command continues from the newest checkpoint; the last: {_first_reason(group)}"
        )


def _first_reason(samples: Sequence[Any]) -> str:
    records = [record for sample in samples if (record := Record.of(sample)) is not None]
    return next((record.failure_message for record in records if record.failure_message), "no reason was kept")
