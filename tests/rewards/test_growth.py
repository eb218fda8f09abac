r"""Whatever reads a model's reply, or a question's answer, takes a time in proportion to its length.

Each pair is a reader and a text that took its length squared, or more, by a search from every beginning or by passing
over the text once for each of its parts.
"""

import re
import time
import unicodedata
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mem_agent.agents.released_reply import released_memory, released_query
from mem_agent.asking.sources import sources
from mem_agent.asking.steps import TurnDone
from mem_agent.data.locomo import _TURN
from mem_agent.report.viewer.facts import Fact, facts_of, spans
from mem_agent.report.viewer.terminal import _excerpt, _gold
from mem_agent.report.viewer.words import difference
from mem_agent.rewards.exact_match import normalise_answer
from mem_agent.rewards.intrinsic.texts import question_id
from mem_agent.rewards.judge import BadVerdict, read_verdict
from mem_agent.rewards.marked import longest, shortest
from mem_agent.rewards.memory_state import Step
from mem_agent.rewards.normal_form import normal_form
from mem_agent.rewards.option_choice import chosen_option
from mem_agent.rewards.published_state import published_state_rewards
from mem_agent.rewards.qa_metrics import token_f1
from mem_agent.rewards.reply_form import Form, form_shares
from mem_agent.rewards.text_f1 import answer_f1
from mem_agent.sessions.records import Session, Turn
from mem_agent.sessions.render import embedded_text
from mem_agent.sessions.table import question_of
from mem_agent.sessions.wording import load_wording
from mem_agent.sifter.rounds.rank_rows import Prompting, rank_row
from mem_agent.tests.helpers.uncollected import uncollected
from mem_agent.traces.word_diff import word_diff

LENGTH = 20_000
MARKS = "\u0301\u0316"


def state(text):
    step = Step(True, text, text, text, lambda: [text], lambda: text, lambda: text, text)
    return published_state_rewards([step], text, ["Ann"])


def boxed_form(text):
    return form_shares(Form.BOXED, text)


def options(text):
    return chosen_option(text, ["(a) tea", "(b) milk"])


def verdict(text):
    with suppress(BadVerdict):
        read_verdict(text)


def sessions(count):
    """A row with so many, all of them gold."""
    ids = list(map(str, range(count)))
    talks = [[{"role": "user", "content": "Hi"}]] * count
    return {"question": "Who?", "haystack_sessions": talks, "haystack_session_ids": ids, "answer_session_ids": ids}


def words(start, count):
    return " ".join(f"{start}{number}" for number in range(count))


def turns(speakers):
    """A session in which everybody speaks once."""
    return Session("s", tuple(Turn(f"person{n}x", "<p" * 9) for n in range(speakers)))


def credited(text):
    """A reading of one section, whose memory is the answer."""
    return sources([TurnDone(0, 0, "memory", (0,), text, text, "", 1, 1, None)], text, "Who?")


def ranked(count):
    """The row of a question about so many sessions, half of them gold."""
    asked = question_of(sessions(count) | {"answer_session_ids": list(map(str, range(0, count, 2)))}, "rows.jsonl")
    return rank_row("d", asked, [0.5] * count, [1] * count, Prompting(load_wording(), lambda text: 0, 2 * count))


def numbered(count):
    return words("w", count)


