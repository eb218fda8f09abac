r"""``mem-agent templates``: the wording of a published repository, read from a checkout of it, as a file of this pack.

    mem-agent templates --checkout MemAgent --of memagent-eval --output memagent-eval.yaml

The file is for ``MEM_PROMPTS``, or for ``mem-agent ruler --wording``. The published texts are their authors' and are
not shipped; ``published.yaml`` says where each of them stands, and the checkout's files are parsed and never run. A
text's slots depend on how the published code fills it:

===========  ====================================  ==================================================
fill         a slot                                everything else
===========  ====================================  ==================================================
``FORMAT``   ``{name}``, filled by str.format      ``{{`` is shown as ``{``
``TOKENS``   ``{name}``, found by a pattern        shown as it is, ``{{`` too
``REPLACE``  ``$NAME$``, filled by str.replace     shown as it is, ``{{`` too
===========  ====================================  ==================================================

MemAgent's and ReMemR1's trainers use TOKENS, so their models were trained with two pairs of braces after ``\boxed``;
their evaluation formats the same text, which leaves one. RULER turns a sentence about one needle into the singular by
replacing words (``niah.py``); MemAgent's copy does so in the question, not in the answer's beginning.

Exit codes: 0 the file is written, 1 an error (one line).
"""

from __future__ import annotations

import argparse
import ast
import re
import string
from contextlib import suppress
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import yaml

from ..system.cli import one_line_errors
from ..system.errors import MemAgentError, reason_of

SLOTS = {"TOKENS": r"\{([A-Za-z_]+)\}", "REPLACE": r"\$([A-Z]+)\$"}
HALVES = {"around": r"(.*\{context\}\n*)\n", "question": r"\{context\}\n*(.*)"}
"""RULER joins what is around the document and the question behind it by one newline."""
REPOSITORIES = {"memagent": "BytedTsinghua-SIA/MemAgent", "rememr1": "syr-cn/ReMemR1", "ruler": "NVIDIA/RULER",
                "memsifter": "plageon/MemSifter"}
SETS: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


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
    texts = {key: text_in(options.checkout, one, as_wording) for key, one in SETS[options.of].items()}
    head = f"# Texts of https://github.com/{repository}, under its licence; `mem-agent templates --of {options.of}`\n"
    options.output.parent.mkdir(parents=True, exist_ok=True)
    body = yaml.safe_dump(texts, sort_keys=False, width=119, default_style='"')
    options.output.write_text(head + body, encoding="utf-8")
    print(f"{options.output}: {', '.join(texts)}; for {'mem-agent ruler --wording' if as_wording else 'MEM_PROMPTS'}")
    return 0


def text_in(checkout: Path, entry: dict[str, Any], as_wording: bool) -> str:
    """The published text of an entry of ``published.yaml`` with our slots; ``as_wording``: for str.format, so braces
    of the text are doubled. Raises MemAgentError: the checkout does not have it, or with other slots."""
    path = checkout / entry["file"]
    try:
        content = path.read_text(encoding="utf-8")
        known = _constants(content) if path.suffix == ".py" else yaml.safe_load(content)
        pieces = _pieces(str(reduce(getitem, entry["name"].split("/"), known)), entry)
        slots = [f"{{{entry['slots'][name]}}}" if name else "" for _, name in pieces]
    except (OSError, ValueError, SyntaxError, LookupError, TypeError) as error:
        raise MemAgentError(f"{path}: has no text {entry['name']} that can be read ({reason_of(error)})") from None
    literals = [one.replace("{", "{{").replace("}", "}}") if as_wording else one for one, _ in pieces]
    return "".join(literal + slot for literal, slot in zip(literals, slots, strict=True))


def _constants(source: str) -> dict[str, Any]:
    """The texts and tables of a file by the names, or attributes of self, that they are assigned to; of a call the
    first argument, where nothing else is assigned."""
    plain, begun = dict[str, Any](), dict[str, Any]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign):
            name, value, found = ast.unparse(node.targets[0]).removeprefix("self."), node.value, plain
            if isinstance(value, ast.Call) and value.args:
                value, found = value.args[0], begun
            with suppress(ValueError):  # of what the code computes
                found.setdefault(name, ast.literal_eval(value))
    return begun | plain


def _pieces(text: str, entry: dict[str, Any]) -> list[tuple[str, str]]:
    """The text, or the half of it that is asked for, as literals, each with the published name of the slot behind it,
    empty for none."""
    for old, new in entry.get("words", ()):
        text = text.replace(old, new)
    if "half" in entry:
        text = re.findall(HALVES[entry["half"]], text, re.DOTALL)[0]
    fill = entry.get("fill")
    if fill == "FORMAT":
        return [(literal, name or "") for literal, name, _, _ in string.Formatter().parse(text)]
    parts = [*(re.split(SLOTS[fill], text) if fill else [text]), ""]
    return list(zip(parts[::2], parts[1::2], strict=True))


if __name__ == "__main__":
    raise SystemExit(main())
