"""The pocket tokenizer: a byte-level BPE learnt from the words of the task and of its prompts.

Every one of those words becomes a single token, both at the start of a line and after a space, and any other text
still encodes through the 256 bytes.  The training text is a fixed list, so the same source gives the same files.
A change of a word in ``task.py`` or ``prompts.yaml`` changes the ids, and weights trained before it no longer fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ..agents.gated import FINISH, SKIP, UPDATE
from ..system.files import write_atomically
from .task import FILLERS, NAMES, THINGS, question_for

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MAX_VOCAB = 2048
OTHER_WORDS = ("each", SKIP, UPDATE, FINISH, "system", "user", "assistant")
"""The word of the recital drill, the decisions of gated turns, and the chat roles."""
PROMPTS = Path(__file__).with_name("prompts.yaml")
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def words(more: Sequence[str] = ()) -> list[str]:
    """All words of the task, the prompts, the chat roles and the texts in ``more``, sorted."""
    prompts = yaml.safe_load(PROMPTS.read_text(encoding="utf-8"))
    things = [thing for row in THINGS.values() for thing in row]
    texts = [*NAMES, *things, *FILLERS, question_for(""), *OTHER_WORDS, *prompts.values(), *more]
    return sorted({word for text in texts for word in re.findall(r"[A-Za-z]+", text)})


def training_text(known: Sequence[str], phrases: Sequence[str] = ()) -> Iterator[str]:
    """Each word in both forms and each phrase, often enough that every merge inside it is learnt."""
    for word in known:
        yield from [word, " " + word] * 8
    for phrase in phrases:
        yield from [phrase] * 8


def _pieces(phrases: Sequence[str]) -> Any:
    """How a text is cut before its merges: as GPT-2's byte-level vocabularies do, but around each whole phrase."""
    if not phrases:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    cut = Regex("|".join([*map(re.escape, sorted(phrases, key=len, reverse=True)), _GPT2]))
    whole = pre_tokenizers.Split(cut, "isolated")
    return pre_tokenizers.Sequence([whole, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def build(known: Sequence[str], phrases: Sequence[str] = ()) -> Tokenizer:
    """The trained tokenizer; raises ``ValueError`` when a word is not one token in both forms, or a phrase not one.

    A phrase with tags is ordinary text all the same, and no control token.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _pieces(phrases)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=MAX_VOCAB,
        min_frequency=2,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in (PAD, START, END)],
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_text(known, phrases), trainer)
    forms = [*(form for word in known for form in (word, " " + word)), *phrases]
    split = [form for form in forms if len(tokenizer.encode(form).ids) != 1]
    if split:
        raise ValueError(f"words of more than one token: {split}")
    return tokenizer


def save(folder: Path | str, max_length: int = 2048, more: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Write the folder of the look-up task's tokenizer, with the words of the texts in ``more`` besides."""
    return save_words(folder, words(more), max_length)


def save_words(
    folder: Path | str, known: Sequence[str], max_length: int = 2048, phrases: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """Write the folder of a tokenizer that knows these words and phrases (``tokenizer.json``,
    ``tokenizer_config.json`` with the chat template)."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=build(known, phrases),
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[START],
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(str(folder))
    _settle_config(Path(folder))
    return fast


def _settle_config(folder: Path) -> None:
    """Make the configuration read alike for older and newer transformers; the chat template goes inside it."""
    config_path = folder / "tokenizer_config.json"
    config = json.loads(config_path.read_text(encoding="utf-8"))
    config["chat_template"] = CHAT_TEMPLATE
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config["additional_special_tokens"] = [START]
    for newer in ("extra_special_tokens", "backend"):
        config.pop(newer, None)
    write_atomically(config_path, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())
    (folder / "chat_template.jinja").unlink(missing_ok=True)