CASES = {
    "braces inside each other": (normalise_answer, lambda n: "{" * n + "}" * n),
    "braces side by side": (normalise_answer, lambda n: "{}" * n),
    "commands inside each other": (normalise_answer, lambda n: "\\text{" * n + "}" * n),
    "articles": (normalise_answer, lambda n: "the . " * n),
    "marks on a letter": (normalise_answer, lambda n: MARKS * n),
    "marks on a letter of a reply": (lambda text: answer_f1(text, ["Ann"]), lambda n: MARKS * n),
    "marks on a letter of a question": (question_id, lambda n: MARKS * n),
    "updates that never end": (state, lambda n: "<update>" * n),
    "memories that never end": (state, lambda n: "<memory>" * n),
    "boxes that never end": (state, lambda n: "\\boxed{" * n),
    "recalls that never end": (released_memory, lambda n: "<recall>" * n),
    "queries that never end": (released_query, lambda n: "<recall>" * n),
    "blanks behind a letter": (options, lambda n: "a." + " " * n + "!"),
    "blanks behind a word": (options, lambda n: "answer" + " " * n + "!"),
    "blanks of a verdict": (verdict, lambda n: "```json" + "\n" * n + "{"),
    "an answer in its box and behind it": (boxed_form, lambda n: "\\boxed{ab" + "a" * n + "}" + "a" * 2 * n),
    "gold sessions": (lambda row: question_of(row, "rows.jsonl"), lambda n: sessions(n // 10)),
    "a long fact": (lambda text: spans(text + text, Fact(text, (*text.split(), "x"), False)), lambda n: "b " * n),
    "facts of a text that holds all": (
        lambda both: [spans(both[0], fact) for fact in facts_of(both[1])],
        lambda n: (words("w", n // 5), words("w", n // 5).split())),
    "facts of a long text": (
        lambda both: [spans(both[0], fact) for fact in facts_of(both[1])],
        lambda n: ("w1 " * n, [f"g{number}" for number in range(n // 20)])),
    "an excerpt around many facts": (
        lambda text: _excerpt(text, _gold(text, facts_of(["w"])), False, False), lambda n: "w " * (n // 4)),
    "zeros of a session": (_TURN.findall, lambda n: "D" + "0" * n),
    "memories of one word": (lambda text: word_diff(text, text + "b"), lambda n: "b " * n),
    "memories without a common word": (lambda n: word_diff(words("x", n), words("y", n)), lambda n: n // 100),
    "memories of which most words stayed, in a terminal": (
        lambda n: difference(words("", n), words("", n).replace("5 ", "x ")), lambda n: n),
    "memories without a common word, in a terminal": (
        lambda n: difference(words("a x", n), words("a y", n)), lambda n: n // 100),
    "memories of one word, in a terminal": (lambda text: difference(text, text + "b"), lambda n: "b " * n),
    "gold sessions of a prompt": (ranked, lambda n: n // 10),
    "speakers of a session": (embedded_text, lambda n: turns(n // 20)),
    "words of a session's tag": (embedded_text, lambda n: Session("s", (Turn("user", "<" + "a9" * n),))),
    "words of an answer": (credited, lambda n: numbered(n // 20)),
    "golds of a long-document answer": (lambda text: token_f1(text, text.split()), lambda n: numbered(1 + n // 20)),
    "golds of an answer": (lambda text: answer_f1(text, text.split()), lambda n: numbered(1 + n // 10)),
}


def seconds(call, text):
    with uncollected():
        began = time.thread_time()
        call(text)
        return time.thread_time() - began


@pytest.mark.parametrize("case", CASES)
def test_time_grows_with_the_length(case):
    """Squared is 16 times; the least of three, since others use the machine, and nothing below what can be told."""
    call, text = CASES[case]
    call(text(10))
    short = min(seconds(call, text(LENGTH)) for _ in range(3))
    assert seconds(call, text(4 * LENGTH)) < 8 * max(short, 0.02)


@given(st.text(st.sampled_from("a\u0301\u0316\u00e9\u1100\u1161\u3042\u3099 .,"), max_size=30))
def test_a_normal_form_is_unicodes(text):
    assert normal_form("NFC", text) == unicodedata.normalize("NFC", text)
    assert normal_form("NFKC", text) == unicodedata.normalize("NFKC", text)


@given(st.lists(st.sampled_from(["<u>", "</u>", "<u", "a", " ", "\n", ">"]), max_size=12).map("".join))
def test_what_stands_between_marks_is_what_regular_expressions_find(text):
    assert list(shortest(text, "<u>", "</u>")) == re.findall("<u>(.*?)</u>", text)
    assert list(longest(text, "<u>", ">")) == re.findall("<u>(.+)>", text)
