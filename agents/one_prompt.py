r"""Answers from one prompt: the question alone (``AGENT=single``), or with all of a document that fits beside it.

    AGENT=single           [chat head, instructions, <problem>] question ids [</problem>, tail] -> answer
    EVAL_MODE=direct, rag  [chat head, instructions] document ids [</document> <problem>] question ids [...] -> answer

All are agents of one turn on the same loop, so answers, counts and failures mean the same everywhere. Each has wording
of its own in ``MEM_PROMPTS``, under its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from ..config import Config
from .interface import MemoryAgent, Reading
from .prompts import PROBLEM, SECTION, Frame, Prompts, Wording, chat_frame, compile_template, load_prompts
from .records import Generation, TurnKind, TurnRequest
from .vocabulary import Vocabulary

_WITH_DOCUMENT = Wording(
    "Solve the problem with what the document says and write the final answer inside \\boxed{}.",
    (SECTION, PROBLEM),
    "Answer:",
    tags={SECTION: "document"},
)


@dataclass(frozen=True, slots=True)
class State:
    reading: Reading
    answer: str | None = None


class OnePrompt(MemoryAgent):
    """One FINAL turn; a document comes as one chunk."""

    name: ClassVar[str]
    """Of its wording."""

    def __init__(self, vocabulary: Vocabulary, template: str, frame: Frame, max_final: int) -> None:
        self._vocabulary = vocabulary
        self._template = compile_template(template, frame, vocabulary)
        self._reply = max_final

    @classmethod
    def from_config(cls, config: Config, vocabulary: Vocabulary, prompts: Prompts, frame: Frame) -> Self:
        return cls(vocabulary, prompts.own[cls.name], frame, config.mem_max_final)

    @property
    def frame_tokens(self) -> int:
        """Tokens of the prompt around document and question."""
        return len(self._template.fill({PROBLEM: (), SECTION: ()}))

    def room(self, limit: int, reading: Reading) -> int:
        """Document tokens that fit beside the question, what the reply goes on from, and the reply."""
        reply = reading.reply_tokens or self._reply
        return limit - reply - self.frame_tokens - len(reading.question_ids) - len(reading.prefix_ids)

    def start(self, reading: Reading) -> State:
        assert len(reading.document.chunks) == 1 or not self.needs_document, "the whole reading is one prompt"
        return State(reading)

    def requests(self, state: State) -> tuple[TurnRequest, ...]:
        if state.answer is not None:
            return ()
        section = next(iter(state.reading.document.chunks), ())
        values = {PROBLEM: state.reading.question_ids, SECTION: section}
        prompt, places = self._template.fill(values), self._template.places(values)
        return (TurnRequest(TurnKind.FINAL, prompt, self._reply, slots=places),)

    def advance(self, state: State, generations: Sequence[Generation]) -> State:
        (reply,) = generations
        opened = self._template.thinking_open
        return replace(state, answer=self._vocabulary.answer_text(reply.token_ids, thinking_open=opened))

    def memory(self, state: State) -> tuple[int, ...]:
        return ()

    def answer(self, state: State) -> str:
        return state.answer or ""

    def counts(self, state: State) -> dict[str, float]:
        document = state.reading.document
        chunks = len(document.chunks)
        return {"chunks": chunks, "document_tokens": document.tokens, "dropped_tokens": document.dropped}


def direct_frame_tokens(vocabulary: Vocabulary) -> int:
    """Tokens around document and question in EVAL_MODE=direct, with the pack's settings and this model's template."""
    config = Config()
    frame = chat_frame(vocabulary.tokenizer, config.mem_thinking, {})
    prompts = load_prompts(config.mem_layout, own=Direct.own_wording)
    return Direct.from_config(config, vocabulary, prompts, frame).frame_tokens


class Single(OnePrompt):
    """``AGENT=single``"""

    name = "single"
    needs_document = False
    own_wording: ClassVar[Mapping[str, Wording]] = {
        "single": Wording("Solve the problem and write the final answer inside \\boxed{}.", (PROBLEM,), "Answer:")
    }


class Direct(OnePrompt):
    """``EVAL_MODE=direct``: the document, without its centre where it does not fit."""

    name = "direct"
    own_wording: ClassVar[Mapping[str, Wording]] = {"direct": _WITH_DOCUMENT}


class Rag(OnePrompt):
    """``EVAL_MODE=rag``: what a retriever found in the document."""

    name = "rag"
    own_wording: ClassVar[Mapping[str, Wording]] = {"rag": _WITH_DOCUMENT}


BASELINES: dict[str, type[OnePrompt]] = {"direct": Direct, "rag": Rag}
"""EVAL_MODE -> what asks once there."""
