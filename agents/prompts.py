"""The wording of an agent's turns (``prompts.yaml``), and its assembly from token ids.

A template is text with slots ``{problem}``, ``{section}``, ``{memory}``, ``{recalled}``, ``{notes}``; everything else,
braces included, is literal. It is placed as one user message into the model's chat template and tokenised ONCE, in the
pieces between the slots; a prompt is then the concatenation of ready ids.

Worked example, layout ``section_first``, ids in brackets::

    pieces : [chat head, instructions, <problem>] | [</problem> <section>] | [</section> <memory>] | [</memory>, tail]
    slots  :                                  problem                 section                 memory
    prompt : piece0 + question ids + piece1 + chunk ids + piece2 + memory ids + piece3

In this order all siblings of a group share everything up to the memory, so an engine computes a chunk once for the
whole group. ``memory_first`` is the published order. ``MEM_PROMPTS`` names a YAML file that replaces whole templates
by their names in ``prompts.yaml``, e.g. by those of published weights (``published.py``).

**Where a chat template has no place for a system message** (it refuses the role, or leaves the text out), the system
message stands at the head of the first user message, a blank line between them. Models without a chat template get
bare texts, those of a conversation each with a blank line behind it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from ..system.errors import ConfigError, reason_of
from .records import Message, Role, Section, TurnKind, TurnRequest
from .vocabulary import Vocabulary

PROBLEM, SECTION, MEMORY, RECALLED, NOTES = "problem", "section", "memory", "recalled", "notes"
SLOT = re.compile(r"\{(problem|section|memory|recalled|notes)\}")
Prompts = Mapping[str, str]
"""Every turn's template by name, and what stands for a memory that is still empty and for nothing recalled."""
TEXTS: dict[str, str] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_BLOCK = "<section>\n{section}\n</section>\n\n"


