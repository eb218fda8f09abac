"""The wording of a memory agent's turns, and its assembly from token ids.

A template is text with slots ``{problem}``, ``{section}``, ``{memory}``, ``{recalled}``, ``{notes}``; everything else,
braces included, is literal. It is placed as one user message into the model's chat template and tokenised ONCE, in the
pieces between the slots; a prompt is then the concatenation of ready ids, and nothing is ever decoded and encoded
again.

Worked example, layout ``section_first``, ids in brackets::

    pieces : [chat head, instructions, <problem>] | [</problem> <section>] | [</section> <memory>] | [</memory>, tail]
    slots  :                                  problem                 section                 memory
    prompt : piece0 + question ids + piece1 + chunk ids + piece2 + memory ids + piece3

In this order all siblings of a group share everything up to the memory, so an engine computes a chunk once for the
whole group. ``memory_first`` is the published order. ``MEM_PROMPTS`` names a YAML file with the keys ``memory``,
``final``, ``empty_memory``, ``no_recall`` and the names of the turns that only some agents or EVAL_MODEs have (all
optional) that replaces the wording, e.g. by that of published weights (``published.py``).

``MEM_QUERY_BLIND=1``: no turn but the final one has a slot for the problem, so no agent can show it before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..system.errors import ConfigError, reason_of
from .chat_frame import ChatFrame as Frame
from .records import TurnKind, TurnRequest
from .vocabulary import Vocabulary

PROBLEM, SECTION, MEMORY, RECALLED, NOTES = "problem", "section", "memory", "recalled", "notes"
SLOT = re.compile(r"\{(problem|section|memory|recalled|notes)\}")


@dataclass(frozen=True, slots=True)
class Wording:
    """How one kind of turn is worded: instructions, a block for each slot, and the line before the reply."""

    instructions: str
    slots: tuple[str, ...]
    ending: str
    blind: str = ""
    """The instructions while the problem is hidden; empty for a turn that shows it all the same."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """The tags around a slot's block, where they are not called as the slot."""

    def visible(self, blind: bool) -> tuple[str, ...]:
        return tuple(slot for slot in self.slots if not (blind and self.blind and slot == PROBLEM))

    def template(self, layout: str, blind: bool) -> str:
        slots = list(self.visible(blind))
        if layout == "memory_first" and {SECTION, MEMORY} <= set(slots):
            slots.remove(SECTION)
            slots.append(SECTION)
        instructions = self.blind if blind and self.blind else self.instructions
        return f"{instructions}\n\n" + "".join(map(self._block, slots)) + f"{self.ending}\n"

    def _block(self, slot: str) -> str:
        tag = self.tags.get(slot, slot)
        return f"<{tag}>\n{{{slot}}}\n</{tag}>\n\n"


_COMMON = {
    "memory": Wording(
        "You are reading a long document one section at a time in order to solve a problem. Rewrite your memory after "
        "this section: keep every old detail that may still matter, add what the section contributes to the problem, "
        "leave out everything else. When you answer, this memory is all you will have.",
        (PROBLEM, SECTION, MEMORY),
        "Updated memory:",
        blind="You are reading a long document one section at a time; what you will be asked about it is not known "
        "yet. Rewrite your memory after this section: keep the old details and add those of the section that a "
        "question could be about. When you are asked, this memory is all you will have.",
    ),
    "final": Wording(
        "You have read a long document and kept a memory of it. Solve the problem from this memory and write the "
        "final answer inside \\boxed{}.",
        (PROBLEM, MEMORY),
        "Answer:",
    ),
}


_MARKERS = ("empty_memory", "no_recall")


@dataclass(frozen=True, slots=True)
class Prompts:
    """Template texts of the turns, and what stands for a memory that is still empty and for nothing recalled."""

    memory: str
    final: str
    empty_memory: str = "Nothing yet."
    no_recall: str = "Nothing was recalled."
    own: Mapping[str, str] = field(default_factory=dict)
    """Templates of the turns that only some agents have, by name."""


def load_prompts(
    layout: str, override: str = "", own: Mapping[str, Wording] | None = None, blind: bool = False
) -> Prompts:
    """The pack's wording in ``layout``, with the entries of the YAML file ``override`` in their place.

    Args:
        own: wording of the agents' own turns; an override may have the wording of agents that are not in use.
        blind: hide the problem until the final turn.

    Raises:
        ConfigError: the file is missing or not a mapping, has unknown keys, or a template lacks a slot.
    """
    wording = {**_COMMON, **(own or {})}
    texts = {name: w.template(layout, blind) for name, w in wording.items()}
    values = {**texts, **read_prompts(override, own)}
    for name, one in wording.items():
        _require_slots(override or layout, name, values[name], one.visible(blind), blind)
    common = {name: values.pop(name) for name in (*_COMMON, *_MARKERS) if name in values}
    return Prompts(**common, own=values)


