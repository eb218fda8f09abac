"""Lines of a log may hold what a model has said."""

import io
import logging

from mem_agent.system.logging_setup import log_to_terminal
from mem_agent.system.one_line_errors import one_line_errors


def test_lines_and_tracebacks_command_no_terminal(monkeypatch):
    out, root = io.StringIO(), logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])  # as a command finds it
    monkeypatch.setattr(root, "level", root.level)
    log_to_terminal(logging.INFO, stream=out)
    logger = logging.getLogger("mem_agent.of_a_test")
    logger.info("question %s", "\x1b]0;own\x07")
    logger.debug("not shown")
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        logger.exception("failed")
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["question �]0;own�", "failed"] and lines[-1] == "ValueError: �[2J"


def test_what_a_library_logs_in_a_command_commands_no_terminal(monkeypatch):
    """By handlers of its own, which it makes before or after the command begins; its colours stay."""
    out, library = io.StringIO(), logging.getLogger("a_library")
    monkeypatch.setattr(library, "handlers", [logging.StreamHandler(out)])
    before = logging.getLogRecordFactory()

    @one_line_errors("nothing")
    def main():
        logging.getLogger("a_library.models").warning("no weights for %s, \x1b[31mred\x1b[0m", "\x1b]0;own\x07\u202e")
        return 0

    logging.setLogRecordFactory(logging.LogRecord)
    try:
        assert main() == 0
    finally:
        logging.setLogRecordFactory(before)
    assert out.getvalue() == "no weights for �]0;own��, \x1b[31mred\x1b[0m\n"
