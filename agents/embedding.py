"""What a text is about, as one vector of length 1: the last hidden states of a model, averaged over all its tokens.

A text longer than the model's window is read window by window, and the average is over the tokens of all of them, so
nothing of it is left out. So it is not ``rewards/intrinsic/encoder.py``, which pools as its model was trained to and
reads a text's beginning. Invariant: a text's vector depends on the text alone, not on what shares its batch, but for
the rounding of the last bits.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..system.errors import ConfigError, MemAgentError, reason_of
from ..system.model_fit import check_ids, positions_of
from ..system.model_requests import refuse_requests
from ..system.model_sizes import check_sizes
from ..system.tokenizer_ids import check_tokenizer
from ..system.tokenizer_panics import panics_told

WINDOW = 512
"""Tokens at most that the model is shown at once; what most of these models were trained on."""


class Embedding:
    """The model in a folder. Safe to use from several threads: one at a time computes.

    Raises:
        ConfigError: there is none that can be used.
    """

    def __init__(self, folder: Path, batch: int = 32) -> None:
        from transformers import AutoModel, AutoTokenizer

        self._folder = folder
        check_tokenizer(folder)
        refuse_requests(folder)
        try:
            check_sizes(folder)
            with panics_told():
                self._tokenizer = AutoTokenizer.from_pretrained(
                    folder, trust_remote_code=False, local_files_only=True)
            self._model = AutoModel.from_pretrained(
                folder, trust_remote_code=False, local_files_only=True, weights_only=True).eval()
            self._batch = batch
            check_ids(self._tokenizer, self._model)
            self._window = min(WINDOW, self._tokenizer.model_max_length, positions_of(self._model) or WINDOW)
            self._one = threading.Lock()
            self._vectors(["a"])  # what does not fit together shows here
        except Exception as error:  # for a damaged file every class of a library has errors of its own
            if "trust_remote_code" in str(error):
                raise ConfigError(f"{folder}: an embedding model that is Python of its own is never run") from None
            raise ConfigError(f"{folder}: no embedding model can be loaded from it: {reason_of(error)}") from error

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector per text, [texts, size]; an empty text's is 0. Raises ConfigError where the model ends in one."""
        try:
            with self._one:
                return self._vectors(texts)
        except MemAgentError:
            raise
        except Exception as error:  # what a model of somebody else ends with is known to nobody
            told = f"this embedding model reads no such text: {reason_of(error)}"
            raise ConfigError(f"{self._folder}: {told}") from error

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        windows = [(number, ids) for number, text in enumerate(texts) for ids in self._windows(text)]
        windows.sort(key=lambda window: len(window[1]))  # windows of like length share a batch
        sums = np.zeros((len(texts), self._model.config.hidden_size), np.float32)
        for start in range(0, len(windows), self._batch):
            numbers, ids = zip(*windows[start : start + self._batch], strict=True)
            np.add.at(sums, list(numbers), self._summed(ids))
        if not np.isfinite(sums).all():
            raise ValueError("a text's vector has what is no number (NaN or infinity)")
        return sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)

    def _windows(self, text: str) -> list[list[int]]:
        with panics_told(f"{self._folder}: its"):
            split = self._tokenizer(text, truncation=True, max_length=self._window, return_overflowing_tokens=True)
        return [ids for ids in split["input_ids"] if ids]

    def _summed(self, windows: Sequence[list[int]]) -> NDArray[np.float32]:
        """The hidden states of each window, summed over its tokens."""
        import torch

        inputs = self._tokenizer.pad({"input_ids": list(windows)}, return_tensors="pt")
        with torch.inference_mode():
            hidden = self._model(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
            ).last_hidden_state.float()
        return (hidden * inputs["attention_mask"].unsqueeze(-1)).sum(1).numpy()
