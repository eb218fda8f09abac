"""A streamed answer is the one that would have come whole."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.client.engine_api import parse_vllm
from mem_agent.client.token_stream import TokenStream
from mem_agent.tests.helpers.fake_router import vllm_answer


def events(ids, size):
    """Of an answer in pieces of ``size`` tokens, the usage last."""
    whole = vllm_answer(ids)
    (choice,) = whole["choices"]
    for start in range(0, len(ids), size):
        some = slice(start, start + size)
        part = choice | {"token_ids": ids[some], "logprobs": {"content": choice["logprobs"]["content"][some]},
                         "finish_reason": "stop" if start + size >= len(ids) else None}
        yield b"data: " + orjson.dumps({"choices": [part]}) + b"\n"
        yield b"\n"
    yield b"data: " + orjson.dumps({"choices": [], "usage": whole["usage"]}) + b"\n"
    yield b"data: [DONE]\n"


@given(st.lists(st.integers(0, 99), min_size=1, max_size=9), st.integers(1, 4))
def test_pieces_joined_are_the_answer(ids, size):
    stream = TokenStream()
    told = [len(stream.token_ids) for line in events(ids, size) if stream.add(line)]
    assert parse_vllm(stream.answer()) == parse_vllm(vllm_answer(ids))
    assert told == sorted({*range(size, len(ids), size), len(ids)})


def test_a_stream_that_ends_early_is_no_answer():
    stream = TokenStream()
    for line in list(events([5, 6], 1))[:-1]:
        stream.add(line)
    with pytest.raises(ValueError, match="before its answer"):
        stream.answer()


@pytest.mark.parametrize("line", [b'data: {"error": {"message": "no room"}}\n', b"data: {\n"])
def test_an_error_is_raised(line):
    with pytest.raises(ValueError):
        TokenStream().add(line)
