"""Tables in Markdown: columns of words and of numbers, and cells that cannot break them."""

from mem_agent.system.markdown import markdown_table


def test_numbers_are_aligned_and_words_are_not():
    lines = ["| run | n |", "|---|--:|", "| a | 1 |"]
    assert markdown_table(("run", "n"), [("a", 1)], {"run"}).splitlines() == lines


def test_cells_keep_their_table_and_are_no_html():
    assert markdown_table(("run",), [("a|b <i>&\n\rc",)]).splitlines()[2] == "| a\\|b &lt;i>&amp; c |"
