"""Panics of the tokenizers library, which end a text in its middle, told as errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import MemAgentError


class TokenizerFailed(MemAgentError):
    """The tokenizer ended in the middle of a text, as one does whose regular expressions give up."""


@contextmanager
def panics_told(whose: str = "the model's") -> Iterator[None]:
    """Raises TokenizerFailed for a panic of a Rust library, which is no ``Exception`` and would end a server.

    ``whose`` tokenizer is what the line says.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":  # a class that cannot be imported
            raise
        raise TokenizerFailed(f"{whose} tokenizer failed: {' '.join(str(error).split())[:200]}") from None
