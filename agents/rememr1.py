"""ReMemR1: read chunk by chunk like MemAgent, but keep all earlier memories and ask for them again.

Source: ReMemR1, arXiv 2509.23040, section 3; its released code where the two differ, see below.

A document of chunks c1, c2, c3 gives four turns; ``m`` are memories, ``q`` queries, ``r`` recalled memories::

    turn 1  MEMORY  problem, c1, nothing recalled, empty marker -> m1, no query   r1 = nothing   history m1
    turn 2  MEMORY  problem, c2, r1, m1                         -> m2, q2         r2 = m1        history m1 m2
    turn 3  MEMORY  problem, c3, r2, m2                         -> m3, q3         r3 = m1 or m2  history m1 m2 m3
    turn 4  FINAL   problem, r3, m3                             -> answer

Invariants:
- a memory is the content of ``<update>``, cut out of the reply's text and encoded again, capped;
- a reply without a usable update keeps the previous memory and counts as an empty update; a reply without a usable
  recall recalls nothing; a recall holds for the next turn only. No reply ends the trajectory;
- q_t is answered from m_1 .. m_(t-1), before m_t joins them (``recall``);
- tags in a document are text like any other: only replies are read.

A reply is good when it has exactly one update, at most one recall, neither of them blank, and no tag out of place.
A reply that is not good may still be used in part: an update or a recall counts if it is the only one of its
name, closed, not blank and without a tag inside::

    reply                                          update   recall   good
    <update>a</update>                             a        -        yes
    <thinking>t</thinking><update>a</update>
        <recall>q</recall>                         a        q        yes
    <update>a</update><recall>q                    a        -        no     unclosed
    <update>a</update><recall>q</recall>
        <recall>r</recall>                         a        -        no     which of them?
    <update>a</update><update>b</update>           -        -        no
    <update>a<recall>q</recall></update>           -        -        no     nested
    <thinking>t <update>a</update>                 -        -        no     all of it is thinking
    <update>...</update>                           -        -        no     blank: not one letter or digit

The prompt's own examples between these tags count as blank too: a reply that echoes them says nothing.

The released code keeps everything outside ``<recall>``, thinking and tags included, as the memory, reads tags on one
line only, joins two recalls into one, and shows an example query that models then repeat. For its checkpoints and its
tables, ``carry=reply recall=tfidf_tokens`` makes every prompt its own, with ``recall_order=add_first`` for its
evaluation (its training asks first), MEM_LAYOUT and MEM_PROMPTS. Two ablations: ``recall_query=question`` (the
question is asked after every section) and ``none``.

Each turn earns a reward of its own (``rewards.turn_rewards``), and its advantage is mixed with the outcome's by
``alpha``: ``alpha * outcome + (1 - alpha) * state_weight * state``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from ..config import Config, ConfigError
from ..rewards.turn_rewards import Step, published_state_rewards, state_rewards
from . import memagent
from .interface import Reading
from .prompts import PROBLEM, RECALLED, Frame, Prompts
from .recall import history_by
from .records import Generation, Section, Trajectory, Turn, TurnRequest
from .vocabulary import Vocabulary


@dataclass(frozen=True)
class ReMemR1Settings(memagent.CarrySettings):
    recall: Literal["tfidf", "bm25", "embedding", "tfidf_tokens"] = "tfidf"
    """How an earlier memory is found (``recall``)."""
    recall_model: str = ""
    """``recall=embedding``: a sentence-transformers folder or hub id."""
    recall_order: Literal["ask_first", "add_first"] = "ask_first"
    """A query is answered before the memory written with it joins the history, or after."""
    recall_query: Literal["reply", "question", "none"] = "reply"
    """Who asks: the reply, or by rule the question after every section, or nobody."""
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Weight of the outcome's advantage; the rest is that of each turn's state reward."""
    state_reward: Literal["words", "published"] = "words"
    """By whole words and well-formed replies, or by the released functions."""
    state_weight: Annotated[float, Field(ge=0)] = 1.0
    """Factor of the state reward's advantage; the released code counts it twice: 2."""

    def __post_init__(self) -> None:
        if self.recall == "embedding" and not self.recall_model:
            raise ConfigError("AGENT_ARGS: recall=embedding needs recall_model, an embedding model")
        if self.query_blind and self.recall_query == "question":
            raise ConfigError("AGENT_ARGS: recall_query=question asks what query_blind=1 hides; leave one out")


@dataclass(frozen=True, slots=True)
class State(memagent.State):
    history: Any = None
    """A ``recall.History``."""
    recalled: tuple[int, ...] | None = None
    """None if nothing was recalled; empty if ``tfidf_tokens`` found an empty memory."""
    steps: tuple[Step, ...] = ()
    """The memory turns so far, without their prompts."""