def load_prompts(layout: str, override: str = "", own: Prompts | None = None, blind: bool = False) -> Prompts:
    """The pack's wording in ``layout``, with the entries of the YAML file ``override`` in their place.

    Args:
        own: further templates, in layout ``section_first``.
        blind: hide the problem until the final turn.

    Raises:
        ConfigError: the file is missing or not a mapping, has unknown keys, or a template lacks a slot.
    """
    texts = TEXTS | dict(own or {})
    seen = texts | {name.removesuffix("_blind"): texts[name] for name in texts if blind and name.endswith("_blind")}
    built_in = {name: _in_layout(text, layout) for name, text in seen.items() if not name.endswith("_blind")}
    if not override:
        return built_in
    try:
        own_texts = {name: str(text) for name, text in yaml.safe_load(Path(override).read_text("utf-8")).items()}
        for name, text in own_texts.items():
            slots, found = SLOT.findall(built_in[name]), SLOT.findall(text)
            if sorted(found) != sorted(slots):
                hidden = " while query_blind=1 hides the problem" if blind else ""
                raise ValueError(f"`{name}` needs the slots {slots} once{hidden}, has {found}")
    except (OSError, ValueError, LookupError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(f"MEM_PROMPTS={override!r}: {reason_of(error)}; allowed: a mapping of {', '.join(built_in)} "
                          "to texts") from None
    return built_in | own_texts


def _in_layout(text: str, layout: str) -> str:
    """``memory_first``: the section's block moved behind the last other one, before the line that asks for a reply."""
    if layout == "section_first" or _BLOCK not in text:
        return text
    blocks, blank_line, ending = text.replace(_BLOCK, "").rpartition("\n\n")
    return blocks + blank_line + _BLOCK + ending


# --- the chat template around it ----------------------------------------------------------------------------------


class Frame:
    """Called with the text of one user message, it gives the text of the whole prompt, up to where the reply begins.

    Args:
        options: of the chat template.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._shown = partial(tokenizer.apply_chat_template, tokenize=False, add_generation_prompt=True, **options)

    def __call__(self, content: str) -> str:
        """Raises ConfigError where the template refuses it."""
        return self.conversation([Message(Role.USER, content)]) if self._tokenizer.chat_template else content

    def conversation(self, messages: Sequence[Message]) -> str:
        """The text of the prompt for these messages. Raises ConfigError where the template refuses them."""
        if not self._tokenizer.chat_template:
            return "".join(f"{message.text}\n\n" for message in messages)
        chat = [{"role": message.role.value, "content": message.text} for message in messages]
        try:
            return self._shown(chat)
        except Exception as error:  # a template is a program: it ends in whatever its author raises
            roles = ", ".join(message.role for message in messages)
            raise ConfigError(f"the model's chat template refuses {roles}: {reason_of(error)}") from error


def chat_frame(tokenizer: Any, thinking: bool, extra: Mapping[str, Any]) -> Frame:
    """The model's chat template under MEM_THINKING and the host's own options."""
    return Frame(tokenizer, {"enable_thinking": thinking, **extra})


# --- token ids ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenTemplate:
    """``pieces[0] + slot 0 + pieces[1] + slot 1 + ... + pieces[-1]``, all token ids."""

    pieces: tuple[tuple[int, ...], ...]
    slots: tuple[str, ...]
    thinking_open: bool
    """The prompt ends inside an opened ``<think>``: a reply without ``</think>`` is all thinking."""

    def fill(self, values: Mapping[str, Sequence[int]]) -> list[int]:
        """The prompt's ids; ``values`` holds the ids of every slot."""
        return self.request(TurnKind.MEMORY, values, 0).prompt_ids

    def request(
        self, kind: TurnKind, values: Mapping[str, Sequence[int]], max_new_tokens: int, section: int | None = None
    ) -> TurnRequest:
        """A turn of this template; ``section`` is the number of the chunk that it shows."""
        ids, shared, place, own = list(self.pieces[0]), len(self.pieces[0]), None, False
        for slot, piece in zip(self.slots, self.pieces[1:], strict=True):
            if slot == SECTION and section is not None:
                place = Section(section, len(ids), len(ids) + len(values[slot]))
            ids += [*values[slot], *piece]
            own = own or slot not in (PROBLEM, SECTION)  # what a trajectory wrote or found itself
            shared = shared if own else len(ids)
        told = place is not None or SECTION not in self.slots
        return TurnRequest(kind, ids, max_new_tokens, shared, place, told=told)


def compile_template(text: str, frame: Frame, vocabulary: Vocabulary) -> TokenTemplate:
    """Tokenise the fixed pieces of ``text`` inside the chat ``frame``.

    Raises:
        ConfigError: the chat template drops, repeats or rewrites a user message.
    """
    slots = SLOT.findall(text)
    return _cut_at_markers(frame(SLOT.sub(lambda match: _marker(slots.index(match[1])), text)), slots, vocabulary)


def compile_chat(
    before: Sequence[Message], frame: Frame, vocabulary: Vocabulary
) -> tuple[TokenTemplate, dict[str, list[int]]]:
    """The prompt of a question behind these messages, and the messages' ids by slot.

    Raises:
        ConfigError: the chat template cannot show them, or not the question last.
    """
    texts = {str(number): vocabulary.encode_text(each.text) for number, each in enumerate(before)}
    marked = [Message(each.role, _marker(number)) for number, each in enumerate(before)]
    marked += [Message(Role.USER, _marker(len(before)))]
    try:
        template = _cut_at_markers(frame.conversation(marked), [*texts, PROBLEM], vocabulary)
    except ConfigError:
        if marked[0].role is not Role.SYSTEM:
            raise
        system, first, *rest = marked  # it has no place for a system message
        marked = [Message(Role.USER, f"{system.text}\n\n{first.text}"), *rest]
        template = _cut_at_markers(frame.conversation(marked), [*texts, PROBLEM], vocabulary)
    # Some templates put the system message beside the question; the order is theirs, except for the question's.
    if template.slots[-1] != PROBLEM:
        raise ConfigError("the model's chat template does not show the question last")
    return template, texts


def _marker(number: int) -> str:
    """Stands for slot ``number``. Letters and digits survive any escaping that a chat template may do."""
    return f"MEMSLOT{number}X7Q"


def _cut_at_markers(rendered: str, slots: Sequence[str], vocabulary: Vocabulary) -> TokenTemplate:
    """A rendered prompt with the markers of ``slots``, in whatever order it shows them.

    Raises:
        ConfigError: it does not show each of them once.
    """
    pieces, numbers = re.split(r"MEMSLOT\d+X7Q", rendered), re.findall(r"MEMSLOT(\d+)X7Q", rendered)
    if sorted(map(int, numbers)) != list(range(len(slots))):
        raise ConfigError("the model's chat template does not show every message once and unchanged")
    first, *others = (vocabulary.encode_markup(piece) if piece else [] for piece in pieces)
    encoded = (tuple(vocabulary.beginning(first)), *map(tuple, others))
    return TokenTemplate(encoded, tuple(slots[int(number)] for number in numbers), opens_thinking(pieces[-1]))


def opens_thinking(tail: str) -> bool:
    """Whether a prompt that ends so leaves the model inside its thinking."""
    return tail.rfind("<think>") > tail.rfind("</think>")
