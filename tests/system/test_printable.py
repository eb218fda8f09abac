"""Text that must not command a terminal."""

import os

import pytest

from mem_agent.system.printable import encodable, one_line, printable, printable_log


@pytest.mark.parametrize(("text", "shown"), [
    ("plain, naïve 東京\n\tline", "plain, naïve 東京\n\tline"),
    ("\x1b[31mred\x1b]0;title\x07", "�[31mred�]0;title�"),
    ("a\rb\x9bc\u202ed\udc80", "a�b�c�d�"),
])  # fmt: skip
def test_commands_of_a_terminal_are_replaced(text, shown):
    assert printable(text) == shown


def test_a_line_is_one_line_of_bounded_length():
    assert one_line("a\nb\t c") == "a b c"
    assert one_line("abcdef", 4) == "abc…" and one_line("abcd", 4) == "abcd"


def test_a_log_keeps_its_colours_and_bars_of_progress_alone():
    assert printable_log("\x1b[36m(pid=1)\x1b[0m 1%\r 2%\n") == "\x1b[36m(pid=1)\x1b[0m 1%\r 2%\n"
    assert printable_log("\x1b[2J\x1b]0;own\x07\x1b") == "�[2J�]0;own��"


def test_a_byte_of_a_name_that_is_no_utf_8_is_shown_as_what_it_is():
    assert encodable(os.fsdecode(b"caf\xe9 \xff") + " caf\u00e9\x1b") == "caf\\xe9 \\xff caf\u00e9\x1b"