class ReMemR1(memagent.MemAgent):
    """The agent with a revisitable memory (``AGENT=rememr1``)."""

    Settings, state_type, memory_name, final_name = ReMemR1Settings, State, "revisit", "revisit_final"
    settings: ReMemR1Settings
    counted = (*memagent.MemAgent.counted, "updates", "recalls", "recall_hits", "format_failures")

    def __init__(self, config: Config, vocabulary: Vocabulary, prompts: Prompts, frame: Frame) -> None:
        super().__init__(config, vocabulary, prompts, frame)
        model, trusted = self.settings.recall_model, config.trust_remote_code
        self._new_history = partial(history_by, self.settings.recall, model, trusted, vocabulary.tokenizer.tokenize)
        self._no_recall = tuple(vocabulary.encode_text(prompts["no_recall"]))
        self._examples = examples_in(prompts[self.memory_name])

    def start(self, reading: Reading) -> State:
        return State(reading, history=self._new_history())

    def requests(self, state: State) -> tuple[TurnRequest, ...]:
        return tuple(replace(request, recalled=state.recalled or ()) for request in super().requests(state))

    def slots(self, state: State) -> dict[str, Sequence[int]]:
        return super().slots(state) | {RECALLED: self._no_recall if state.recalled is None else state.recalled}

    def filled(self, state: State, ids: Sequence[int]) -> State:
        return replace(super().filled(state, ids), recalled=max(tuple(ids), self._no_recall, key=len))

    def update(self, state: State, reply: Generation) -> State:
        update, recall, good = read_reply(self.said(reply), self._examples)
        if self.carries_reply:
            whole = self.vocabulary.reply_text(reply.token_ids)
            memory = self.encoded(_CLOSED_RECALL.sub("", whole).strip())
            asked = _RELEASED_QUERY.search(whole)
            query = asked[1] if asked else ""
        else:
            memory = self.encoded(update) if update else state.memory
            query = recall or ""
        if self.settings.recall_query == "question":
            query = self.vocabulary.decode(state.reading.question_ids)
        elif self.settings.recall_query == "none":
            query = ""
        text = self.vocabulary.decode(memory)
        history = state.history.add(text)
        late = self.settings.recall_order == "add_first"
        found = history.find(query) if late else state.history.find(query, now=text)
        before = state.steps[-1].after if state.steps else ""
        shown = self.vocabulary.decode(self._no_recall) if found is None else found
        counted = state.plus(
            updates=update is not None, recalls=bool(query), recall_hits=bool(found), format_failures=not good,
            empty_updates=not memory if self.carries_reply else update is None)
        return replace(
            counted, history=history, memory=memory, recalled=None if found is None else self.encoded(found),
            steps=(*state.steps, Step(good, before, text, found or "", shown_recall=shown)))

    # --- what turns earn by themselves ------------------------------------------------------------------------------

    def turn_rewards(
        self, trajectory: Trajectory, golds: Sequence[str], metadata: Mapping[str, Any]
    ) -> list[Mapping[str, float]]:
        state = trajectory.state
        if not state.steps:  # of a task without a document
            return []
        turns = trajectory.turns[:-1]
        if self.settings.state_reward == "published":
            text = self.vocabulary.reply_text
            texts = [(text(turn.prompt_ids), text(turn.response_ids)) for turn in turns]
            return [*published_state_rewards(state.steps, texts, trajectory.answer, golds)]
        prompts = [partial(self._shown, state, number, turn) for number, turn in enumerate(turns)]
        return [*state_rewards(state.steps, prompts, trajectory.answer, golds)]

    def _shown(self, state: State, number: int, turn: Turn) -> list[str]:
        """What the prompt of a memory turn showed: question, section, memory, recalled memory."""
        decode, place = self.vocabulary.decode, cast(Section, turn.section)
        asked = state.reading.question_ids if PROBLEM in self.memory_turn.slots else ()
        recalled = state.steps[number - 1].recalled if number else ""
        return [decode(asked), decode(turn.prompt_ids[place.start : place.end]), state.steps[number].before, recalled]


# --- replies ------------------------------------------------------------------------------------------------------

_BLOCK = re.compile(r"<(thinking|update|recall)>(?:(.*?)</\1>|.*)", re.DOTALL)
"""A block, or one that is never closed and takes all of the rest."""
_TAG = re.compile(r"</?(?:thinking|update|recall)>")
_CLOSED_RECALL = re.compile(r"<recall>.*?</recall>", re.DOTALL)
_RELEASED_QUERY = re.compile(r"<recall>(.+)</recall>")
"""In released code: from the first tag to the last one of a line."""


def read_reply(text: str, examples: frozenset[str] = frozenset()) -> tuple[str | None, str | None, bool]:
    """Its update, its recall, and whether it is good; ``examples`` are contents that count as blank."""
    blocks: dict[str, list[str | None]] = {"thinking": [], "update": [], "recall": []}
    for name, content in (found.groups() for found in _BLOCK.finditer(text)):
        talks_of_tags = content is not None and name != "thinking" and _TAG.search(content)
        blocks[name].append(None if content is None or talks_of_tags else content.strip())
    update, recall = (_only(blocks[name], examples) for name in ("update", "recall"))
    well_asked = recall is not None or not blocks["recall"]
    in_place = None not in blocks["thinking"] and not _TAG.search(_BLOCK.sub(" ", text))
    return update, recall, update is not None and well_asked and in_place


def _only(contents: Sequence[str | None], examples: frozenset[str]) -> str | None:
    if len(contents) != 1 or contents[0] is None or contents[0] in examples:
        return None
    return contents[0] if re.search(r"\w", contents[0]) else None


def examples_in(template: str) -> frozenset[str]:
    """What a prompt's template itself puts between the tags."""
    return frozenset(found[2].strip() for found in _BLOCK.finditer(template) if found[2] and not _TAG.search(found[2]))
