"""What ReMemR1's release takes from a reply; each row is one of its docstring's, or a form between them."""

import pytest

from mem_agent.agents.released_reply import released_memory, released_query

CASES = [
    ("<thinking>t</thinking><update>a</update>", "<thinking>t</thinking><update>a</update>", ""),
    ("<update>a</update> <recall>q</recall>", "<update>a</update>", "q"),
    ("<recall>q</recall> b <recall>r</recall>", "b", "q</recall> b <recall>r"),
    ("<update>a</update><recall>q1\nq2</recall>", "<update>a</update>", ""),
    ("<recall>q1\n</recall><recall>q2</recall>", "", "q2"),
    ("<update>a</update><recall>q", "<update>a</update><recall>q", ""),
    ("a <recall></recall> b", "a  b", ""),
    ("<recall> </recall>", "", " "),
    ("<update>a<recall>q</recall></update>", "<update>a</update>", "q"),
    ("", "", ""),
]


@pytest.mark.parametrize("reply,memory,query", CASES)
def test_what_is_carried_and_asked(reply, memory, query):
    assert (released_memory(reply), released_query(reply)) == (memory, query)
