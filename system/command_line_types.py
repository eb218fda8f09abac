"""Numbers on command lines: ``parser.add_argument("--rows", type=positive_number)``."""

from __future__ import annotations

import argparse


def whole_number(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed: a whole number at least {least}")
    return int(text)


def positive_number(text: str) -> int:
    return whole_number(text, least=1)


def port_number(text: str) -> int:
    if whole_number(text) >= 2**16:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed: 0, for a free one, to 65535")
    return int(text)
