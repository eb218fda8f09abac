"""Lines of a log may hold what a model has said."""

import io
import logging

from mem_agent.system.logging_setup import log_to_terminal


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
