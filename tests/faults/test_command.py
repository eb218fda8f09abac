"""The drill's command refuses what it could not run, before it starts anything."""

import sys

import pytest

from mem_agent.tests.faults.__main__ import main

WRONG = [
    ("suite --only nothing", "--only: 'nothing' is in no name; there are /dev/shm full,"),
    ("suite --shapes 3x1", "invalid choice: '3x1'"),
    ("soak --hours 0", "--hours: '0': allowed: a number above 0"), ("soak --hours nan", "'nan': allowed"),
    ("soak --hours two", "'two': allowed"), ("soak --engines 0", "'0': allowed: a whole number at least 1"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG)
def test_what_it_cannot_run_is_refused(arguments, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["faults", *arguments.split()])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert said in capsys.readouterr().err


def test_faults_that_no_chosen_shape_has_are_no_success(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", "faults suite --shapes 1x1 --only rank".split())
    assert main() == 1
    assert "| another rank killed | sampling | - |" in capsys.readouterr().out
