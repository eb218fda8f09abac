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
        ("needles: a", "noise, needle"), ("- a", "mapping"), ("needle: '{key}'", "needle"),
        ("vt: '{value} {what}'", "vt"), ("cwe_document: 'Words:'", "cwe_document"), ("cwe: 3", "cwe"),
        ("needle: '{kind:d} {key} {value}'", "needle"), ("qa: '{question'", "qa"), ("a: [", "cannot be read"),
    ],
)
def test_a_bad_wording_is_named(tmp_path, content, message):
    with pytest.raises(WordingError, match=message):
        load_wording(own(tmp_path, content))
