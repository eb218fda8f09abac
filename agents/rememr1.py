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
Its behaviour is a matter of settings, for its checkpoints and its tables; together they make every prompt its own::

    MEM_CARRY=reply                what it carries and how it reads a query (``released_reply``); text, encoded again
    MEM_RECALL=tfidf_tokens        its retriever
    MEM_RECALL_ORDER=add_first     the order of its evaluation; its training asks first
    MEM_LAYOUT, MEM_PROMPTS        its order of slots and its wording

and so are two ablations: ``MEM_RECALL_QUERY=question`` (rule-based recall: the question after every section) and
``none``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import ClassVar, Self

from ..config import Config, ConfigError
from ..rewards.memory_state import Step
from . import memagent
from .interface import Reading
from .prompts import MEMORY, PROBLEM, RECALLED, SECTION, Frame, Prompts, Wording
from .recall import History, histories
from .records import Generation, StopReason, Trajectory
from .released_reply import released_memory, released_query
from .tagged_reply import TaggedReply, examples_in, read_reply
from .vocabulary import Vocabulary

_FORM = (
    "Reply in this form:\n"
    "<thinking>...</thinking> {thinking}\n"
    "<update>...</update> your whole new memory, exactly once: every old detail that may still matter, and what "
    "is new; leave out everything else\n"
    "<recall>...</recall> at most once, and only if something is missing that an earlier memory may have held: "
    "the words to find it by; you will see it with the next section"
)
REVISIT = Wording(
    "You are reading a long document one section at a time in order to solve a problem, and you keep a memory of "
    "it. All your earlier memories are stored, and you can ask for one of them. "
    + _FORM.format(thinking="what the section and the recalled memory contribute to the problem, and what is missing"),
    (PROBLEM, SECTION, RECALLED, MEMORY),
    "Reply:",
    blind="You are reading a long document one section at a time; what you will be asked about it is not known yet. "
    "You keep a memory of it; all your earlier memories are stored, and you can ask for one of them. "
    + _FORM.format(thinking="what a question about the section and the recalled memory could ask for"),
)
_FINAL = Wording(
    "You have read a long document, kept a memory of it, and may have recalled an earlier one. Solve the problem "
    "from them and write the final answer inside \\boxed{}.",
    (PROBLEM, RECALLED, MEMORY),
    "Answer:",
)


@dataclass(frozen=True, slots=True)
class State(memagent.State):
    history: History | None = None
    recalled: tuple[int, ...] | None = None
    """None where nothing is; an empty memory may have been found by ``MEM_RECALL=tfidf_tokens``."""
    steps: tuple[Step, ...] = ()
    """The memory turns so far, without their prompts."""
    updates: int = 0
    recalls: int = 0


