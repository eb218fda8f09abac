"""Which published texts make which file of this pack, where they stand, and each one's hash at the commit known here.

A hash is the sha256 of a template in UTF-8, as its file's code holds it, before any slot is filled. MemAgent's and
ReMemR1's trainers split a template at its slots and show all else as it stands, so their models were trained with two
pairs of braces after ``\\boxed``; their evaluation formats the same text, which leaves one pair. The direct prompt is
filled by str.replace, which leaves two in the boxed form.

RULER turns a sentence about one needle into the singular by replacing words (``niah.py``); MemAgent's copy of it does
so in the question alone, not in the answer's beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .slots import Style


class Part(Enum):
    WHOLE = "all of it"
    DOCUMENT = "what is around the document"
    QUESTION = "what is behind the document"


@dataclass(frozen=True, slots=True)
class Template:
    """One published text that becomes one entry of a file."""

    file: str
    name: str
    """As ``source`` reads it."""
    sha256: str
    style: Style = Style.PLAIN
    slots: Mapping[str, str] = field(default_factory=dict)
    """Published name -> name in this pack."""
    words: tuple[tuple[str, str], ...] = ()
    """Words that the published code replaces in it, in this order."""
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class TemplateSet:
    """What ``--of`` names."""

    repository: str
    commit: str
    mark: str
    """A file that tells a checkout of the repository from the others."""
    used: str
    """How the written file is used; ``{}`` is its name."""
    templates: Mapping[str, Template]

    @property
    def for_prompts(self) -> bool:
        return self.used.startswith("MEM_PROMPTS")


_PROMPTS, _WORDING = "MEM_PROMPTS={}", "mem-agent ruler --wording {}"
_MEMAGENT = ("BytedTsinghua-SIA/MemAgent", "76b7a65", "recurrent/impls/memory.py")
_REMEMR1 = ("syr-cn/ReMemR1", "43e69f3", "recurrent/impls/memory_revisit.py")
_RULER = ("NVIDIA/RULER", "c3f5e3b", "scripts/data/synthetic/constants.py")
_MEMSIFTER = ("plageon/MemSifter", "92f0eae", "configs/chat_default_prompt.yaml")

# --- prompts --------------------------------------------------------------------------------------------------------

_READS = {"prompt": "problem", "memory": "memory", "chunk": "section"}
_ANSWERS = {"prompt": "problem", "memory": "memory"}
_RECALLED = {"recalled_memory": "recalled"}
_DIRECT = {"DOC": "section", "Q": "problem"}
_CHATS = {"history_chats": "section", "question": "problem"}

_MEMORY = "49fa58187bb7d23e58b08ed1a15732c71008196a1f633be2b4a3be507ee366b3"
_BOXED = "ac0d288bd6ca474b7061bab361aafa585425bc81faf19cfcf29d30749e44990c"
_THE_ANSWER_IS = "76c0395b111bb18000345701c14ceaafc8a9776fb76577676df0c15274d1235e"
_NO_MEMORY = "1dd86650b232de2f2d2cb11bab363c49d658e706f1accecb39f7b3e7c1272608"
_NO_RECALL = "f345b03d91cc64e699ccfc408cce3184245e55bd65f3361edb49ca867b9f61af"
_REVISIT = "818f6753f1d742d99196dffec4db5d9eb507ee7bbf9fc97d1635bc1aa743fc20"
_REVISIT_FINAL = "3f8a4acd42e611da556714869f1c58f778ee4c7e899b5f870d01a8548ea23bdc"
_DIRECT_ANSWER_IS = "d98e943bfea6c00ddd3e147b3cfebe16b001cdbc5d66ef4f880d6148c131bac7"
_DIRECT_BOXED = "9b1d16b4542f892bbffaa26eb774f3fc39199690b88997623683564bcbd1889f"
_FROM_CHATS = "8d907062d022d9f921fce6f140ff6636d0fcded42e598d853bee89eb01095f77"

_UTILS = "taskutils/memory_eval/utils"


def _reading(file: str, final: str, sha256: str, no_memory: str, style: Style) -> dict[str, Template]:
    return {
        "memory": Template(file, "TEMPLATE", _MEMORY, style, _READS),
        "final": Template(file, final, sha256, style, _ANSWERS),
        "empty_memory": Template(file, no_memory, _NO_MEMORY),
    }


def _direct(file: str, sha256: str) -> dict[str, Template]:
    return {"direct": Template(f"{_UTILS}/{file}", "template_0shot", sha256, Style.REPLACE, _DIRECT)}


def _revisiting(file: str, no_memory: str, no_recall: str, style: Style) -> dict[str, Template]:
    return {
        "revisit": Template(file, "TEMPLATE", _REVISIT, style, _READS | _RECALLED),
        "revisit_final": Template(file, "TEMPLATE_FINAL_BOXED", _REVISIT_FINAL, style, _ANSWERS | _RECALLED),
        "empty_memory": Template(file, no_memory, _NO_MEMORY),
        "no_recall": Template(file, no_recall, _NO_RECALL),
    }


# --- RULER's sentences ----------------------------------------------------------------------------------------------

_SINGULAR = (("Some", "A"), ("are all", "is"), ("are", "is"), ("answers", "answer"))
_ONE, _MANY = {"type_needle_v": "kind", "query": "keys"}, {"type_needle_v": "kinds", "query": "keys"}
_NEEDLE = {"type_needle_v": "kinds", "key": "key", "value": "value"}
_CHAIN, _COUNTED, _ASKED = {"query": "value"}, {"query": "value", "num_v": "count"}, {"query": "question"}
_FORMAT = Style.FORMAT


def _sentences(folder: str, sha256: Mapping[str, str], *, with_document: bool) -> dict[str, Template]:
    """The entries of a wording file.

    Args:
        sha256: of each task's template, and of ``vt_prefix``, which MemAgent's copy spells another way.
        with_document: whether a template holds the document, with words before it, and the question behind it.
    """
    constants, texts = f"{folder}/constants.py", dict[str, Template]()
    tasks: dict[str, tuple[str, Mapping[str, str], tuple[tuple[str, str], ...]]] = {
        "niah_one": ("niah", _ONE, _SINGULAR), "niah_many": ("niah", _MANY, ()),
        "vt": ("variable_tracking", _CHAIN, ()), "cwe": ("common_words_extraction", {}, ()),
        "fwe": ("freq_words_extraction", {}, ()), "qa": ("qa", _ASKED, ()),
    }
    for key, (task, slots, words) in tasks.items():
        name, known = f"TASKS/{task}/template", sha256[task]
        if with_document:
            slots = {**slots, "context": "document"}
            texts[f"{key}_document"] = Template(constants, name, known, _FORMAT, slots, words, Part.DOCUMENT)
            texts[key] = Template(constants, name, known, _FORMAT, slots, words, Part.QUESTION)
        else:
            texts[key] = Template(constants, name, known, _FORMAT, slots, words)
        begins = {"niah_one": _ONE, "niah_many": _MANY, "vt": _COUNTED}.get(key, {})
        known = sha256["vt_prefix"] if key == "vt" else _PREFIXES[task]
        texts[f"{key}_prefix"] = Template(
            constants, f"TASKS/{task}/answer_prefix", known, _FORMAT, begins, words if with_document else ()
        )
    return texts | {
        "needle": Template(f"{folder}/niah.py", "needle",
                           "8b1728a938426e426c307f6c79fc57662c827cb42865cd1630410cd7009cf524", _FORMAT, _NEEDLE),
        "noise": Template(f"{folder}/niah.py", "haystack",
                          "c2fcf70de6081e6fb364c3e5e9a7c0a335a05837a0832ae7a33a1cfe7414bd09"),
    }


_PREFIXES = {
    "niah": "994f3a46e763414f630c39b097b66c4df6160ef1c5991817cfabee7bfee4ec19",
    "common_words_extraction": "8ee526599bbc73726f19bb07da106d143a194667cf52e08434c44ce652e08028",
    "freq_words_extraction": "9a72271c5762c96d9adbf480f21e621c5855e48cc029605c1c422135c4db7a92",
    "qa": "255204f061d7e266f2aa1e50df08977c15a9c31b4cd8f3fbef0f96da93d564aa",
}
_RULER_TEXTS = {
    "niah": "b373c00e238df12bea974d3fdc4ffebcc0f04600885640250040e3c27169216f",
    "variable_tracking": "fcfaf2eab2bc3e35a119b13fe42e5902800291c4d6101c60be93ecf8b031fefa",
    "vt_prefix": "4a4e9010ec4141a3706929569612af94bd4098ee660862395a73b0100e52c5a6",
    "common_words_extraction": "45fff5d17627b65ac12c8bf0e60380cbb05966878794a18ec394c2df9bea19b1",
    "freq_words_extraction": "a0c7b873cf500d6ce65950a91baecd810ce34d151939da916a43fa5014178f9c",
    "qa": "18a659c9723f24f172004ab1692ae88efaf0c07417b6d7326f813c7169011d28",
}
_MEMAGENT_RULER_TEXTS = {
    "niah": "f8b388479f19bea7c08e7d4e16c97b58097fb12d04ee008a38a0353a30dd5799",
    "variable_tracking": "9163798c4a993c5d068a74e665f0dfdd1d55c751705b083f79f6cdce593c9df4",
    "vt_prefix": "4652e8514a4f6d88dc2a24ca3198e8b568d7e9ec1c2dafb5bedb60936e947e54",
    "common_words_extraction": "06de5303c1a82a749fff8761e30bd7ca17f8331dae84574318d7c8f95e74043c",
    "freq_words_extraction": "b0f9ca964612e3ca985d4593aeb6616172e1f462db450498a29965195084f1f9",
    "qa": "972a0c672e8124b389956258acc42a1fd6873217d6e3d35dbe61d3013454b707",
}

# --- the sets -------------------------------------------------------------------------------------------------------

SETS: dict[str, TemplateSet] = {
    "memagent-train": TemplateSet(
        *_MEMAGENT, _PROMPTS,
        _reading("recurrent/impls/memory.py", "TEMPLATE_FINAL_BOXED", _BOXED, "NO_MEMORY_TOKENS()", Style.TOKENS)),
    "memagent-eval": TemplateSet(
        *_MEMAGENT, _PROMPTS,
        _reading(f"{_UTILS}/recurrent.py", "TEMPLATE_FINAL", _THE_ANSWER_IS, "NO_MEMORY", Style.FORMAT)
        | _direct("openai_api.py", _DIRECT_ANSWER_IS)),
    "memagent-boxed": TemplateSet(
        *_MEMAGENT, _PROMPTS,
        _reading(f"{_UTILS}/recurrent_boxed.py", "TEMPLATE_FINAL", _BOXED, "NO_MEMORY", Style.FORMAT)
        | _direct("boxed.py", _DIRECT_BOXED)),
    "memagent-ruler": TemplateSet(
        *_MEMAGENT, _WORDING,
        _sentences("taskutils/memory_data/synthetic", _MEMAGENT_RULER_TEXTS, with_document=False)),
    "rememr1-train": TemplateSet(
        *_REMEMR1, _PROMPTS,
        _revisiting(_REMEMR1[2], "NO_MEMORY_STRING", "NO_MEMORY_RECALLED_STRING", Style.TOKENS)),
    "rememr1-eval": TemplateSet(
        *_REMEMR1, _PROMPTS, _revisiting(f"{_UTILS}/rememr1.py", "NO_MEMORY", "NO_RECALLED_MEMORY", Style.FORMAT)),
    "ruler": TemplateSet(
        *_RULER, _WORDING, _sentences("scripts/data/synthetic", _RULER_TEXTS, with_document=True)),
    "memsifter-chat": TemplateSet(
        *_MEMSIFTER, _PROMPTS,
        {mode: Template(_MEMSIFTER[2], "prompt_template/user_prompt_text", _FROM_CHATS, Style.FORMAT, _CHATS)
         for mode in ("direct", "rag")}),
}
"""By the name that ``--of`` takes; without it a checkout's first one is meant."""
