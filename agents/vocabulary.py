"""Text to token ids and back, such that text can never become a control token.

Invariants:
- ``encode_text`` never returns a control id, whatever the text holds: ``<|im_end|>`` in a document is encoded as the
  ordinary characters ``<``, ``|``, ``im`` ... exactly like any other text.
- ``encode_markup`` is for the pack's own template pieces only and does produce control ids.
- ``memory_ids`` keeps sampled ids as they are: no decode, no re-encode.

A control token is an added token that is special, or that is written like a tag (``<think>``, ``[INST]``). Other
added tokens (runs of blanks in some vocabularies) are ordinary text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer

from .chat_frame import TemplateRefused, render

_TAG = re.compile(r"^[<\[].+[>\]]$", re.DOTALL)
_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"
_IDS_OF_A_CHARACTER = 4
"""At most: one for each of its bytes."""


class Vocabulary:
    """A Hugging Face fast tokenizer seen as a safe pair of functions between text and ids.

    Raises:
        ValueError: the tokenizer has no ``tokenizer.json`` (a slow tokenizer), so it cannot be split safely, or it has
            no words: of a folder without tokenizer files, transformers makes one that turns every text into nothing.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(f"{tokenizer.name_or_path}: a fast tokenizer (tokenizer.json) is needed")
        self.tokenizer = tokenizer
        self.size = len(tokenizer)
        added = tokenizer.added_tokens_decoder
        control = {i: t.content for i, t in added.items() if t.special or _TAG.match(t.content)}
        self.control_ids = frozenset(control) | frozenset(tokenizer.all_special_ids)
        self.eos_ids = tuple(sorted({tokenizer.eos_token_id, *_turn_end_ids(control)} - {None}))
        self._think_close_id = next((i for i, text in control.items() if text == _THINK_CLOSE), None)
        self._think_open_id = next((i for i, text in control.items() if text == _THINK_OPEN), None)
        self._model = _without_added_tokens(tokenizer.backend_tokenizer)
        # Added tokens that are ordinary text (runs of blanks, a user's own words) keep their ids.
        self._words = {t.content: i for i, t in added.items() if i not in self.control_ids and t.content}
        words = sorted(self._words, key=len, reverse=True)
        self._parts = re.compile(f"({'|'.join(map(re.escape, words))})") if words else None
        if not all(map(self.encode_text, string.ascii_lowercase)) or not self.encode_markup(string.ascii_lowercase):
            raise ValueError("it knows no letters")

    @cached_property
    def turn_end_id(self) -> int | None:
        """What ends an assistant's turn: the last end in a chat of the model's template, else its end of sequence."""
        chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        ends: list[int] = []
        if self.tokenizer.chat_template:
            with suppress(TemplateRefused):  # one that does says nothing here
                shown = render(self.tokenizer, chat)
                ends = [i for i in self.encode_markup(shown) if i in self.eos_ids]
        return ends[-1] if ends else self.tokenizer.eos_token_id

    def encode_text(self, text: str) -> list[int]:
        """Ids of untrusted text (documents, questions): never a control id, never a BOS or EOS."""
        if self._parts is None:
            return self._encode_plain(text)
        ids: list[int] = []
        for part in filter(None, self._parts.split(text)):
            ids += [self._words[part]] if part in self._words else self._encode_plain(part)
        return ids

    def encode_markup(self, text: str) -> list[int]:
        """Ids of a trusted template piece: control tokens written in it become control ids."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Text without control tokens and without ids outside the vocabulary."""
        return self.tokenizer.decode(self._text_ids(ids), skip_special_tokens=True)

    def memory_ids(self, sampled: Sequence[int], *, limit: int, thinking_open: bool = False) -> list[int]:
        """What of a memory turn's reply is carried: thinking, control and out-of-vocabulary ids removed, hard-capped.

        ``thinking_open`` says that the prompt itself already opened a ``<think>``. Thinking that is never closed
        leaves nothing to carry.

        Example (``</think>`` = 9, end of turn = 2, vocabulary of 100)::

            memory_ids([5, 6, 9, 7, 8, 2, 105], limit=8) -> [7, 8]
        """
        return self._text_ids(self._after_thinking(sampled, thinking_open))[:limit]

    def reply_text(self, sampled: Sequence[int]) -> str:
        """The reply as a chat server tells it: without special tokens, but with ``<think>`` and its like as text."""
        return self.tokenizer.decode([i for i in sampled if 0 <= i < self.size], skip_special_tokens=True)

    def reply_ids(self, sampled: Sequence[int], *, limit: int) -> list[int]:
        """What released MemAgent carries of a reply: what follows the last ``</think>``, stripped, else all of it.

        Sampled ids stay as they are unless something was cut off, or a control token has to become ordinary text.
        """
        text = self.reply_text(sampled)
        _, closed, rest = text.rpartition(_THINK_CLOSE)
        ids = self._text_ids(sampled)
        return (self.encode_text(rest.strip()) if closed else ids if self.decode(ids) == text
                else self.encode_text(text))[:limit]

    def part_ids(self, ids: Sequence[int], start: int, end: int) -> list[int]:
        """The ids of characters ``start`` to ``end`` of ``decode(ids)``: those of ``ids`` that lie wholly inside.

        What a token at either end shares with the outside is encoded by itself.

        Example, the part "Anna." of two replies::

            "<up" "date>" "An" "na." "</up" "date>"  -> [An, na.]
            "<up" "date>A" "nn" "a" ".</" "update>"  -> encode("A") + [nn, a] + encode(".")
        """
        text = self.decode(ids)
        first, left = self._cut(ids, text, start)
        last, right = self._cut(ids, text, end, before=True)
        if not start <= left <= right <= end or first > last:
            return self.encode_text(text[start:end])
        return [*self.encode_text(text[start:left]), *ids[first:last], *self.encode_text(text[right:end])]

    def answer_text(self, sampled: Sequence[int], *, thinking_open: bool = False) -> str:
        """The decoded reply after its thinking, stripped."""
        return self.decode(self._after_thinking(sampled, thinking_open)).strip()

    def _text_ids(self, ids: Sequence[int]) -> list[int]:
        return [i for i in ids if 0 <= i < self.size and i not in self.control_ids]

    def _after_thinking(self, ids: Sequence[int], thinking_open: bool) -> Sequence[int]:
        if self._think_close_id is not None:
            closes = [k for k, i in enumerate(ids) if i == self._think_close_id]
            if closes:
                return ids[closes[-1] + 1 :]
            return [] if thinking_open or self._think_open_id in ids else ids
        text = self.decode(ids)
        closes_in_text = text.count(_THINK_CLOSE)
        if closes_in_text:
            return ids[self._prefix_length(ids, closes_in_text) :]
        return [] if thinking_open or _THINK_OPEN in text else ids

    def _prefix_length(self, ids: Sequence[int], closes: int) -> int:
        """Smallest k such that the first k ids decode to text with ``closes`` closing think tags (monotone in k)."""
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if self.decode(ids[:middle]).count(_THINK_CLOSE) >= closes:
                high = middle
            else:
                low = middle + 1
        return low

    def _cut(self, ids: Sequence[int], text: str, place: int, before: bool = False) -> tuple[int, int]:
        """The nearest cut between two ids at or after character ``place`` of ``text``, or else at or before it.

        Returns how many ids and how many characters lie before it; characters are -1 where there is none nearby.
        Heads of ``ids`` are decoded, which any decoder can. One that ends within a character is no head of ``text``;
        where that character is broken, the next id makes it no longer.
        """
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            characters = len(self.decode(ids[:middle]))
            if characters > place or (characters == place and not before):
                high = middle
            else:
                low = middle + 1
        nearby = range(low, max(low - _IDS_OF_A_CHARACTER, 0) - 1, -1) if before else range(low, len(ids) + 1)
        for cut in nearby[: _IDS_OF_A_CHARACTER + 1]:
            head = self.decode(ids[:cut])
            goes_on = cut == len(ids) or len(self.decode(ids[: cut + 1])) > len(head)
            if goes_on and text.startswith(head) and (len(head) <= place if before else len(head) >= place):
                return cut, len(head)
        return 0, -1

    def _encode_plain(self, text: str) -> list[int]:
        # `encode` would hold the GIL, and stop every event loop of the process for as long as a document takes.
        ids = self._model.encode_batch_fast([text], add_special_tokens=False)[0].ids
        # Some vocabularies hold control strings as ordinary entries too.
        return ids if self.control_ids.isdisjoint(ids) else [i for i in ids if i not in self.control_ids]


def _without_added_tokens(backend: Tokenizer) -> Tokenizer:
    """The bare model, shared with ``backend``: its merges take 50 MB in a vocabulary of 150,000.

    All added tokens go: any that stayed would be numbered anew, onto the ids of those that left.
    """
    bare = Tokenizer(backend.model)
    bare.normalizer = backend.normalizer
    bare.pre_tokenizer = backend.pre_tokenizer
    return bare


def _turn_end_ids(control: dict[int, str]) -> set[int]:
    """Chat models end a turn with a token that is not always their ``eos_token``."""
    return {i for i, text in control.items() if text in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")}
