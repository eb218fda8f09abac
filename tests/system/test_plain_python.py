"""Python's literals give plain values, and what would hurt is one line."""

import ast

import pytest

from mem_agent.system.plain_python import LONGEST, NotPlain, parsed, plain_python

GOOD = ("'a'", " 'a' 'b'", "['a', (1, -2.5, None, True), {}]", "{'a': {'b': [[]]}}", str(2**64 - 1), str(1 - 2**64))
BAD = {
    "an f-string that takes minutes": f"f'{'{a}' * 350_000}'", "a short one": "f'{a}'", "bytes": "b'a'",
    "a sum": "1+1", "a number too long to show": "0x1" + "0" * 4000, "one below 0": "-0x1" + "0" * 16,
    "digits": "9" * 5000, "brackets": "[" * 1000, "signs": "-" * 20_000 + "1", "a set": "{'a'}",
    "numbers as keys": "{1: 2}", "a spread": "{**{}}", "a call": "a()", "nothing": "", "two lines": "1\n2",
    "no character": "\0", "half": "['a'", "half a character": "\ud800",
}


@pytest.mark.parametrize("text", GOOD)
def test_plain_values_are_those_of_python(text):
    assert plain_python(text) == ast.literal_eval(text)


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_would_hurt_is_one_line(text):
    with pytest.raises(NotPlain) as refused:
        plain_python(text)
    assert str(refused.value).strip() and len(str(refused.value).splitlines()) == 1


def test_code_is_parsed_up_to_a_length():
    assert isinstance(parsed("a = f'{b}'" + " " * (LONGEST - 10), "exec"), ast.Module)
    with pytest.raises(NotPlain, match=f"more than {LONGEST} characters"):
        parsed(" " * (LONGEST + 1), "exec")
