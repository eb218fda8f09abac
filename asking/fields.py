"""What kind of value each field of a request's body has; null is a field that is not there.

A kind is never guessed: ``"stream": "false"`` is a text, and every text but the empty one would count as true. ::

    checked("", {"stream": "false"}, BODY)       400  stream='false': expected true or false
    checked("", {"seed": True}, BODY)            400  seed=True: expected a whole number
    checked("", {"strean": 1}, BODY)             nothing: fields that nobody knows are ignored
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from .request_error import RequestError, shown


class Kind(Enum):
    """Its value is what the error says was expected."""

    TEXT = "a text"
    SWITCH = "true or false"
    WHOLE = "a whole number"
    NUMBER = "a number"
    LIST = "a list"
    OBJECT = "an object"
    TEXTS = "a text or a list of texts"
    CONTENT = "a text or a list of parts"
    COUNT = "true, false or a whole number"

    def takes(self, value: Any) -> bool:
        match self:
            case Kind.SWITCH:
                return isinstance(value, bool)
            case Kind.WHOLE:
                return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
            case Kind.NUMBER:
                return isinstance(value, int | float) and not isinstance(value, bool) and -1e300 < value < 1e300
            case Kind.COUNT:
                return isinstance(value, bool) or Kind.WHOLE.takes(value)
            case Kind.TEXTS:
                return isinstance(value, str) or (isinstance(value, list) and all(isinstance(v, str) for v in value))
            case Kind.CONTENT:
                return isinstance(value, str | list)
        return isinstance(value, {Kind.TEXT: str, Kind.LIST: list, Kind.OBJECT: dict}[self])


Fields = Mapping[str, Kind]
BODY: Fields = {
    "model": Kind.TEXT, "messages": Kind.LIST, "documents": Kind.LIST, "stream": Kind.SWITCH,
    "stream_options": Kind.OBJECT, "stop": Kind.TEXTS, "seed": Kind.WHOLE, "max_tokens": Kind.WHOLE,
    "max_completion_tokens": Kind.WHOLE, "temperature": Kind.NUMBER, "top_p": Kind.NUMBER, "top_k": Kind.WHOLE,
    "repetition_penalty": Kind.NUMBER, "presence_penalty": Kind.NUMBER, "frequency_penalty": Kind.NUMBER,
    "n": Kind.WHOLE, "best_of": Kind.WHOLE, "logprobs": Kind.COUNT, "top_logprobs": Kind.WHOLE, "echo": Kind.SWITCH,
    "tools": Kind.LIST, "functions": Kind.LIST, "logit_bias": Kind.OBJECT, "response_format": Kind.OBJECT,
    "audio": Kind.OBJECT, "modalities": Kind.LIST, "suffix": Kind.TEXT,
}  # fmt: skip
STREAM_OPTIONS: Fields = {"include_usage": Kind.SWITCH}
MESSAGE: Fields = {"role": Kind.TEXT, "content": Kind.CONTENT}
PART: Fields = {"type": Kind.TEXT, "text": Kind.TEXT, "file": Kind.OBJECT}
DOCUMENT: Fields = dict.fromkeys(("file_id", "file_data", "filename", "text", "content", "title"), Kind.TEXT)


def checked(where: str, given: Any, fields: Fields) -> Mapping[str, Any]:
    """``given``, an object whose fields are of their kinds; ``where`` is its place, empty for the body itself.

    Raises RequestError.
    """
    if not isinstance(given, dict):
        told = f"{where}={shown(given)}: expected an object" if where else "the body is no JSON object"
        raise RequestError(400, told, param=where or None)
    for name, kind in fields.items():
        value = given.get(name)
        if value is not None and not kind.takes(value):
            place = f"{where}.{name}" if where else name
            raise RequestError(400, f"{place}={shown(value)}: expected {kind.value}", param=place)
    return given
