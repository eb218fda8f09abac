"""Rows that are left out are told in their own words, which may be anything."""

import pytest

from mem_agent.data.bad_rows import BadRows, NoGoodRows

OWN = "row 1 (\x1b]0;own\x07): a\nb"


def test_a_bad_row_is_one_line_that_commands_no_terminal(capsys):
    bad = BadRows("prepare", strict=False)
    bad.add(OWN)
    bad.add("x" * 5000)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "prepare: bad row left out, row 1 (�]0;own�): a b" and len(second) < 1100


def test_the_row_that_ends_a_command_is_told_so_as_well():
    with pytest.raises(NoGoodRows, match=r"^row 1 \(�\]0;own�\): a b \(--strict: nothing is written\)$"):
        BadRows("prepare", strict=True).add(OWN)
