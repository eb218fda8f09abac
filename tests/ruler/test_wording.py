"""Wording files: sentences in place of the built-in ones."""

import pytest

from mem_agent.ruler.wording import Sentences, WordingError, load_wording


def own(tmp_path, content):
    path = tmp_path / "own.yaml"
    path.write_text(content)
    return path


def test_a_wording_file_replaces_some_texts(tmp_path):
    wording = load_wording(own(tmp_path, 'needle: "{key}, {key}: {value}"\nqa_prefix: ""\n'))
    assert wording.needle.format(kind="number", kinds="numbers", key="a", value="1") == "a, a: 1"
    assert wording.niah_one == Sentences().niah_one and wording.qa_prefix == ""
    assert wording.name.startswith("own.yaml sha256:")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("needles: a", "allowed: a mapping of noise, needle"),
        ("- a", "allowed: a mapping"),
        ("", "allowed: a mapping"),
        ("needle: '{key}'", "needle must hold"),
        ("vt: '{value} {what}'", "vt must hold"),
        ("noise: ' '", "noise must hold"),
        ("cwe_document: 'Words:'", "cwe_document must hold"),
        ("vt_document: '{document} {value}'", "vt_document must hold"),
        ("cwe: 3", "not a text"),
        ("needle: '{kind:d} {key} {value}'", "needle has more than a name in braces"),
        ("needle: '{kind:>1000000000} {key} {value}'", "more than a name"),
        ("qa: '{question!r}'", "more than a name"),
        ("qa: '{question'", "not a text"),
        ("cwe_document: '{document} {document}'", r"cwe_document has \{document\} 2 times; at most 1"),
        ("example: '{context}{context}{question}{answers}'", r"example has \{context\} 2 times"),
        (f"needle: '{{value}} {'{key}' * 9}'", r"needle has \{key\} 9 times; at most 8"),
        ('vt_prefix: "\\uD800"', "cannot be read: half a character"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_bad_wording_is_named(tmp_path, content, message):
    with pytest.raises(WordingError, match=message):
        load_wording(own(tmp_path, content))
