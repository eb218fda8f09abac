"""ReMemR1: read chunk by chunk like MemAgent, but keep every memory of the way and ask for earlier ones.

Source: ReMemR1, arXiv 2509.23040, section 3; its released code where the two differ, see below.

A document of chunks c1, c2, c3 gives four turns; ``m`` are memories, ``q`` queries, ``r`` recalled memories::

    turn 1  MEMORY  problem, c1, nothing recalled, empty marker -> m1, no query   r1 = nothing   history m1
    turn 2  MEMORY  problem, c2, r1, m1                         -> m2, q2         r2 = m1        history m1 m2
    turn 3  MEMORY  problem, c3, r2, m2                         -> m3, q3         r3 = m1 or m2  history m1 m2 m3
    turn 4  FINAL   problem, r3, m3                             -> answer

A memory turn's reply is read by ``tagged_reply``; a recall holds for the next turn only. Invariants:
- a memory is the content of ``<update>`` as the ids that were sampled (``Vocabulary.part_ids``), capped;
- a reply without a usable update keeps the previous memory and counts as an empty update; a reply without a usable
  recall recalls nothing. No reply ends the trajectory;
- q_t is answered from m_1 .. m_(t-1), before m_t joins them (``recall``);
- tags in a document are text like any other: only replies are read.

Different from the released code, which keeps everything outside ``<recall>``, thinking and tags included, as the
memory, reads tags on one line only, joins two recalls into one, and shows an example query that models then repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from ..rewards.memory_state import Step
from .interface import Reading
from .memagent import Limits
from .prompts import MEMORY, PROBLEM, RECALLED, SECTION, Prompts, TokenTemplate, Wording, compile_template
from .recall import History
from .records import Generation, StopReason, Trajectory, TurnKind, TurnRequest
from .tagged_reply import examples_in, read_reply
from .vocabulary import Vocabulary

WORDING = Wording(
    memory=(
        "You are reading a long document one section at a time in order to solve a problem, and you keep a memory of "
        "it. All your earlier memories are stored, and you can ask for one of them. Reply in this form:\n"
        "<thinking>...</thinking> what the section and the recalled memory contribute to the problem, and what is "
        "missing\n"
        "<update>...</update> your whole new memory, exactly once: every old detail that may still matter, and what "
        "is new; leave out everything else\n"
        "<recall>...</recall> at most once, and only if something is missing that an earlier memory may have held: "
        "the words to find it by; you will see it with the next section\n\n"
    ),
    final=(
        "You have read a long document, kept a memory of it, and may have recalled an earlier one. Solve the problem "
        "from them and write the final answer inside \\boxed{}.\n\n"
    ),
    kept=(RECALLED, MEMORY),
    reply="Reply:\n",
)


@dataclass(frozen=True, slots=True)
class State:
    reading: Reading
    history: History
    next_chunk: int = 0
    memory: tuple[int, ...] = ()
    recalled: tuple[int, ...] = ()
    answer: str | None = None
    steps: tuple[Step, ...] = ()
    """The memory turns so far, without their prompts."""
    updates: int = 0
    recalls: int = 0
    truncated_memories: int = 0


class ReMemR1:
    """The agent with a revisitable memory (``AGENT=rememr1``)."""

    wording = WORDING

    def __init__(
        self, vocabulary: Vocabulary, prompts: Prompts, frame, limits: Limits, new_history: Callable[[], History]
    ) -> None:
        self._vocabulary = vocabulary
        self._limits = limits
        self._new_history = new_history
        self._memory_turn: TokenTemplate = compile_template(prompts.memory, frame, vocabulary)
        self._final_turn: TokenTemplate = compile_template(prompts.final, frame, vocabulary)
        self._empty = tuple(vocabulary.encode_text(prompts.empty_memory))
        self._no_recall = tuple(vocabulary.encode_text(prompts.no_recall))
        self._examples = examples_in(prompts.memory)
        # Siblings read the same chunks, at about the same time.
        self._chunk_text = lru_cache(maxsize=256)(self._decode_chunk)

    def start(self, reading: Reading) -> State:
        assert reading.document.chunks, "a reading has at least one chunk"
        return State(reading, self._new_history())

    def requests(self, state: State) -> tuple[TurnRequest, ...]:
        if state.answer is not None:
            return ()
        slots = {
            PROBLEM: state.reading.question_ids,
            MEMORY: state.memory or self._empty,
            RECALLED: state.recalled or self._no_recall,
        }
        chunks = state.reading.document.chunks
        if state.next_chunk < len(chunks):
            prompt = self._memory_turn.fill(slots | {SECTION: chunks[state.next_chunk]})
            return (TurnRequest(TurnKind.MEMORY, prompt, self._limits.max_memory),)
        return (TurnRequest(TurnKind.FINAL, self._final_turn.fill(slots), self._limits.max_final),)

    def advance(self, state: State, generations: Sequence[Generation]) -> State:
        (reply,) = generations
        if state.next_chunk == len(state.reading.document.chunks):
            opened = self._final_turn.thinking_open
            return replace(state, answer=self._vocabulary.answer_text(reply.token_ids, thinking_open=opened))
        opened = self._memory_turn.thinking_open
        ids = self._vocabulary.memory_ids(reply.token_ids, limit=len(reply.token_ids), thinking_open=opened)
        text = self._vocabulary.decode(ids)
        read = read_reply(text, self._examples)
        memory = state.memory
        if read.update:
            part = self._vocabulary.part_ids(ids, read.update.start, read.update.end)
            memory = tuple(part[: self._limits.max_memory])
        query = text[read.recall.start : read.recall.end] if read.recall else ""
        recalled = state.history.find(query, now=memory) if query else ()
        before = state.steps[-1].after if state.steps else ""
        step = Step(read.good, before, self._vocabulary.decode(memory), self._vocabulary.decode(recalled))
        return replace(
            state,
            history=state.history.add(memory, step.after),
            next_chunk=state.next_chunk + 1,
            memory=memory,
            recalled=recalled,
            steps=(*state.steps, step),
            updates=state.updates + (read.update is not None),
            recalls=state.recalls + bool(query),
            truncated_memories=state.truncated_memories + (reply.stop is StopReason.LENGTH),
        )

    def memory(self, state: State) -> tuple[int, ...]:
        return state.memory

    def answer(self, state: State) -> str:
        return state.answer or ""

    def counts(self, state: State) -> dict[str, float]:
        document = state.reading.document
        return {
            "chunks": len(document.chunks),
            "document_tokens": document.tokens,
            "dropped_tokens": document.dropped,
            "memory_tokens": len(state.memory),
            "empty_updates": state.next_chunk - state.updates,
            "truncated_memories": state.truncated_memories,
            "updates": state.updates,
            "recalls": state.recalls,
            "recall_hits": sum(bool(step.recalled) for step in state.steps),
            "format_failures": sum(not step.good for step in state.steps),
        }

    def steps(self, trajectory: Trajectory) -> list[Step]:
        """The memory turns of a finished trajectory as its state rewards see them."""
        steps, reading = trajectory.state.steps, trajectory.state.reading
        assert len(trajectory.turns) == len(steps) + 1, "the final turn follows the memory turns"
        recalled = ["", *(step.recalled for step in steps)]
        return [
            replace(step, prompt=partial(self._shown, reading, chunk, step.before, recalled[number]))
            for number, (step, chunk) in enumerate(zip(steps, reading.document.chunks, strict=True))
        ]

    def _shown(self, reading: Reading, chunk: Sequence[int], *kept: str) -> str:
        """What a turn's prompt tells: the question, the section and what was kept."""
        return "\n".join([self._vocabulary.decode(reading.question_ids), self._chunk_text(bytes(chunk)), *kept])

    def _decode_chunk(self, chunk: bytes) -> str:
        return self._vocabulary.decode(memoryview(chunk).cast("I"))
