"""The names of ``verifiers.v1`` that ``verifiers_env`` uses, for machines without the library.

Shapes only, as read in verifiers 0.4.0: bases whose subclasses are made from configs, and decorators that mark.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, TypeVar

import pydantic

_A, _B, _C = TypeVar("_A"), TypeVar("_B"), TypeVar("_C")


class TaskData(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    prompt: Any = None


class TaskConfig(pydantic.BaseModel):
    pass


class TasksetConfig(pydantic.BaseModel):
    id: str = ""


class HarnessConfig(pydantic.BaseModel):
    id: str = ""


class State:
    pass


class Task(Generic[_A, _B, _C]):
    def __init__(self, data: Any, config: Any) -> None:
        self.data, self.config = data, config


class Taskset(Generic[_A, _B]):
    def __init__(self, config: Any) -> None:
        self.config = config


class Harness(Generic[_A]):
    def __init__(self, config: Any) -> None:
        self.config = config


@dataclass
class ProgramResult:
    exit_code: int
    stdout: str
    stderr: str


def _mark(function: Any) -> Any:
    return function


def install() -> None:
    """Answer ``import verifiers.v1`` where the library is not."""
    package, module = ModuleType("verifiers"), ModuleType("verifiers.v1")
    own = (TaskData, TaskConfig, TasksetConfig, HarnessConfig, State, Task, Taskset, Harness, ProgramResult)
    vars(module).update({kind.__name__: kind for kind in own} | {"reward": _mark, "metric": _mark})
    package.v1 = module  # type: ignore[attr-defined]
    sys.modules |= {"verifiers": package, "verifiers.v1": module}
