"""JSON is read as deep as data are, and no deeper, whatever brackets and quotes its strings hold."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.system.bounded_json import DEEPEST, TooDeep, loads

TEXTS = st.text(st.sampled_from('[]{}"\\a,: \u00e9'), max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers(-9, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=9,
)


def depth(value):
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(VALUES, st.lists(TEXTS, min_size=1, max_size=4), st.integers(DEEPEST - 2, DEEPEST + 3))
def test_the_bound_is_exact(value, texts, levels):
    for level in range(levels - depth(value)):
        text = texts[level % len(texts)]
        value = [text, [], value, text] if level % 2 else {text: value, f"{text}.": text}
    content = orjson.dumps(value)
    if levels <= DEEPEST:
        assert loads(content) == value
    else:
        with pytest.raises(TooDeep, match="nested deeper than 64"):
            loads(content)


@pytest.mark.parametrize("content", [b"", b"[", b"]" * 99, b"[" * 10**6, b'{"a": NaN}', b'"\xff"', b"[1] 2"])
def test_what_is_no_json_is_a_value_error(content):
    with pytest.raises(ValueError):
        loads(content)
