"""The documents' tables of settings say what the code does."""

import re
from pathlib import Path

import pytest

from mem_agent.config import Config, main

ROOT = Path(__file__).parents[2]
FIELDS = {name.upper(): field for name, field in Config.model_fields.items()}
SECRETS = {"ANSWER_KEY", "HF_TOKEN", "WANDB_API_KEY"}
"""Keys, which are no settings."""
WORDS = {"all": 0, "derived": 0, "half": 0, "none": "", "own wording": "", "off": False}
"""How a table may name a default; an ``off`` is any value that switches off."""


def test_the_page_of_settings_is_what_the_command_writes(capsys):
    assert main(["--markdown"]) == 0
    assert (ROOT / "docs" / "settings.md").read_text() == capsys.readouterr().out, (
        "run `mem-agent config --markdown > docs/settings.md`"
    )


PAGES = ("docs/training.md", "docs/hosts.md")


def rows():
    """(settings with the value that a row gives them, the cell of defaults) of the tables in the documents."""
    table = False
    for line in (line for page in PAGES for line in (ROOT / page).read_text().splitlines()):
        table = line.startswith("| setting | default |") or (table and line.startswith("|"))
        cells = [cell.strip() for cell in line.replace("\\|", "\0").split("|")]
        if table and (given := re.findall(r"`([A-Z][A-Z0-9_]+)(?:=([^`]*))?`", cells[1])):
            yield given, cells[2]


ROWS = list(rows())


def test_the_pages_have_tables():
    assert len(ROWS) > 15


def defaults_of(cell, count):
    """One word for each of ``count`` settings, or one for all."""
    words = [word.strip(" `") for word in re.split(r",| x ", cell)]
    return words * count if len(words) == 1 else words


def is_default(word, default):
    if word == "off":
        return default in (False, 0, "none", "")
    if word in WORDS:
        return default in (WORDS[word], 0 if word == "none" else WORDS[word])
    return word in (str(default), str(int(default)) if isinstance(default, bool) else None)


@pytest.mark.parametrize("given,cell", ROWS, ids=str)
def test_every_row_has_real_names_and_real_defaults(given, cell):
    names = [name for name, _ in given]
    if set(names) <= SECRETS:
        assert cell == ""
        return
    assert set(names) <= set(FIELDS)
    for name, word in zip(names, defaults_of(cell, len(names)), strict=True):
        assert is_default(word, FIELDS[name].default), (name, word, FIELDS[name].default)
    for name, value in given:
        if value:
            Config.from_mapping({name: value})  # a value that may be set
