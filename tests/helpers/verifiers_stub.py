"""The names of ``verifiers.v1`` that ``verifiers_env`` uses, for machines without the library.

Shapes only, as read in verifiers 0.4.0: bases whose subclasses are made from configs, and decorators that mark.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pydantic


class TaskData(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    prompt: Any = None


class Config(pydantic.BaseModel):
    id: str = ""


class Made:
    """A task from its data and its config; a taskset and a harness from theirs."""

    def __class_getitem__(cls, kinds: Any) -> type:
        return cls

    def __init__(self, *given: Any) -> None:
        self.data, self.config = given[0], given[-1]


def _mark(function: Any) -> Any:
    return function


def install() -> None:
    """Answer ``import verifiers.v1`` where the library is not."""
    package, module = ModuleType("verifiers"), ModuleType("verifiers.v1")
    vars(module).update(
        TaskData=TaskData, TaskConfig=Config, TasksetConfig=Config, HarnessConfig=Config, State=object, Task=Made,
        Taskset=Made, Harness=Made, ProgramResult=SimpleNamespace, reward=_mark, metric=_mark)
    package.v1 = module  # type: ignore[attr-defined]
    sys.modules |= {"verifiers": package, "verifiers.v1": module}
