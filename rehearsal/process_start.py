"""What each process of a rehearsed job does before it imports a framework.

    torch.cuda     answered by the CPU                                 ``cuda_answers``
    Adam           one step count a parameter group, as on a GPU       ``group_step_adam``
    collectives    by the names that the pinned torch gives them       ``process_groups``
    slime, vime    the few places that ask for more than torch         ``slime_answers``, ``vime_answers``
"""

from __future__ import annotations

from .imports import before_import

_FRAMEWORKS = ("megatron", "slime", "vime")


def prepare() -> None:
    before_import(_FRAMEWORKS, answer_for_the_gpu)


def answer_for_the_gpu() -> None:
    """Make this process fit for both hosts and Megatron-LM; once."""
    from . import cuda_answers, group_step_adam, process_groups, slime_answers, vime_answers

    cuda_answers.install()
    group_step_adam.install()
    process_groups.install()
    slime_answers.install()
    vime_answers.install()
