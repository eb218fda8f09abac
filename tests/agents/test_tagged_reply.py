"""Every way to write tags has a defined reading; none raises, none is slow."""


import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mem_agent.agents.rememr1 import REVISIT
from mem_agent.agents.tagged_reply import examples_in, read_reply
from mem_agent.tests.helpers.cpu_time import at_most

LONG = "so the man with the key is not the man at the door " * 10_000


@pytest.mark.parametrize(
    "reply,update,recall,good",
    [
        ("<update>a</update>", "a", None, True),
        ("<thinking>t</thinking>\n<update>a</update>\n<recall>q r</recall>", "a", "q r", True),
        ("<recall>q</recall><update>a</update>", "a", "q", True),
        ("<update>\n line one\nline two \n</update>", "line one\nline two", None, True),
        ("before <update>a</update> after", "a", None, True),
        ("<update>a < b </up </updates></update>", "a < b </up </updates>", None, True),
        # without one of them
        ("", None, None, False),
        ("a", None, None, False),
        ("<recall>q</recall>", None, "q", False),
        ("<thinking>t</thinking>", None, None, False),
        # unclosed
        ("<update>a", None, None, False),
        ("<update>a</update><recall>q", "a", None, False),
        ("<update>a<recall>q</recall>", None, None, False),
        ("<thinking>t <update>a</update>", None, None, False),
        ("<update>a</update><thinking>t", "a", None, False),
        ("<update>a</update><update>b", None, None, False),
        ("<update", None, None, False),
        # closing what was never opened
        ("a</update>", None, None, False),
        ("</update><update>a</update>", "a", None, False),
        ("<update>a</update></recall>", "a", None, False),
        ("</thinking><update>a</update>", "a", None, False),
        # nested
        ("<update>a<recall>q</recall></update>", None, None, False),
        ("<update>a<update>b</update>c</update>", None, None, False),
        ("<recall>q<update>a</update></recall>", None, None, False),
        ("<update>a</update><recall><recall>q</recall></recall>", "a", None, False),
        ("<thinking>I write <update>x</update> now</thinking><update>a</update>", "a", None, True),
        ("<thinking><thinking></thinking></thinking><update>a</update>", "a", None, False),
        # repeated
        ("<update>a</update><update>a</update>", None, None, False),
        ("<update>a</update><update>b</update><recall>q</recall>", None, "q", False),
        ("<update>a</update><recall>q</recall><recall>r</recall>", "a", None, False),
        ("<thinking>t</thinking><update>a</update><thinking>t</thinking>", "a", None, True),
        # blank
        ("<update></update>", None, None, False),
        ("<update> \n\t</update>", None, None, False),
        ("<update>...</update>", None, None, False),
        ("<update>a</update><recall> </recall>", "a", None, False),
        ("<update>a</update><update></update>", None, None, False),
        # other spellings are text
        ("<Update>a</Update>", None, None, False),
        ("<update >a</update >", None, None, False),
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


@pytest.mark.parametrize(
    "reply",
    [
        f"<thinking>{LONG}</thinking><update>a</update>",
        LONG + "<update>a</update>",
        "<thinking>" + "<update>" * 60_000,
        "<update>" * 60_000 + "</update>" * 60_000,
        "<" * 500_000,
        "<update>" + " " * 500_000,
    ],
    ids=["long thinking", "no thinking tag", "opened in thinking", "nested", "brackets", "blanks"],
)
def test_half_a_megabyte_takes_a_moment(reply):
    with at_most(0.5):
        read_reply(reply)


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
