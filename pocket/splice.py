"""Prompts as spliced token ids: fixed template pieces are tokenised once, and slot ids go between them unmerged.

A stand-in for the pack's own prompt builder in ``agents/``; the two must give the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SLOT = re.compile(r"\{(problem|section|memory)\}")


@dataclass(frozen=True)
class Template:
    """A rendered chat prompt cut at its slots: ``pieces`` has one more entry than ``slots``."""

    pieces: tuple[tuple[int, ...], ...]
    slots: tuple[str, ...]


@dataclass(frozen=True)
class Prompts:
    """The two templates of the agent, and the ids that stand for a memory that holds nothing."""

    memory: Template
    final: Template
    empty_memory: tuple[int, ...]


def encode(tokenizer: Any, text: str) -> list[int]:
    """The ids of ``text`` alone, with nothing added."""
    return list(tokenizer.encode(text, add_special_tokens=False))


def make_template(tokenizer: Any, text: str) -> Template:
    """Chat-render ``text`` as one user message with the generation prompt, and tokenise what lies between slots."""
    rendered = tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
    )
    parts = SLOT.split(rendered)
    return Template(tuple(tuple(encode(tokenizer, part)) for part in parts[::2]), tuple(parts[1::2]))


def load_prompts(tokenizer: Any, path: Path | str) -> Prompts:
    """The prompts of a YAML file with the keys ``memory``, ``final`` and ``empty_memory``."""
    raw = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    return Prompts(
        make_template(tokenizer, raw["memory"]),
        make_template(tokenizer, raw["final"]),
        tuple(encode(tokenizer, raw["empty_memory"])),
    )


def splice(template: Template, **ids: Sequence[int]) -> list[int]:
    """piece, slot, piece, ... as one row of ids."""
    out = list(template.pieces[0])
    for slot, piece in zip(template.slots, template.pieces[1:], strict=True):
        out.extend(ids[slot])
        out.extend(piece)
    return out
