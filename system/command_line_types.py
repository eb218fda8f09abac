"""Numbers on command lines: ``parser.add_argument("--rows", type=positive_number)``."""

from __future__ import annotations

import argparse


def whole_number(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: allowed: a whole number at least 0")
    return int(text)


def positive_number(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed: a whole number at least 1")
    return int(text)


def port_number(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**16:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed: 0, for a free one, to 65535")
    return int(text)
