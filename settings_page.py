"""``mem-agent config``: every setting with its default and meaning, on a terminal or as the page docs/settings.md."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields

from .config import Config
from .system.one_line_errors import one_line_errors
from .system.recipe import use_recipe


def listing() -> str:
    """Every variable with its default and meaning, for a terminal."""
    lines = []
    for f in fields(Config):
        suffix = f" [{' | '.join(f.metadata['choices'])}]" if f.metadata["choices"] else ""
        lines.append(f"{f.name.upper():26} {f.default!r:18} {f.metadata['doc']}{suffix}")
    return "\n".join(lines)


_TITLE = """# Settings

Every environment variable, with its default and what changes with it. A resumed run replays a rollout only if all that
shapes training is as it was; results of an evaluation join only if all that shapes answers is. This page is written by
`python -m mem_agent.settings_page --markdown > docs/settings.md`.
"""


def markdown_tables() -> str:
    """The page ``docs/settings.md``: a table for each section."""
    sections = dict.fromkeys(f.metadata["section"] for f in fields(Config))
    return "\n".join([_TITLE, *map(_markdown_table, sections)]).rstrip("\n")


def _markdown_table(section: str) -> str:
    lines = [f"## {section.capitalize()}", "", "| setting | default | meaning | shapes |", "|---|---|---|---|"]
    for f in fields(Config):
        if f.metadata["section"] == section:
            default = f"`{f.default}`" if f.default != "" else "none"
            allowed = ", ".join(f"`{choice}`" for choice in f.metadata["choices"] or ())
            choices = f" ({allowed})" if allowed else ""
            doc = f.metadata["doc"].replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"| `{f.name.upper()}` | {default} | {doc}{choices} | {f.metadata['shapes'].value} |")
    return "\n".join([*lines, ""])


@one_line_errors("nothing was changed")
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent config", description="List every setting and its default.")
    parser.add_argument("--markdown", action="store_true", help="as the page docs/settings.md")
    options = parser.parse_args(argv)
    use_recipe()
    print(markdown_tables() if options.markdown else listing())
    return 0


if __name__ == "__main__":
    sys.exit(main())
