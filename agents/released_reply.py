r"""Reads a memory turn's reply as ReMemR1's released code does (recurrent/impls/memory_revisit.py, and the copy of its
evaluation, taskutils/memory_eval/utils/rememr1.py): for its checkpoints, and for its tables.

::

    reply                                                  memory                               query
    <thinking>t</thinking><update>a</update>               all of it                            none
    <update>a</update> <recall>q</recall>                  <update>a</update>                   q
    <recall>q</recall> b <recall>r</recall>                b                                    q</recall> b <recall>r
    <update>a</update><recall>q1(line end)q2</recall>      <update>a</update>                   none
    <update>a</update><recall>q                            all of it                            none
    a                                                      a                                    none

The memory is everything outside closed recalls, stripped: thinking and tags are carried. The query runs from the first
``<recall>`` to the last ``</recall>`` of a line, so two queries on one line are joined, and one over lines is none.
"""

from __future__ import annotations

import re

_CLOSED = re.compile(r"<recall>.*?</recall>", re.DOTALL)
_QUERY = re.compile(r"<recall>(.+)</recall>")


def released_memory(reply: str) -> str:
    return _CLOSED.sub("", reply).strip()


def released_query(reply: str) -> str:
    """Empty where nothing is asked; a query of blanks alone is one."""
    found = _QUERY.search(reply)
    return found[1] if found else ""
