"""The root of every error that is the user's or the machine's, not the code's.

Its message is one line that says what, where and the remedy; command lines print it and exit with a code that is not
0. Anything else that propagates is a bug and keeps its traceback.
"""


class MemAgentError(Exception):
    """One clear line for people."""


class ConfigError(MemAgentError, ValueError):
    """A bad setting: the message names the variable, its value and what is allowed."""
