"""An end to DYNAMIC_FILTER: how many groups one rollout may judge before it takes what there is (MAX_GEN_BATCHES).

Hosts sample until the filter has let a batch through. Where a policy answers all siblings alike, that is for ever. So
the groups that a rollout judges are counted; with a batch of 2, 4 in flight, MAX_GEN_BATCHES=2::

    judged   1 2 3 4 | 5 6 7 8 | 9             groups 2 and 9 go into the batch, 9 whatever its rewards:
    differs  . x . . | . . . . | .             ``groups_let_through`` is 1

Not one group that differs in all of them ends the run with one line: nothing could be learned.

Source: DAPO's recipe, ``max_num_gen_batches`` (10), which ends the run in either case.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ..system.errors import MemAgentError
from .host import HostArgs


class NothingDiffers(MemAgentError):
    """A whole rollout without a group whose rewards differ."""


@dataclass
class _Judged:
    groups: int = 0
    differing: int = 0
    let_through: int = 0


_judged: dict[str, _Judged] = {}
_lock = threading.Lock()


def keeps(host: HostArgs, *, differs: bool) -> bool:
    """Whether the filter keeps the next group of the coming rollout. Raises NothingDiffers."""
    most = host.config.max_gen_batches * host.generated_groups
    if not most:
        return differs
    with _lock:
        judged = _judged.setdefault(host.save, _Judged())
        if judged.groups >= most and not judged.differing and not differs:
            raise NothingDiffers(
                f"MAX_GEN_BATCHES={host.config.max_gen_batches}: not one of {most} groups has trajectories of "
                "different rewards; set DYNAMIC_FILTER=none or change the data"
            )
        over = judged.groups >= most
        judged.groups += 1
        judged.differing += differs
        judged.let_through += over and not differs
        return differs or over


def begin(host: HostArgs) -> None:
    """The coming rollout is sampled from its first group on."""
    with _lock:
        _judged.pop(host.save, None)


def take(host: HostArgs) -> dict[str, int]:
    """The rollout is whole: ``groups_let_through``, where MAX_GEN_BATCHES is set; the next one counts anew."""
    with _lock:
        judged = _judged.pop(host.save, _Judged())
    return {"groups_let_through": judged.let_through} if host.config.max_gen_batches else {}
