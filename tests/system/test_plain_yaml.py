"""YAML gives plain values, and what would hurt is one line."""

from itertools import pairwise

import pytest
import yaml

from mem_agent.system.plain_yaml import _MOST_REPEATED, DEEPEST, NotYaml, YamlBound, plain_yaml, read_plain_yaml

GOOD = (
    "a: [1, 2.5, {b: 'c'}]", "- x\n- ~\n- yes\n", "a: &t text\nb: *t\n", "a: |\n  two\n  lines\n", "", "2020-01-02",
    "[" * DEEPEST + "]" * DEEPEST, "a: 0x1f\nb: 1:30\n", "é: 中",
    "a: &a {b: c}\nd: {<<: *a, e: f}\ng: {<<: [*a, *a], b: h}", "pip: &p [torch, ray]\nconda: [{pip: *p}, *p]",
    "a: &a [[[x]]]\n" + "b: " + "[" * (DEEPEST - 5) + "*a" + "]" * (DEEPEST - 5),
    f"a: &a {'x' * 1023}\nb: [" + "*a, " * (_MOST_REPEATED // 1024) + "]",
)
LAUGHS = f"a: &a [{'x, ' * 10}]\n" + "".join(
    f"{other}: &{other} [{f'*{one}, ' * 10}]\n" for one, other in pairwise("abcdefghi"))
MERGED = "a: &a {x0: 0, x1: 1}\n" + "".join(
    f"{other}: &{other} {{<<: [*{one}, *{one}]}}\n" for one, other in pairwise("abcdefghijklmnopqrstuvwxyz"))
BOUNDS = {
    "laughs": LAUGHS, "merged laughs": MERGED, "itself": "&a [*a]", "itself, merged": "a: &a {<<: *a}",
    "itself, deeper": "a: &a {b: [{c: *a}]}", "a key of itself": "? &a [*a]\n: b",
    "long texts": f"a: &a {'x' * 1024}\nb: [" + "*a, " * (_MOST_REPEATED // 1024) + "]",
    "deep": "a: &a [[[x]]]\n" + "b: " + "[" * (DEEPEST - 4) + "*a" + "]" * (DEEPEST - 4),
    "deeper and deeper": "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}]\n" for n in range(100)),
    "deep lists": "[" * 100_000, "base 60": "a: " + "1:" * 20_000 + "1", "large": "a" * 2**21,
}
BAD = {
    **BOUNDS, "deep mappings": "".join(" " * n + "a:\n" for n in range(100)), "merged text": "a: &a b\nd: {<<: *a}",
    "digits": "9" * 5000, "no int": "!!int ''", "no bool": "!!bool x", "no time": "!!timestamp x",
    "no day": "2020-13-45", "no float": "!!float ''", "an object": "!!python/name:os.system x",
    "a list as key": "? [a]\n: b", "half": "a: [", "a control sign": "a: \x00",
    "half a character": 'a: "\\uD800"', "half a key": '"\\U0000DFFF": b', "two halves": r'["\ud83d\ude00"]',
}


@pytest.mark.parametrize("text", GOOD)
def test_plain_values_are_those_of_the_safe_loader(text):
    assert plain_yaml(text) == yaml.safe_load(text)


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_would_hurt_is_one_line(text):
    with pytest.raises(NotYaml) as refused:
        plain_yaml(text)
    assert str(refused.value).strip() and len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("as_written", [False, True])
@pytest.mark.parametrize("text", BOUNDS.values(), ids=BOUNDS)
def test_a_bound_is_told_as_one(text, as_written):
    if as_written and text == BOUNDS["base 60"]:
        assert plain_yaml(text, as_written=True) == {"a": text.removeprefix("a: ")}
        return
    with pytest.raises(YamlBound):
        plain_yaml(text, as_written=as_written)


@pytest.mark.parametrize("text", [
    "1", "0.60", "1e3", "1:30", "0x1f", "007", "1_000", "yes", "off", "true", "2026-11-23",
    "2026-11-23 10:00:00+01:00", "=", "9" * 500, "text"])
def test_texts_as_they_are_written(text):
    assert plain_yaml(f"a: {text}\nb: '{text}'\n{text}: [x]", as_written=True) == {"a": text, "b": text, text: ["x"]}


def test_nothing_is_no_text_and_what_is_merged_is_merged():
    assert plain_yaml("a:\nb: ~\nc: ''\nd: null", as_written=True) == {"a": None, "b": None, "c": "", "d": None}
    assert plain_yaml("a: &a {b: 1}\nc: {<<: *a, d: 2}", as_written=True)["c"] == {"b": "1", "d": "2"}


def test_of_a_file_without_end_no_more_is_read_than_the_bound(tmp_path):
    with (tmp_path / "large.yaml").open("wb") as file:
        file.truncate(2**32)
    with pytest.raises(NotYaml, match="more than 1048576 bytes"):
        read_plain_yaml(tmp_path / "large.yaml")


def test_a_file_is_utf_8_whatever_the_locale(tmp_path):
    (tmp_path / "a.yaml").write_bytes("a: é 中".encode())
    assert read_plain_yaml(tmp_path / "a.yaml") == {"a": "é 中"}
    (tmp_path / "b.yaml").write_bytes(b"a: \xff")
    with pytest.raises(UnicodeDecodeError):
        read_plain_yaml(tmp_path / "b.yaml")
