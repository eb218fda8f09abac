"""Two rewards as one: all that the first gives, and what the second gives besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..system.errors import ConfigError
from .reward import Answered, Parts, Reward, plain_parts

_FOLDERS = ("reward", "added")
"""Of the two states, inside that of the run."""


class Added(Reward):
    """``more`` sees the parts that ``first`` gave, and its own must have other names."""

    def __init__(self, first: Reward, more: Reward) -> None:
        super().__init__(first.settings)
        self._first, self._more = first, more

    def begin(self) -> None:
        self._first.begin()
        self._more.begin()

    async def parts(self, answer: Answered) -> Parts:
        parts = await self._first.parts(answer)
        return await self._more.parts(replace(answer, parts=parts))

    def batch_parts(self, batch: Sequence[Answered]) -> Sequence[Parts]:
        given = list(self._first.batch_parts(batch) or ())
        try:
            checked = [plain_parts(parts) for parts in given]
        except ValueError:
            return given  # whoever called says what is wrong with it
        if len(checked) != len(batch):
            return given
        seen = [replace(answer, parts={**answer.parts, **parts}) for answer, parts in zip(batch, checked, strict=True)]
        return _joined(checked, self._more.batch_parts(seen))

    @property
    def tells_ahead(self) -> bool:
        return self._first.tells_ahead and self._more.tells_ahead

    def expected_parts(self, answers: Sequence[Answered]) -> Sequence[Parts]:
        return _joined(self._first.expected_parts(answers), self._more.expected_parts(answers))

    def metrics(self) -> Mapping[str, float]:
        return {**self._first.metrics(), **self._more.metrics()}

    def save(self, folder: Path) -> None:
        for name, reward in zip(_FOLDERS, (self._first, self._more), strict=True):
            (folder / name).mkdir()
            reward.save(folder / name)

    def load(self, folder: Path) -> None:
        """Raises ConfigError where one reward alone has written ``folder``."""
        first, more = (folder / name for name in _FOLDERS)
        if not more.is_dir():
            raise ConfigError(f"{folder}: holds no state of REWARD and MEM_IR together; set MEM_IR as it was, or "
                              "start a new SAVE_PATH")
        if type(self._first).load is not Reward.load:  # else it wrote nothing, and copies may leave empty folders out
            self._first.load(first)
        self._more.load(more)


def _joined(first: Sequence[Parts], more: Sequence[Parts]) -> list[Parts]:
    for one, other in zip(first, more, strict=True):
        if same := sorted(one.keys() & other.keys()):
            raise ConfigError(f"REWARD gives a part named {same[0]!r}, which is MEM_IR's; name it otherwise")
    return [{**one, **other} for one, other in zip(first, more, strict=True)]
