"""Checkouts in the layout of the published repositories, with invented texts in the places that the pack reads."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from mem_agent.agents.published.sets import SETS
from mem_agent.agents.published.source import text_in

RAN = "ran"
"""The file that appears beside a checkout of which something was run."""
_ALARM = f"import pathlib\npathlib.Path(__file__).parent.joinpath('{RAN}').write_text('')\nraise SystemExit(9)\n"

_MEMORY = '''TEMPLATE = """Note {chunk} beside {memory} for {prompt} \nNow:
"""
'''
_FINAL = '''%s = """From {memory} say {prompt} as %s
"""
'''
_REVISIT = '''TEMPLATE = """Note {chunk} beside {memory} and {recalled_memory} for {prompt} \nNow:
"""

TEMPLATE_FINAL_BOXED = """From {memory} and {recalled_memory} say {prompt} in \\\\boxed{{}}
"""
'''
_AGENT = '''class MemoryAgent(RAgent):
    def __init__(self, tokenizer):
        %s
'''
_TASKS = {
    "niah": ("Some odd {type_needle_v} are there; they are found.%s What are all odd {type_needle_v} of {query}?",
             " All odd {type_needle_v} of {query} are"),
    "variable_tracking": ("Follow.%s Who holds {query}?", " {num_v} hold {query}: "),
    "common_words_extraction": ("Count.%s Which ten?", " The ten:"),
    "freq_words_extraction": ("Count codes.%s Which three?", " The three:"),
    "qa": ("Look.%s Say: {query}", " It is"),
}
_NIAH = '''needle = "An odd {type_needle_v} of {key} is {value}."
if args.type_haystack == 'essay':
    haystack = re.sub(r"a", " ", essay).split(" ")
elif args.type_haystack == 'noise':
    haystack = "Rain. Wind."
else:
    haystack = needle
'''
_CHATS = '''prompt_template:
  system_prompt_text: |
    Help.
  user_prompt_text: |
    Chats: {history_chats}

    Asked {question}'''


def _ruler(folder: str, document: str) -> dict[str, str]:
    tasks = {name: {"tokens_to_generate": 9, "template": template % document, "answer_prefix": prefix}
             for name, (template, prefix) in _TASKS.items()}
    return {f"{folder}/constants.py": _ALARM + f"TASKS = {tasks!r}\n", f"{folder}/niah.py": _ALARM + _NIAH}


_UTILS = "taskutils/memory_eval/utils"
_NO_MEMORY = 'NO_MEMORY = "None so far"\n'
FILES = {
    "memagent": {
        "recurrent/impls/memory.py": _ALARM + _MEMORY + _FINAL % ("TEMPLATE_FINAL_BOXED", r"\\boxed{{}}")
        + _AGENT % 'self.NO_MEMORY_TOKENS = tokenizer.encode("None so far", add_special_tokens=False)',
        f"{_UTILS}/recurrent.py": _ALARM + _MEMORY + _FINAL % ("TEMPLATE_FINAL", "(the answer)") + _NO_MEMORY,
        f"{_UTILS}/recurrent_boxed.py": _ALARM + _MEMORY + _FINAL % ("TEMPLATE_FINAL", r"\\boxed{{}}") + _NO_MEMORY,
        f"{_UTILS}/openai_api.py": _ALARM + 'template_0shot = """In $DOC$ find $Q$ (the answer)"""\n',
        f"{_UTILS}/boxed.py": _ALARM + 'template_0shot = """In $DOC$ find $Q$ in \\\\boxed{{}}"""\n',
        **_ruler("taskutils/memory_data/synthetic", ""),
    },
    "rememr1": {
        "recurrent/impls/memory_revisit.py": _ALARM + _REVISIT
        + _AGENT % 'self.NO_MEMORY_STRING, self.x = "None so far", 1\n        self.NO_MEMORY_STRING = "None so far"\n'
        '        self.NO_MEMORY_RECALLED_STRING = "None came"',
        f"{_UTILS}/rememr1.py": _ALARM + _REVISIT + _NO_MEMORY + 'NO_RECALLED_MEMORY = "None came"\n',
    },
    "ruler": _ruler("scripts/data/synthetic", "\n{context}\n"),
    "memsifter": {"configs/chat_default_prompt.yaml": _CHATS},
}
OF = {name: name.partition("-")[0] for name in SETS}
"""The checkout that has a set."""


def make_checkout(folder: Path, kind: str) -> Path:
    for name, content in FILES[kind].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def know(monkeypatch, name: str, folder: Path) -> None:
    """The texts of ``folder`` become the known ones of the set."""
    templates = {
        key: replace(one, sha256=hashlib.sha256(text_in(folder, one.file, one.name).encode()).hexdigest())
        for key, one in SETS[name].templates.items()
    }
    monkeypatch.setitem(SETS, name, replace(SETS[name], templates=templates))