def read_prompts(override: str, own: Mapping[str, Wording] | None = None) -> dict[str, str]:
    """The entries of the YAML file ``override``, none without one.

    Raises:
        ConfigError: the file is missing or not a mapping, or has unknown keys.
    """
    if not override:
        return {}
    try:
        content = yaml.safe_load(Path(override).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"MEM_PROMPTS={override!r}: cannot be read: {reason_of(error)}") from None
    allowed = (*_COMMON, *(own or {}), *_MARKERS)
    if not isinstance(content, dict) or not all(k in allowed and isinstance(v, str) for k, v in content.items()):
        raise ConfigError(f"MEM_PROMPTS={override!r}: allowed: a mapping of {', '.join(allowed)} to texts")
    return content


def _require_slots(source: str, name: str, text: str, slots: Sequence[str], blind: bool) -> None:
    found = sorted(SLOT.findall(text))
    if found != sorted(slots):
        hidden = " while MEM_QUERY_BLIND=1 hides the problem" if blind and PROBLEM not in slots else ""
        raise ConfigError(
            f"{source}: template `{name}` needs each of {', '.join(slots)} once as {{slot}}{hidden}, has {found}"
        )


@dataclass(frozen=True, slots=True)
class TokenTemplate:
    """``pieces[0] + slot 0 + pieces[1] + slot 1 + ... + pieces[-1]``, all token ids."""

    pieces: tuple[tuple[int, ...], ...]
    slots: tuple[str, ...]
    thinking_open: bool
    """The prompt ends inside an opened ``<think>``: a reply without ``</think>`` is all thinking."""

    def fill(self, values: Mapping[str, Sequence[int]]) -> list[int]:
        """The prompt's ids; ``values`` holds the ids of every slot."""
        ids = list(self.pieces[0])
        for slot, piece in zip(self.slots, self.pieces[1:], strict=True):
            ids.extend(values[slot])
            ids.extend(piece)
        return ids

    def request(self, kind: TurnKind, values: Mapping[str, Sequence[int]], max_new_tokens: int) -> TurnRequest:
        """A turn of this template."""
        return TurnRequest(kind, self.fill(values), max_new_tokens, self._shared(values), self.places(values))

    def places(self, values: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, int]]:
        """Where in the filled prompt each slot's ids lie."""
        found, at = {}, len(self.pieces[0])
        for slot, piece in zip(self.slots, self.pieces[1:], strict=True):
            found[slot] = at, at + len(values[slot])
            at += len(values[slot]) + len(piece)
        return found

    def _shared(self, values: Mapping[str, Sequence[int]]) -> int:
        """Ids before the first slot whose content a trajectory wrote or found itself."""
        count = len(self.pieces[0])
        for slot, piece in zip(self.slots, self.pieces[1:], strict=True):
            if slot not in (PROBLEM, SECTION):
                break
            count += len(values[slot]) + len(piece)
        return count


def chat_frame(tokenizer: Any, thinking: bool, extra: Mapping[str, Any]) -> Frame:
    """The model's chat template under MEM_THINKING and the host's own options."""
    return Frame(tokenizer, {"enable_thinking": thinking, **extra})


def compile_template(text: str, frame: Frame, vocabulary: Vocabulary) -> TokenTemplate:
    """Tokenise the fixed pieces of ``text`` inside the chat ``frame``.

    Raises:
        ConfigError: the chat template drops, repeats or rewrites a user message.
    """
    slots = tuple(SLOT.findall(text))
    # Markers of letters and digits only survive any escaping that a chat template may do.
    markers = {slot: f"MEMSLOT{slot.upper()}X7Q" for slot in slots}
    rendered = frame(SLOT.sub(lambda match: markers[match[1]], text))
    pieces = re.split("|".join(markers.values()), rendered)
    if [rendered.count(m) for m in markers.values()] != [1] * len(slots) or len(pieces) != len(slots) + 1:
        raise ConfigError("the model's chat template does not show a user message once and unchanged")
    encoded = tuple(tuple(vocabulary.encode_markup(p)) if p else () for p in pieces)
    return TokenTemplate(encoded, slots, opens_thinking(pieces[-1]))


def opens_thinking(tail: str) -> bool:
    """Whether a prompt that ends so leaves the model inside its thinking."""
    return tail.rfind("<think>") > tail.rfind("</think>")
