"""What models are asked about a history, in its language; a file may have another wording.

Such a file has the shape of ``wording.yaml``; what it leaves out stays the pack's own. Placing texts into slots never
reads a slot out of a text: a session that says ``{question}`` stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from ..system.errors import ConfigError, reason_of
from .ranking import ASKED
from .records import Language

OWN = Path(__file__).with_name("wording.yaml")
_KEYS = ("rank", "chat", "empty_history", "date")
_NEEDED = {"rank": ("history", "question"), "chat": ("history", "question"), "date": ("date",)}
_SLOT = re.compile(r"\{(history|question|date|count|example)\}")
_CJK = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True, slots=True)
class Wording:
    """Texts by language and key."""

    texts: Mapping[Language, Mapping[str, str]]

    def ranking_prompt(
        self, question: str, history: str, shown: int, language: Language, date: str = "", asked: int = ASKED
    ) -> str:
        """The user message that asks for a ranking of the ``shown`` sessions of ``history``."""
        count = min(asked, shown)
        example = ",".join(str(number) for number in reversed(range(count)))
        return self._filled("rank", language, question, history, date, count=str(count), example=example)

    def chat_prompt(
        self, question: str, history: str, language: Language, date: str = "", options: Sequence[str] = ()
    ) -> str:
        """The user message that asks for the answer; ``history`` may be empty.

        ``options`` of a multiple-choice question stand below it, one a line; a ranking is asked for without them.
        """
        return self._filled("chat", language, "\n".join([question.strip(), *options]), history, date)

    def _filled(self, key: str, language: Language, question: str, history: str, date: str, **own: str) -> str:
        texts = self.texts[language]
        when = _placed(texts["date"], {"date": date}) if date else ""
        slots = {"history": history or texts["empty_history"], "question": question.strip(), "date": when, **own}
        return _placed(texts[key], slots)


def _placed(template: str, slots: Mapping[str, str]) -> str:
    return _SLOT.sub(lambda slot: slots.get(slot[1], slot[0]), template)


def language_of(text: str) -> Language:
    """Chinese where at least a third of the letters are; names of other scripts do not change that."""
    letters = len(_LETTER.findall(text))
    return Language.ZH if letters and 3 * len(_CJK.findall(text)) >= letters else Language.EN


@lru_cache(maxsize=8)
def load_wording(path: str = "") -> Wording:
    """The pack's own, with what the file at ``path`` says otherwise. Raises ConfigError."""
    own = yaml.safe_load(OWN.read_text(encoding="utf-8"))
    other = _read(path) if path else {}
    texts = {language: {**own[language.value], **other.get(language.value, {})} for language in Language}
    return Wording(texts)


def _read(path: str) -> dict[str, Any]:
    name = f"prompts={path!r}"
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{name}: cannot be read ({reason_of(error)})") from None
    if not isinstance(found, dict) or not set(found) <= set(Language) or not all(map(_is_texts, found.values())):
        raise ConfigError(f"{name}: expected {' and '.join(Language)}, each with texts of {', '.join(_KEYS)}")
    for language, texts in found.items():
        for key, slots in _NEEDED.items():
            if missing := [slot for slot in slots if key in texts and f"{{{slot}}}" not in texts[key]]:
                raise ConfigError(f"{name}: {language}.{key} has no {{{missing[0]}}}")
    return found


def _is_texts(texts: Any) -> bool:
    return isinstance(texts, dict) and set(texts) <= set(_KEYS) and all(isinstance(t, str) for t in texts.values())
