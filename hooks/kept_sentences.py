r"""LOSS=sft for rows without ``metadata.replies``: what a reading agent should say is made by a rule.

A memory keeps the sentences of the sections so far that hold an accepted answer, or the title of a supporting
paragraph where the data marks them (``metadata.supporting``, ``supporting_facts``); the final reply is the task's
``solution``.
Question "Who wrote Emma?", answer "Jane Austen", sections of two sentences::

    Snow fell. Emma is a novel.                 -> Nothing yet.
    Jane Austen wrote Emma. It sold well.       -> Jane Austen wrote Emma.
    Rain fell. Boats came.                      -> Jane Austen wrote Emma.
    (final)                                     -> \boxed{Jane Austen}

A task may have a rule of its own for the memory (``Task.keeper``). A memory that would be longer than MEM_MAX_MEMORY
loses sentences without an answer first, the oldest first. Answers such as yes and no stand everywhere and are not
looked for. This is a start for a model that cannot yet do the task at all, not an optimum: which sentences help is for
the reward to find out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..agents.documents import SENTENCE
from ..agents.interface import MemoryAgent
from ..agents.records import TurnKind, TurnRequest
from ..agents.vocabulary import Vocabulary
from ..data.questions import fact_titles
from ..rewards.answers import AnswerKind, kind_of
from ..rewards.qa_metrics import normalise_squad


class KeptSentences:
    """The replies of one trajectory; ``reply`` is asked turn by turn."""

    def __init__(
        self, agent: MemoryAgent, vocabulary: Vocabulary, golds: Sequence[str], metadata: Mapping[str, Any],
        final: str, keeper: Callable[[str], str] | None = None,
    ) -> None:
        """``final``: the final reply; ``keeper``: the task's own rule."""
        self._agent, self._vocabulary, self._final, self._keeper = agent, vocabulary, final, keeper
        self._answers = [_form(gold) for gold in golds if kind_of(gold) is not AnswerKind.CHOICE]
        titles = metadata.get("supporting") or fact_titles(metadata.get("supporting_facts")) or ()
        self._wanted = [*self._answers, *map(_form, titles)]
        self._kept: list[str] = []

    def reply(self, request: TurnRequest) -> str:
        """Raises TurnFailed: no rule says what a turn of this agent replies."""
        if request.kind is TurnKind.FINAL:
            return self._final
        before, shown = self._memory(), request.section
        if shown:
            section = self._vocabulary.decode(request.prompt_ids[shown.start : shown.end])
            if self._keeper:
                self._kept = [text] if (text := self._keeper(section)) else []
                return self._agent.reply_for(before, self._memory())
            found = [sentence.strip() for sentence in SENTENCE.findall(section) if _holds(sentence, self._wanted)]
            self._kept += [sentence for sentence in found if sentence not in self._kept]
        while True:
            reply = self._agent.reply_for(before, self._memory())
            if len(self._vocabulary.encode_text(reply)) < request.max_new_tokens or not self._kept:
                return reply
            without = [sentence for sentence in self._kept if not _holds(sentence, self._answers)]
            self._kept.remove((without or self._kept)[0])

    def _memory(self) -> str:
        return " ".join(self._kept)


def _form(text: str) -> str:
    return normalise_squad(text, any_script=True)


def _holds(sentence: str, wanted: Sequence[str]) -> bool:
    """Whether any of the wanted stands there as whole words; in scripts without blanks, as characters."""
    words = _form(sentence)
    return any(form in words if not form.isascii() else f" {form} " in f" {words} " for form in filter(None, wanted))
