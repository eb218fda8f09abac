"""Every way to write tags has a defined reading; none raises."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.agents.rememr1 import REVISIT
from mem_agent.agents.tagged_reply import examples_in, read_reply


@pytest.mark.parametrize(
    "reply,update,recall,good",
    [
        ("<update>a</update>", "a", None, True),
        ("<thinking>t</thinking>\n<update>a</update>\n<recall>q r</recall>", "a", "q r", True),
        ("<recall>q</recall><update>a</update>", "a", "q", True),
        ("<update>\n line one\nline two \n</update>", "line one\nline two", None, True),
        ("before <update>a</update> after", "a", None, True),
        # without one of them
        ("", None, None, False),
        ("<recall>q</recall>", None, "q", False),
        # unclosed
        ("<update>a", None, None, False),
        ("<update>a</update><recall>q", "a", None, False),
        ("<thinking>t <update>a</update>", None, None, False),
        # closing what was never opened
        ("a</update>", None, None, False),
        ("<update>a</update></recall>", "a", None, False),
        # nested
        ("<update>a<recall>q</recall></update>", None, None, False),
        ("<update>a</update><recall><recall>q</recall></recall>", "a", None, False),
        ("<thinking>I write <update>x</update> now</thinking><update>a</update>", "a", None, True),
        # repeated
        ("<update>a</update><update>b</update><recall>q</recall>", None, "q", False),
        ("<update>a</update><recall>q</recall><recall>r</recall>", "a", None, False),
        ("<thinking>t</thinking><update>a</update><thinking>t</thinking>", "a", None, True),
        # blank
        ("<update></update>", None, None, False),
        ("<update>...</update>", None, None, False),
        ("<update>a</update><recall> </recall>", "a", None, False),
        # other spellings are text
        ("<Update>a</Update>", None, None, False),
    ],
)
def test_readings(reply, update, recall, good):
    read = read_reply(reply)
    assert [s and reply[s.start : s.end] for s in (read.update, read.recall)] == [update, recall]
    assert read.good is good


def test_echoing_the_prompt_is_no_reply():
    examples = examples_in(REVISIT.instructions)
    for echo in (REVISIT.instructions, REVISIT.instructions.split("form:\n")[1], "<update>...</update>"):
        read = read_reply(echo, examples)
        assert read.update is None and read.recall is None and not read.good


def test_examples_of_own_templates_are_blank():
    examples = examples_in("Write <update> the new memory </update> and <recall>who is x</recall>. {problem}")
    assert examples == {"the new memory", "who is x"}
    assert read_reply("<update>the new memory</update>", examples).update is None
    assert read_reply("<update>the new memory of Ann</update>", examples).good
    assert not read_reply("<update>Ann</update><recall> who is x\n</recall>", examples).good


PIECES = [f"<{c}{name}>" for c in ("", "/") for name in ("thinking", "update", "recall")]


@settings(max_examples=300)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=14))
def test_any_text_has_a_reading_inside_it(parts):
    text = "".join(parts)
    read = read_reply(text)
    for span in (read.update, read.recall):
        if span:
            content = text[span.start : span.end]
            assert content == content.strip() != "" and not any(piece in content for piece in PIECES)
    assert not read.good or (read.update and text.count("<update>") >= 1)