class ReMemR1(memagent.MemAgent):
    """The agent with a revisitable memory (``AGENT=rememr1``)."""

    state_type = State
    settings = frozenset({
        "mem_recall", "mem_recall_model", "mem_recall_order", "mem_recall_query", "mem_carry", "mem_evidence_reward",
    })
    add_first: bool = False
    """MEM_RECALL_ORDER=add_first"""
    asks: str = "reply"
    """MEM_RECALL_QUERY"""
    own_wording: ClassVar[Mapping[str, Wording]] = {"revisit": REVISIT, "revisit_final": _FINAL}

    def __init__(
        self,
        vocabulary: Vocabulary,
        prompts: Prompts,
        frame: Frame,
        limits: memagent.Limits,
        new_history: Callable[[], History],
        slow: bool = False,
    ) -> None:
        own = replace(prompts, memory=prompts.own["revisit"], final=prompts.own["revisit_final"])
        super().__init__(vocabulary, own, frame, limits)
        self._new_history = new_history
        self.slow = slow
        self._no_recall = tuple(vocabulary.encode_text(prompts.no_recall))
        self._examples = examples_in(own.memory)
        # Siblings of a group share their chunks.
        self._chunk_text = lru_cache(maxsize=256)(self._decode_chunk)

    @classmethod
    def check(cls, config: Config) -> None:
        super().check(config)
        if config.mem_recall == "embedding" and not config.mem_recall_model:
            raise ConfigError("MEM_RECALL_MODEL is empty; MEM_RECALL=embedding needs an embedding model")
        if config.mem_query_blind and config.mem_recall_query == "question":
            raise ConfigError("MEM_QUERY_BLIND=1: MEM_RECALL_QUERY='question' looks memories up by it; unset one")
        if config.mem_evidence_reward and config.mem_state_reward == "published":
            raise ConfigError("MEM_EVIDENCE_REWARD=1: MEM_STATE_REWARD='published' rewards no evidence; unset one")

    @classmethod
    def from_config(cls, config: Config, vocabulary: Vocabulary, prompts: Prompts, frame: Frame) -> Self:
        slow = config.mem_recall == "embedding"
        new_history = histories(config, vocabulary.tokenizer.tokenize)
        agent = cls(vocabulary, prompts, frame, memagent.Limits.of(config), new_history, slow)
        agent.whole_reply = config.mem_carry == "reply"
        agent.add_first = config.mem_recall_order == "add_first"
        agent.asks = config.mem_recall_query
        return agent

    @classmethod
    def model_settings(cls, config: Config) -> tuple[str, ...]:
        return ("mem_recall_model",) if config.mem_recall == "embedding" else ()

    @classmethod
    def without_models(cls, config: Config) -> Config:
        return replace(config, mem_recall="tfidf") if config.mem_recall == "embedding" else config

    def start(self, reading: Reading) -> State:
        return State(reading, history=self._new_history())

    def recalled(self, state: State) -> tuple[int, ...]:
        return state.recalled or ()

    def filled(self, state: State, ids: Sequence[int]) -> State:
        return replace(super().filled(state, ids), recalled=max(tuple(ids), self._no_recall, key=len))

    def _slots(self, state: State) -> dict[str, Sequence[int]]:
        return super()._slots(state) | {RECALLED: self._no_recall if state.recalled is None else state.recalled}

    def _after_reading(self, state: State, generations: Sequence[Generation]) -> State:
        (reply,) = generations
        opened = self._memory_turn.thinking_open
        ids = self._vocabulary.memory_ids(reply.token_ids, limit=len(reply.token_ids), thinking_open=opened)
        text = self._vocabulary.decode(ids)
        read = read_reply(text, self._examples)
        whole = self._vocabulary.reply_text(reply.token_ids) if self.whole_reply else ""
        memory = self._memory_of(state, ids, read, whole)
        query = self._query_of(state, text, read, whole)
        told = self._vocabulary.decode(memory)
        history, recalled = self._looked_up(state, memory, told, query)
        before = state.steps[-1].after if state.steps else ""
        found = self._vocabulary.decode(recalled or ())
        shown = self._vocabulary.decode(self._no_recall) if recalled is None else found
        step = Step(read.good, before, told, found, shown_recall=shown)
        return replace(
            state,
            history=history,
            next_chunk=state.next_chunk + 1,
            memory=memory,
            recalled=recalled,
            steps=(*state.steps, step),
            updates=state.updates + (read.update is not None),
            recalls=state.recalls + bool(query),
            empty_updates=state.empty_updates + (not memory if self.whole_reply else read.update is None),
            truncated_memories=state.truncated_memories + (reply.stop is StopReason.LENGTH),
        )

    def _memory_of(self, state: State, ids: Sequence[int], read: TaggedReply, whole: str) -> tuple[int, ...]:
        """The memory after a reply of the given ids; ``whole`` is its text where MEM_CARRY=reply."""
        if self.whole_reply:
            return tuple(self._vocabulary.encode_text(released_memory(whole))[: self._limits.max_memory])
        if read.update:
            part = self._vocabulary.part_ids(ids, read.update.start, read.update.end)
            return tuple(part[: self._limits.max_memory])
        return state.memory

    def _query_of(self, state: State, text: str, read: TaggedReply, whole: str) -> str:
        """What is asked after a turn; empty for nothing."""
        if self.asks == "none":
            return ""
        if self.asks == "question":
            return self._vocabulary.decode(state.reading.question_ids)
        if self.whole_reply:
            return released_query(whole)
        return text[read.recall.start : read.recall.end] if read.recall else ""

    def _looked_up(
        self, state: State, memory: tuple[int, ...], told: str, query: str
    ) -> tuple[History, tuple[int, ...] | None]:
        """The history with ``memory``, which reads ``told``, and what the query finds in it, or before it."""
        assert state.history is not None, "a state is made by start()"
        if self.add_first:
            history = state.history.add(memory, told)
            return history, history.find(query) if query else None
        found = state.history.find(query, now=memory) if query else None
        return state.history.add(memory, told), found

    def counts(self, state: State) -> dict[str, float]:
        return super().counts(state) | {
            "updates": state.updates,
            "recalls": state.recalls,
            "recall_hits": sum(bool(step.recalled) for step in state.steps),
            "format_failures": sum(not step.good for step in state.steps),
        }

    def state_steps(self, trajectory: Trajectory) -> list[Step]:
        steps, reading = trajectory.state.steps, trajectory.state.reading
        assert len(trajectory.turns) == len(steps) + 1, "the final turn follows the memory turns"
        recalled = ["", *(step.recalled for step in steps)]
        text = self._vocabulary.reply_text
        return [
            replace(
                step,
                prompt=partial(self._shown, reading, chunk, step.before, recalled[number]),
                whole_prompt=partial(text, turn.prompt_ids),
                reply=partial(text, turn.response_ids),
            )
            for number, (step, chunk, turn) in enumerate(
                zip(steps, reading.document.chunks, trajectory.turns[:-1], strict=True)
            )
        ]

    def _shown(self, reading: Reading, chunk: Sequence[int], *kept: str) -> tuple[str, ...]:
        """What a turn's prompt tells: the question unless it is hidden, the section and what was kept."""
        asked = (self._vocabulary.decode(reading.question_ids),) if PROBLEM in self._memory_turn.slots else ()
        return (*asked, self._chunk_text(bytes(chunk)), *kept)

    def _decode_chunk(self, chunk: bytes) -> str:
        return self._vocabulary.decode(memoryview(chunk).cast("I"))
