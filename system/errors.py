"""The root of every error that is the user's or the machine's, not the code's.

Its message is one line that says what, where and the remedy; command lines print it and exit with a code that is not
0. Anything else that propagates is a bug and keeps its traceback.
"""

import sys
import traceback


class MemAgentError(Exception):
    """One clear line for people."""


class ConfigError(MemAgentError, ValueError):
    """A bad setting: the message names the variable, its value and what is allowed."""


def reason_of(error: BaseException, most: int = 200) -> str:
    """What a library ended with, for such a line: its error's kind and message, cut to ``most`` letters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:most]


def place_of(error: BaseException) -> str:
    """``file:line`` of the innermost call that is a user's: neither of this pack, nor installed, nor Python's own."""
    frames = list(traceback.walk_tb(error.__traceback__))
    known = {__name__.partition(".")[0], *sys.stdlib_module_names}
    own = [(frame, line) for frame, line in frames if "site-packages" not in frame.f_code.co_filename
           and str(frame.f_globals.get("__name__")).partition(".")[0] not in known]
    frame, line = (own or frames)[-1]
    return f"{frame.f_code.co_filename}:{line}"
