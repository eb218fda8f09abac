"""YAML gives plain values, and what would hurt is one line."""

import pytest
import yaml

from mem_agent.system.plain_yaml import DEEPEST, NotYaml, plain_yaml, read_plain_yaml

GOOD = (
    "a: [1, 2.5, {b: 'c'}]", "- x\n- ~\n- yes\n", "a: &t text\nb: *t\n", "a: |\n  two\n  lines\n", "", "2020-01-02",
    "[" * DEEPEST + "]" * DEEPEST, "a: 0x1f\nb: 1:30\n", "é: 中",
    "a: &t [b, {c: d}]\ne: *t\nf: [*t, *t]\n", "a: &a {b: c}\nd: {<<: *a, e: f}", "a: &a x\nb: [*a, *a]",
    "- &a 1\n" + "- *a\n" * 2000, f"a: &a {'[' * 20 + ']' * 20}\nb: {'[' * 11}*a{']' * 11}",
)


def chain(links, value):
    """Each line has the one before in it."""
    return "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} {value.format(f'*a{n - 1}')}\n" for n in range(1, links))


LAUGHS, DEEP_CHAIN = chain(21, "[{0}, {0}]"), chain(DEEPEST, "[{0}]")
MERGED_LAUGHS = "a0: &a0 {x: y}\n" + chain(21, "{{<<: [{0}, {0}]}}").partition("\n")[2]
BAD = {
    "deep lists": "[" * 100_000, "deep mappings": "".join(" " * n + "a:\n" for n in range(100)), "laughs": LAUGHS,
    "merged laughs": MERGED_LAUGHS, "a long text often": f"a: &a {'x' * 2**19}\nb: [*a, *a]",
    "itself": "&a [*a]", "itself, merged": "&a {<<: *a}", "within itself": "a: &a {b: [{c: *a}]}",
    "a chain": DEEP_CHAIN, "deep where it stands": f"a: &a {'[' * 20 + ']' * 20}\nb: {'[' * 12}*a{']' * 12}",
    "base 60": "a: " + "1:" * 20_000 + "1",
    "digits": "9" * 5000, "no int": "!!int ''", "no bool": "!!bool x", "no time": "!!timestamp x",
    "no day": "2020-13-45", "no float": "!!float ''", "an object": "!!python/name:os.system x",
    "a list as key": "? [a]\n: b", "large": "a" * 2**21, "half": "a: [", "a control sign": "a: \x00",
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


def test_aliases_are_bounded_by_what_they_stand_for():
    assert len(plain_yaml(chain(17, "[{0}, {0}]"))) == 17 and len(plain_yaml(chain(DEEPEST - 2, "[{0}]"))) == 30


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
