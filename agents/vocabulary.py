"""Text to token ids and back, such that text can never become a control token.

Invariants:
- ``encode_text`` never returns a control id, whatever the text holds: ``<|im_end|>`` in a document is encoded as the
  ordinary characters ``<``, ``|``, ``im`` ... exactly like any other text.
- ``encode_markup`` is for the pack's own template pieces only and does produce control ids.
- ``beginning`` is for the first piece of a prompt: what the tokenizer puts before a plain text (a model's BOS) stands
  there exactly once, whether the chat template writes it or not.

A control token is an added token that is special, or that is written like a tag (``<think>``, ``[INST]``). Other
added tokens (runs of blanks in some vocabularies) are ordinary text.

Thinking may come as control tokens or spelled in ordinary ones (from a server that answers in text): only the
text after the last ``</think>`` counts; if thinking is never closed, nothing does.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from tokenizers import Tokenizer

_TAG = re.compile(r"^[<\[].+[>\]]$", re.DOTALL)
_ENDS, _CLOSES = re.compile("[.!?][\"'\u201d\u2019)\\]]*$"), re.compile("^[\"'\u201d\u2019)\\]]+$")
_THINK, _END_THINK = "<think>", "</think>"
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>")
"""Chat models end a turn with a token that is not always their ``eos_token``."""


class Vocabulary:
    """A Hugging Face fast tokenizer seen as a safe pair of functions between text and ids.

    Raises:
        ValueError: the tokenizer has no ``tokenizer.json`` (a slow tokenizer), so it cannot be split safely, or it has
            no words: for a folder without tokenizer files, transformers builds one that turns every text into nothing.
    """

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(f"{tokenizer.name_or_path}: a fast tokenizer (tokenizer.json) is needed")
        self.tokenizer = tokenizer
        self.size = len(tokenizer)
        added = tokenizer.added_tokens_decoder
        control = {t.content: i for i, t in added.items() if t.special or _TAG.match(t.content)}
        self.control_ids = frozenset(control.values()) | frozenset(tokenizer.all_special_ids)
        ends = {control[end] for end in _TURN_ENDS if end in control}
        self.eos_ids = tuple(sorted({tokenizer.eos_token_id, *ends} - {None}))
        shown = [control[end] for end in _TURN_ENDS if end in control and end in (tokenizer.chat_template or "")]
        self.turn_end_id: int | None = shown[0] if shown else tokenizer.eos_token_id
        """What ends an assistant's turn: the end that the model's chat template writes, else its end of sequence."""
        self._think, self._end_think = control.get(_THINK), control.get(_END_THINK)
        # Shared with the tokenizer: its merges take 50 MB in a vocabulary of 150,000. No added token is kept, as any
        # would get a new id, that of a dropped one.
        self._model = Tokenizer(tokenizer.backend_tokenizer.model)
        self._model.normalizer = tokenizer.backend_tokenizer.normalizer
        self._model.pre_tokenizer = tokenizer.backend_tokenizer.pre_tokenizer
        # Added tokens that are ordinary text (runs of blanks, a user's own words) keep their ids.
        self._words = {t.content: i for i, t in added.items() if i not in self.control_ids and t.content}
        longest_first = sorted(self._words, key=len, reverse=True)
        self._parts = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
        whole, plain = tokenizer.encode("a"), self.encode_markup("a")
        begin = next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), 0)
        self._head: list[int] = whole[:begin]
        if not all(map(self.encode_text, string.ascii_lowercase)) or not self.encode_markup(string.ascii_lowercase):
            raise ValueError("the tokenizer turns letters into nothing; are its files in the folder?")

    def encode_text(self, text: str) -> list[int]:
        """Ids of untrusted text (documents, questions): never a control id, never a BOS or EOS."""
        ids: list[int] = []
        for part in filter(None, self._parts.split(text)):
            ids += [self._words[part]] if part in self._words else self._encode_plain(part)
        return ids

    def encode_markup(self, text: str) -> list[int]:
        """Ids of a trusted template piece: control tokens written in it become control ids."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def beginning(self, ids: Sequence[int]) -> list[int]:
        """The ids of a prompt's first piece, begun as the tokenizer begins a plain text.

        Example (BOS = 1)::

            beginning([5, 6]) -> [1, 5, 6]        beginning([1, 5, 6]) -> [1, 5, 6]
        """
        begun = [*ids[: len(self._head)]] == self._head
        return [*ids] if begun else [*self._head, *ids]

    def sentence_ends(self, ids: Sequence[int]) -> list[int]:
        """Behind how many of ``ids`` a sentence ends: a full stop, ! or ?, perhaps with quotes or brackets, and then a
        blank, or the text's end.

        Example ("He", " ran", ".", " She", " sat")::

            sentence_ends([...]) -> [3, 5]
        """
        if not len(ids):
            return []
        ends, closes, blank = (marks[np.asarray(ids)] for marks in self._marks)
        for _ in range(2):  # quotes and brackets that are tokens of their own
            ends[1:] |= closes[1:] & ends[:-1]
        return [*(np.flatnonzero(ends[:-1] & blank[1:]) + 1).tolist(), len(ids)]

    @cached_property
    def _marks(self) -> tuple[Any, Any, Any]:
        """Of every id: whether its text ends like a sentence, is quotes or brackets, and begins with a blank."""
        texts = self.tokenizer.batch_decode([[i] for i in range(self.size)])
        # A lone token loses its blank in vocabularies of the SentencePiece kind, whose words keep a mark for it.
        words = self.tokenizer.convert_ids_to_tokens(range(self.size))
        blank = [text[:1].isspace() or str(word).startswith("\u2581") for text, word in zip(texts, words, strict=True)]
        ends, closes = (np.array([bool(form.search(text)) for text in texts]) for form in (_ENDS, _CLOSES))
        return ends, closes, np.array(blank)

    def decode(self, ids: Sequence[int]) -> str:
        """Text without control tokens and without ids outside the vocabulary."""
        return self.tokenizer.decode(self._text_ids(ids), skip_special_tokens=True)

    def reply_text(self, sampled: Sequence[int]) -> str:
        """The reply as a chat server tells it: without special tokens, but with ``<think>`` and its like as text."""
        return self.tokenizer.decode([i for i in sampled if 0 <= i < self.size], skip_special_tokens=True)

    def memory_ids(self, sampled: Sequence[int], *, limit: int, thinking_open: bool = False) -> list[int]:
        """The part of a memory turn's reply that is carried: no thinking, control or unknown ids, at most ``limit``.

        ``thinking_open`` says that the prompt itself already opened a ``<think>``.

        Example (``</think>`` = 9, end of turn = 2, vocabulary of 100)::

            memory_ids([5, 6, 9, 7, 8, 2, 105], limit=8) -> [7, 8]
        """
        return self._text_ids(self._after_thinking(sampled, thinking_open))[:limit]

    def answer_text(self, sampled: Sequence[int], *, thinking_open: bool = False) -> str:
        """The decoded reply after its thinking, stripped."""
        return self.decode(self._after_thinking(sampled, thinking_open)).strip()

    def _text_ids(self, ids: Sequence[int]) -> list[int]:
        return [i for i in ids if 0 <= i < self.size and i not in self.control_ids]

    def _after_thinking(self, ids: Sequence[int], thinking_open: bool) -> Sequence[int]:
        closes = [place for place, i in enumerate(ids) if i == self._end_think]
        rest = ids[closes[-1] + 1 :] if closes else ids
        text = self.decode(rest)
        if _END_THINK in text:
            return self.encode_text(text.rpartition(_END_THINK)[2])
        opened = thinking_open or self._think in ids or _THINK in text
        return [] if opened and not closes else rest

    def _encode_plain(self, text: str) -> list[int]:
        # `encode` would hold the GIL, and stop every event loop of the process for as long as a document takes.
        ids = self._model.encode_batch_fast([text], add_special_tokens=False)[0].ids
        # Some vocabularies hold control strings as ordinary entries too.
        return ids if self.control_ids.isdisjoint(ids) else [i for i in ids if i not in self.control_ids]
