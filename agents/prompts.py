"""The wording of a memory agent's turns, and its assembly from token ids.

A template is text with slots ``{problem}``, ``{section}``, ``{memory}`` and, where the agent looks back,
``{recalled}``; everything else, braces included, is literal. It is placed as one user message into the model's chat
template and tokenised ONCE, in the pieces between the slots; a prompt is then the concatenation of ready ids, and
nothing is ever decoded and encoded again.

Worked example, layout ``section_first``, ids in brackets::

    pieces : [chat head, instructions, <problem>] | [</problem> <section>] | [</section> <memory>] | [</memory>, tail]
    slots  :                                  problem                 section                 memory
    prompt : piece0 + question ids + piece1 + chunk ids + piece2 + memory ids + piece3

In this order all siblings of a group share everything up to the memory, so an engine computes a chunk once for the
whole group. ``memory_first`` is the published order. ``MEM_PROMPTS`` names a YAML file with the keys ``memory``,
``final``, ``empty_memory`` and ``no_recall`` (all optional) that replaces the wording, e.g. by that of published
weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..config import ConfigError
from .vocabulary import Vocabulary

PROBLEM, SECTION, MEMORY, RECALLED = "problem", "section", "memory", "recalled"
_SLOT = re.compile(r"\{(problem|section|memory|recalled)\}")

_INSTRUCTIONS = (
    "You are reading a long document one section at a time in order to solve a problem. Rewrite your memory after "
    "this section: keep every old detail that may still matter, add what the section contributes to the problem, "
    "leave out everything else. When you answer, this memory is all you will have.\n\n"
)
_BLOCK = "<{0}>\n{{{0}}}\n</{0}>\n\n"
_FINAL = (
    "You have read a long document and kept a memory of it. Solve the problem from this memory and write the final "
    "answer inside \\boxed{}.\n\n"
)


@dataclass(frozen=True, slots=True)
class Wording:
    """What an agent says itself; the layout adds the blocks of the slots."""

    memory: str
    """Instructions of a memory turn."""
    final: str
    kept: tuple[str, ...] = (MEMORY,)
    """Slots of what is kept of earlier sections, in the order in which both kinds of turns show them."""
    reply: str = "Updated memory:\n"
    """What a memory turn's prompt ends with."""

    def templates(self, layout: str) -> dict[str, str]:
        sections = (SECTION, *self.kept) if layout == "section_first" else (*self.kept, SECTION)
        return {
            "memory": self.memory + "".join(map(_BLOCK.format, (PROBLEM, *sections))) + self.reply,
            "final": self.final + "".join(map(_BLOCK.format, (PROBLEM, *self.kept))) + "Answer:\n",
        }


OVERWRITE = Wording(_INSTRUCTIONS, _FINAL)


@dataclass(frozen=True, slots=True)
class Prompts:
    """Template texts of the two kinds of turns, and what stands for a memory that is still empty."""

    memory: str
    final: str
    empty_memory: str = "Nothing yet."
    no_recall: str = "Nothing was recalled."


def load_prompts(layout: str, override: str = "", wording: Wording = OVERWRITE) -> Prompts:
    """``wording`` in ``layout``, with the entries of the YAML file ``override`` in their place.

    Raises:
        ConfigError: the file is missing or not a mapping, has unknown keys, or a template lacks a slot.
    """
    values = wording.templates(layout)
    if override:
        values |= _read_override(Path(override))
    prompts = Prompts(**values)
    _require_slots(override or layout, "memory", prompts.memory, (PROBLEM, SECTION, *wording.kept))
    _require_slots(override or layout, "final", prompts.final, (PROBLEM, *wording.kept))
    return prompts


def _read_override(path: Path) -> dict[str, str]:
    if not path.is_file():
        raise ConfigError(f"MEM_PROMPTS={str(path)!r}: no such file")
    try:
        content = yaml.safe_load(path.read_text())
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"MEM_PROMPTS={str(path)!r}: not YAML: {' '.join(str(error).split())}") from None
    allowed = ("memory", "final", "empty_memory", "no_recall")
    if not isinstance(content, dict) or not all(k in allowed and isinstance(v, str) for k, v in content.items()):
        raise ConfigError(f"MEM_PROMPTS={str(path)!r}: allowed: a mapping of {', '.join(allowed)} to texts")
    return content


def _require_slots(source: str, name: str, text: str, slots: Sequence[str]) -> None:
    found = sorted(_SLOT.findall(text))
    if found != sorted(slots):
        wanted = ", ".join(slots)
        raise ConfigError(f"{source}: template `{name}` needs each of {wanted} once as {{slot}}, has {found}")


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


def chat_frame(tokenizer: Any, thinking: bool, extra: Mapping[str, Any]) -> Callable[[str], str]:
    """One user message to the full prompt text. Models without a chat template get the bare text."""
    if not tokenizer.chat_template:
        return lambda content: content
    options = {"enable_thinking": thinking, **extra}

    def frame(content: str) -> str:
        messages = [{"role": "user", "content": content}]
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options)

    return frame


def compile_template(text: str, frame: Callable[[str], str], vocabulary: Vocabulary) -> TokenTemplate:
    """Tokenise the fixed pieces of ``text`` inside the chat ``frame``.

    Raises:
        ConfigError: the chat template drops, repeats or rewrites a user message.
    """
    slots = tuple(_SLOT.findall(text))
    # Markers of letters and digits only survive any escaping that a chat template may do.
    markers = {slot: f"MEMSLOT{slot.upper()}X7Q" for slot in slots}
    rendered = frame(_SLOT.sub(lambda match: markers[match[1]], text))
    pieces = re.split("|".join(markers.values()), rendered)
    if [rendered.count(m) for m in markers.values()] != [1] * len(slots) or len(pieces) != len(slots) + 1:
        raise ConfigError("the model's chat template does not show a user message once and unchanged")
    thinking_open = pieces[-1].rfind("<think>") > pieces[-1].rfind("</think>")
    return TokenTemplate(tuple(tuple(vocabulary.encode_markup(p)) if p else () for p in pieces), slots, thinking_open)
