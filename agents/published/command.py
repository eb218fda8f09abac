"""Writes the wording of a published repository, read out of a checkout of it, as a file of this pack.

    mem-agent templates --checkout MemAgent --of memagent-eval --output memagent-eval.yaml

A file for ``MEM_PROMPTS``, or for ``mem-agent ruler --wording``; its head says where each text is from. The checkout
is parsed and nothing of it runs. Every text is compared by hash with that of the commit known here (``sets.py``):

====================================  ============================================================================
the text                              what becomes of it
====================================  ============================================================================
is the known one                      written
is another one, with all its slots    refused; ``--any-version`` writes it and says so
lacks a slot, or has one of its own   refused
====================================  ============================================================================

Invariant: equal texts give equal bytes, whatever else the checkout holds; so results made with them join.

Exit codes: 0 the file is written, 1 an error (one line says what is missing), 130 interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from ...system.atomic_file import write_atomically
from ...system.one_line_errors import one_line_errors
from ...system.printable import one_line
from ...system.signals import stop_on_signals
from .sets import SETS, Part, Template, TemplateSet
from .slots import SlotError, as_prompt, as_wording, halves, renamed, split
from .source import PublishedError, content_of, text_in

_WIDTH = 119


@dataclass(frozen=True, slots=True)
class Found:
    """A text of the checkout as this pack writes it."""

    text: str
    sha256: str
    """Of what the checkout holds."""


@one_line_errors("nothing was written")
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = _parser().parse_args(argv)
    _run(options.checkout, options.of, options.output, options.any_version)
    return 0


def _run(checkout: Path, name: str | None, output: Path, any_version: bool) -> None:
    if not checkout.is_dir():
        raise PublishedError(f"--checkout {checkout}: no such folder; name a git clone of {_repositories()}")
    name = name or recognised(checkout)
    chosen = SETS[name]
    found = {key: found_in(checkout, chosen, key) for key in chosen.templates}
    others = [key for key, template in chosen.templates.items() if found[key].sha256 != template.sha256]
    if others and not any_version:
        raise PublishedError(
            f"{_difference(checkout, chosen, others[0], found)}; its slots are all there: check out {chosen.commit} "
            f"of {chosen.repository}, or add --any-version to write it all the same"
        )
    for key in others:
        told = one_line(_difference(checkout, chosen, key, found))
        print(f"warning: {told}; written all the same", file=sys.stderr)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, file_text(name, found).encode())
    print(f"{output}: {', '.join(found)} of {chosen.repository} ({name}); use it as {chosen.used.format(output)}")


def recognised(checkout: Path) -> str:
    """The first set of the repository that this is a checkout of.

    Raises:
        PublishedError: it is none of them.
    """
    for name, one in SETS.items():
        if (checkout / one.mark).is_file():
            return name
    marks = dict.fromkeys(one.mark for one in SETS.values())
    raise PublishedError(
        f"--checkout {checkout}: no checkout of {_repositories()}, which have {', '.join(marks)}; "
        f"name another folder, or what it holds with --of {'|'.join(SETS)}"
    )


def found_in(checkout: Path, chosen: TemplateSet, key: str) -> Found:
    """The entry of that key.

    Raises:
        PublishedError: the checkout lacks the text, or the text has not the slots that it needs.
    """
    template = chosen.templates[key]
    try:
        text = text_in(checkout, template.file, template.name)
    except PublishedError as error:
        raise PublishedError(
            f"{error}, of which `{key}` is made; check out {chosen.commit} of {chosen.repository}"
        ) from None
    try:
        digest = hashlib.sha256(text.encode()).hexdigest()
    except UnicodeEncodeError:
        raise PublishedError(
            f"{checkout / template.file}: {template.name} has half a character, which no text can hold"
        ) from None
    try:
        return Found(_converted(text, template, chosen.for_prompts), digest)
    except SlotError as error:
        raise PublishedError(
            f"{checkout / template.file}: {template.name} {error}, so `{key}` cannot be made of it; it has sha256 "
            f"{digest[:16]}, that of {chosen.commit} of {chosen.repository} has {template.sha256[:16]}"
        ) from None


def _converted(text: str, template: Template, for_prompts: bool) -> str:
    for old, new in template.words:
        text = text.replace(old, new)
    pieces = renamed(split(text, template.style), template.slots, once=for_prompts)
    if template.part is not Part.WHOLE:
        document, question = halves(pieces, "document")
        pieces = document if template.part is Part.DOCUMENT else question
    return as_prompt(pieces) if for_prompts else as_wording(pieces)


def _difference(checkout: Path, chosen: TemplateSet, key: str, found: Mapping[str, Found]) -> str:
    template = chosen.templates[key]
    at = commit_of(checkout)
    return (
        f"{checkout / template.file}{f' at {at[:7]}' if at else ''}: {template.name} has sha256 "
        f"{found[key].sha256[:16]}, that of {chosen.commit} has {template.sha256[:16]}"
    )


def commit_of(checkout: Path) -> str:
    """The commit that is checked out; empty where the folder does not tell."""
    git = checkout / ".git"
    try:
        head = content_of(git, "HEAD").strip()
        if not head.startswith("ref: "):
            return head
        ref = head.removeprefix("ref: ")
        if (git / ref).is_file():
            return content_of(git, ref).strip()
        packed = (line.split() for line in content_of(git, "packed-refs").splitlines())
        return next((words[0] for words in packed if words[1:] == [ref]), "")
    except (OSError, ValueError):
        return ""


def file_text(name: str, found: Mapping[str, Found]) -> str:
    """What is written: a comment for each entry that says where it is from, and the entries."""
    chosen = SETS[name]
    head = [f"Texts of https://github.com/{chosen.repository}, under its licence; `mem-agent templates --of {name}`"]
    head += [
        f"{key}: {template.file} {template.name} sha256 {found[key].sha256}"
        + f", not that of {chosen.commit}" * (found[key].sha256 != template.sha256)
        for key, template in chosen.templates.items()
    ]
    texts = {key: one.text for key, one in found.items()}
    body = yaml.safe_dump(texts, sort_keys=False, width=_WIDTH, default_style='"')
    assert yaml.safe_load(body) == texts, "YAML keeps every character"
    return "".join(f"# {line}\n" for line in head) + body


def _repositories() -> str:
    return ", ".join(dict.fromkeys(one.repository for one in SETS.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mem-agent templates", description="Write a published repository's wording as a file of this pack."
    )
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR", help="a clone of the repository")
    parser.add_argument("--of", choices=SETS, help="which texts of it (the first that such a checkout has)")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the YAML file to write")
    parser.add_argument("--any-version", action="store_true",
                        help="write texts that are not those of the known commit, where their slots are all there")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
