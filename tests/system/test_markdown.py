"""Tables in Markdown: columns of words and of numbers, and cells that cannot break them."""

from mem_agent.system.markdown import RawCell, fenced, markdown_code, markdown_table


def test_numbers_are_aligned_and_words_are_not():
    lines = ["| run | n |", "|---|--:|", "| a | 1 |"]
    assert markdown_table(("run", "n"), [("a", 1)], {"run"}).splitlines() == lines


def test_cells_keep_their_table_and_are_no_html():
    assert markdown_table(("run",), [("a|b <i>&\n\rc",)]).splitlines()[2] == "| a\\|b &lt;i>&amp; c |"


def test_no_text_commands_a_terminal():
    own, shown = "\x1b[31mred\x1b]0;own\x07\u202e", "�[31mred�]0;own��"
    assert markdown_table((own,), [(own,), (RawCell(markdown_code(own)),)]).splitlines() == [
        f"| {shown} |", "|--:|", f"| {shown} |", f"| `{shown}` |"]
    assert fenced("bash", own) == f"```bash\n{shown}\n```"
