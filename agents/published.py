"""``mem-agent templates``: the wording of a published repository, read from a checkout of it, as a file of this pack.

    mem-agent templates --checkout MemAgent --of memagent-eval --output memagent-eval.yaml

The file is for ``MEM_PROMPTS``, or for ``mem-agent ruler --wording``. The published texts are their authors' and are
not shipped; the checkout's files are parsed and never run. A text's slots depend on how the published code fills it:

===========  ====================================  ==================================================
fill         a slot                                everything else
===========  ====================================  ==================================================
``FORMAT``   ``{name}``, filled by str.format      ``{{`` is shown as ``{``
``TOKENS``   ``{name}``, found by a pattern        shown as it is, ``{{`` too
``REPLACE``  ``$NAME$``, filled by str.replace     shown as it is, ``{{`` too
===========  ====================================  ==================================================

MemAgent's and ReMemR1's trainers use TOKENS, so their models were trained with two pairs of braces after ``\\boxed``;
their evaluation formats the same text, which leaves one. RULER turns a sentence about one needle into the singular by
replacing words (``niah.py``); MemAgent's copy does so in the question, not in the answer's beginning.

Exit codes: 0 the file is written, 1 an error (one line).
"""

from __future__ import annotations

import argparse
import ast
import re
import string
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..system.errors import MemAgentError, reason_of
from ..system.files import write_atomically
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals

FORMAT, TOKENS, REPLACE = "str.format", r"\{([A-Za-z_]+)\}", r"\$([A-Z]+)\$"
_READ = {"prompt": "problem", "memory": "memory", "chunk": "section"}
_RECALLED = _READ | {"recalled_memory": "recalled"}
_ONE, _MANY = {"type_needle_v": "kind", "query": "keys"}, {"type_needle_v": "kinds", "query": "keys"}
_SINGULAR = (("Some", "A"), ("are all", "is"), ("are", "is"), ("answers", "answer"))


class Template(NamedTuple):
    """A text of the checkout; ``name`` is an assigned name, ``CALL()`` for the first argument of the assigned call, or
    a path into a dictionary."""

    file: str
    name: str
    fill: str = ""
    slots: Mapping[str, str] = {}
    """Published name to ours."""
    words: Sequence[tuple[str, str]] = ()
    """Words that the published code replaces."""
    half: int | None = None
    """0: what is around the document; 1: the question behind it."""


def _memagent(file: str, final: str, empty: str, fill: str, direct: str = "") -> dict[str, Template]:
    texts = {"memory": Template(file, "TEMPLATE", fill, _READ), "final": Template(file, final, fill, _READ),
             "empty_memory": Template(file, empty)}
    asked = Template(_UTILS + direct, "template_0shot", REPLACE, {"DOC": "section", "Q": "problem"})
    return texts | ({"direct": asked} if direct else {})


def _rememr1(file: str, empty: str, no_recall: str, fill: str) -> dict[str, Template]:
    return {"revisit": Template(file, "TEMPLATE", fill, _RECALLED),
            "revisit_final": Template(file, "TEMPLATE_FINAL_BOXED", fill, _RECALLED),
            "empty_memory": Template(file, empty), "no_recall": Template(file, no_recall)}


def _ruler(folder: str, *, with_document: bool) -> dict[str, Template]:
    """``with_document``: a template holds the document, with words before it and the question behind it."""
    texts = {}
    for key, task, slots, words, begins in (
        ("niah_one", "niah", _ONE, _SINGULAR, _ONE), ("niah_many", "niah", _MANY, (), _MANY),
        ("vt", "variable_tracking", {"query": "value"}, (), {"query": "value", "num_v": "count"}),
        ("cwe", "common_words_extraction", {}, (), {}), ("fwe", "freq_words_extraction", {}, (), {}),
        ("qa", "qa", {"query": "question"}, (), {}),
    ):
        file, name = f"{folder}/constants.py", f"TASKS/{task}/"
        if with_document:
            slots = {**slots, "context": "document"}
            texts[f"{key}_document"] = Template(file, f"{name}template", FORMAT, slots, words, 0)
        texts[key] = Template(file, f"{name}template", FORMAT, slots, words, 1 if with_document else None)
        texts[f"{key}_prefix"] = Template(file, f"{name}answer_prefix", FORMAT, begins, words * with_document)
    needle = {"type_needle_v": "kinds", "key": "key", "value": "value"}
    return texts | {"needle": Template(f"{folder}/niah.py", "needle", FORMAT, needle),
                    "noise": Template(f"{folder}/niah.py", "haystack")}


_UTILS = "taskutils/memory_eval/utils/"
_CHATS = Template("configs/chat_default_prompt.yaml", "prompt_template/user_prompt_text", FORMAT,
                  {"history_chats": "section", "question": "problem"})
REPOSITORIES = {"memagent": "BytedTsinghua-SIA/MemAgent", "rememr1": "syr-cn/ReMemR1", "ruler": "NVIDIA/RULER",
                "memsifter": "plageon/MemSifter"}
SETS: dict[str, dict[str, Template]] = {
    "memagent-train": _memagent("recurrent/impls/memory.py", "TEMPLATE_FINAL_BOXED", "NO_MEMORY_TOKENS()", TOKENS),
    "memagent-eval": _memagent(f"{_UTILS}recurrent.py", "TEMPLATE_FINAL", "NO_MEMORY", FORMAT, "openai_api.py"),
    "memagent-boxed": _memagent(f"{_UTILS}recurrent_boxed.py", "TEMPLATE_FINAL", "NO_MEMORY", FORMAT, "boxed.py"),
    "memagent-ruler": _ruler("taskutils/memory_data/synthetic", with_document=False),
    "rememr1-train": _rememr1(
        "recurrent/impls/memory_revisit.py", "NO_MEMORY_STRING", "NO_MEMORY_RECALLED_STRING", TOKENS),
    "rememr1-eval": _rememr1(f"{_UTILS}rememr1.py", "NO_MEMORY", "NO_RECALLED_MEMORY", FORMAT),
    "ruler": _ruler("scripts/data/synthetic", with_document=True),
    "memsifter-chat": {"direct": _CHATS, "rag": _CHATS},
}
"""The entries of a file, by the name that ``--of`` takes; it begins with that of the repository."""


@one_line_errors("nothing was written")
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="mem-agent templates", description="Write a published repository's wording as a file of this pack.")
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR", help="a clone of the repository")
    parser.add_argument("--of", choices=SETS, required=True, help="which texts of it")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the YAML file to write")
    options = parser.parse_args(argv)
    repository, as_wording = REPOSITORIES[options.of.partition("-")[0]], "ruler" in options.of
    texts = {key: converted(text_in(options.checkout, one), one, as_wording) for key, one in SETS[options.of].items()}
    head = f"# Texts of https://github.com/{repository}, under its licence; `mem-agent templates --of {options.of}`\n"
    options.output.parent.mkdir(parents=True, exist_ok=True)
    body = yaml.safe_dump(texts, sort_keys=False, width=119, default_style='"')
    write_atomically(options.output, (head + body).encode())
    used = "mem-agent ruler --wording " if as_wording else "MEM_PROMPTS="
    print(f"{options.output}: {', '.join(texts)} of {repository}; use it as {used}{options.output}")
    return 0


def text_in(checkout: Path, template: Template) -> str:
    """The published text. Raises MemAgentError: the checkout does not have it."""
    path, (name, *keys) = checkout / template.file, template.name.split("/")
    try:
        content = path.read_text(encoding="utf-8")
        values = _assigned(ast.parse(content), name) if path.suffix == ".py" else [yaml.safe_load(content)[name]]
        texts = [text for value in values if isinstance(text := reduce(getitem, keys, value), str)]
        return texts.pop(0)
    except (OSError, ValueError, SyntaxError, LookupError, TypeError, yaml.YAMLError) as error:
        raise MemAgentError(f"{path}: has no text {template.name} that can be read ({reason_of(error)})") from None


def _assigned(tree: ast.AST, name: str) -> Iterator[Any]:
    """The literals that are assigned to ``name``, as a variable or an attribute."""
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Assign)):
        target, value = node.targets[0], node.value
        if name.endswith("()") and isinstance(value, ast.Call) and value.args:
            value = value.args[0]
        if name.removesuffix("()") == getattr(target, "id", getattr(target, "attr", None)):
            with suppress(ValueError):  # of what the code computes
                yield ast.literal_eval(value)


def converted(text: str, template: Template, as_wording: bool) -> str:
    """The text with our names of the slots; ``as_wording``: for str.format, so braces of the text are doubled."""
    for old, new in template.words:
        text = text.replace(old, new)
    pieces = list(_split(text, template.fill))
    if unknown := {name for _, name in pieces if name} - set(template.slots):
        raise MemAgentError(f"{template.file}: {template.name} has a slot that nothing fills: {min(unknown)}")
    pieces = [(literal, template.slots.get(name, "")) for literal, name in pieces]
    if template.half is not None:
        pieces = _halves(pieces)[template.half]
    doubled = (lambda part: part.replace("{", "{{").replace("}", "}}")) if as_wording else str
    return "".join(doubled(literal) + (f"{{{slot}}}" if slot else "") for literal, slot in pieces)


def _split(text: str, fill: str) -> Iterator[tuple[str, str]]:
    """Literal text, and the name of the slot behind it, empty for none."""
    if fill == FORMAT:
        return ((literal, name or "") for literal, name, _, _ in string.Formatter().parse(text))
    parts = [*re.split(fill, text), ""] if fill else [text, ""]
    return zip(parts[::2], parts[1::2], strict=True)


def _halves(pieces: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What is around the document and the question behind it, for a prompt that joins both by one newline."""
    place = [slot for _, slot in pieces].index("document") + 1
    (text, slot), *behind = pieces[place:]
    question = text.lstrip("\n")
    newlines = len(text) - len(question)
    return [*pieces[:place], ("\n" * (newlines - 1), "")], [(question, slot), *behind]


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
