r"""Right and wrong replies in all modes, and that nothing a model writes is waited for.

The table is by hand; where a published code reads a reply in another way, ``rewards/math_answer.py`` says so.
"""

import os
import signal
import subprocess
import sys
import threading

import pytest

from mem_agent.rewards import math_checker
from mem_agent.rewards.math_answer import Mode, alone_in_its_place, is_right
from mem_agent.rewards.math_checker import math_equal, stop_worker
from mem_agent.tests.helpers.cpu_time import at_most
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for


def tag(answer):
    return f"<reasoning>\n3 and 6 and 20\n</reasoning>\n<answer>\n{answer}\n</answer>"


def box(answer):
    return f"3 and 6 and 20, so $\\boxed{{{answer}}}$."


# reply, gold -> strict, medium, loose, exact
CASES = [
    # How the number is written.
    (tag("18"), "18", 1, 1, 1, 1),
    ("<answer>18</answer>", "18", 1, 1, 1, 1),
    ("<answer>\n18", "18", 1, 1, 1, 1),
    (tag("$18"), "18", 1, 1, 1, 0),
    (tag("18."), "18", 1, 1, 1, 0),
    (tag("18.0"), "18", 1, 1, 1, 0),
    (tag("1,080"), "1080", 1, 1, 1, 0),
    (tag("1080"), "1,080", 1, 1, 1, 0),
    (tag("-3"), "-3", 1, 1, 1, 1),
    (tag("−3"), "-3", 1, 1, 1, 0),
    (tag("3"), "-3", 0, 0, 0, 0),
    (tag("17"), "18", 0, 0, 0, 0),
    (tag("1.5"), "15", 0, 0, 0, 0),
    (tag("180"), "18", 0, 0, 0, 0),
    # Words beside it.
    (tag("18 eggs"), "18", 1, 0, 1, 0),
    (tag("$18 per day"), "18", 1, 0, 1, 0),
    (tag("about 18"), "18", 1, 0, 0, 0),
    (tag("18 or 19"), "18", 1, 0, 0, 0),
    (tag("18 or 19"), "19", 0, 0, 0, 0),
    # A value that is still to be worked out.
    (tag("9*2"), "18", 1, 0, 1, 0),
    (tag("36/2"), "18", 1, 0, 1, 0),
    (tag("x = 18"), "18", 1, 0, 1, 0),
    # Percent, and how near is near.
    (tag("25%"), "25", 1, 1, 1, 0),
    (tag("25%"), "0.25", 1, 1, 1, 0),
    (tag("25"), "0.25", 0, 0, 1, 0),
    (tag("0.25"), "25", 0, 0, 1, 0),
    (tag("18.000001"), "18", 1, 0, 1, 0),
    (tag("18.001"), "18", 0, 0, 1, 0),
    (tag("18.01"), "18", 0, 0, 0, 0),
    # Boxes, and GSM8K's own mark.
    (box("18"), "18", 1, 1, 1, 0),
    (box("\\$18"), "18", 1, 1, 1, 0),
    (box("18\\text{ eggs}"), "18", 1, 0, 1, 0),
    ("\\boxed{3}, no: \\boxed{18}", "18", 1, 1, 1, 0),
    ("\\boxed{18}, no: \\boxed{3}", "18", 0, 0, 0, 0),
    ("so \\boxed{18", "18", 0, 0, 1, 0),
    ("9 * 2 = 18\n#### 18", "18", 1, 1, 1, 0),
    ("She answered 5 * 5 - 1 = 24 of them.\n#### 66", "66", 1, 1, 1, 0),
    # No place for an answer.
    ("18", "18", 1, 1, 1, 1),
    ("The answer is 18.", "18", 1, 0, 1, 0),
    ("The answer is 18. Not 20.", "18", 1, 0, 1, 0),
    ("The answer is clear.", "18", 0, 0, 0, 0),
    ("so she has 18", "18", 1, 0, 1, 0),
    ("18 eggs and 3 hens", "18", 0, 0, 0, 0),
    ("<answer></answer> is 18", "18", 1, 0, 1, 0),
    # Nothing.
    ("", "18", 0, 0, 0, 0),
    (tag(""), "18", 0, 0, 0, 0),
    ("no number", "18", 0, 0, 0, 0),
    ("eighteen", "18", 0, 0, 0, 0),
    (tag("18"), "", 0, 0, 0, 0),
    # LaTeX.
    (tag("\\frac{1}{2}"), "\\frac{1}{2}", 1, 1, 1, 1),
    (tag("1/2"), "\\frac12", 1, 1, 1, 0),
    (tag("0.5"), "\\frac{1}{2}", 1, 1, 1, 0),
    (tag("\\frac{2}{4}"), "\\frac{1}{2}", 1, 0, 1, 0),
    (tag("2\\sqrt{2}"), "\\sqrt{8}", 1, 1, 1, 0),
    (box("2\\sqrt{2}"), "$\\sqrt{8}$", 1, 1, 1, 0),
    (tag("2.8284"), "\\sqrt{8}", 0, 0, 1, 0),
    (tag("x^2 + 2x + 1"), "(x+1)^2", 1, 1, 1, 0),
    (tag("x^2 + 2x"), "(x+1)^2", 0, 0, 0, 0),
    (tag("(1, 2)"), "(1,2)", 1, 1, 1, 0),
    (tag("\\{2,1\\}"), "\\{1,2\\}", 1, 1, 1, 0),
    (tag("\\text{east}"), "east", 1, 1, 1, 0),
    (tag("Ann, not ) Bob"), "ann, not ) bob", 1, 1, 1, 0),
    # Of several formulas the published ways take one, strict the first and loose the last; an equation is one.
    (tag("$16$ $17$"), "16", 1, 0, 0, 0),
    (tag("$16$ $17$"), "17", 0, 0, 1, 0),
    (tag("$x+1$ $x+2$"), "x+1", 1, 0, 0, 0),
    (tag("$x+1$ $x+2$"), "x+2", 0, 0, 1, 0),
    (tag("y=x-1"), "x=y+1", 1, 1, 1, 0),
    # A gold that is a whole solution.
    (tag("18"), "9 * 2 = 18\n#### 18", 1, 1, 1, 1),
    (tag("18"), "so \\boxed{18}", 1, 1, 1, 1),
]


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A question has the time that it takes on a busy machine."""
    monkeypatch.setattr(math_checker, "LIMIT_S", int(HANGS_AFTER_S))


@pytest.mark.parametrize(("reply", "gold", "strict", "medium", "loose", "exact"), CASES)
def test_what_each_mode_takes(reply, gold, strict, medium, loose, exact):
    found = {mode: is_right(mode, reply, [gold]) for mode in Mode}
    assert found == {"strict": strict, "medium": medium, "loose": loose, "exact": exact}
    assert found["medium"] <= min(found["strict"], found["loose"])


def test_any_of_the_golds_will_do():
    assert is_right("medium", tag("18"), ["3", "18"]) and not is_right("medium", tag("18"), [])


def test_a_place_that_was_found_already_is_not_looked_for():
    assert is_right("medium", "so \\boxed{3}", ["18"], "18") and alone_in_its_place("so 18") == ""


# --- nothing hangs ---------------------------------------------------------------------------------------------------

LONG = ["\\frac{1}{" * 11_000, "$\\sqrt{x}" * 11_000, "\\boxed{" * 14_000, "(" * 100_000, "9" * 100_000, "1," * 50_000,
        "-" * 100_000, "answer is " * 10_000, "<answer>" * 12_000, "answer 1 = " * 9_000, "\\text{" * 16_000]


@pytest.mark.parametrize("reply", LONG, ids=lambda reply: reply[:12])
@pytest.mark.parametrize("placed", [str, tag])
def test_a_hundred_thousand_characters_are_wrong_in_time(reply, placed, monkeypatch):
    monkeypatch.setattr(math_checker, "LIMIT_S", 5)
    with at_most(5):  # the checker has a process and a limit of its own
        assert not any(is_right(mode, placed(reply), ["123456"]) for mode in Mode)


@pytest.fixture
def fresh():
    stop_worker()
    math_checker._asked.cache_clear()
    yield
    stop_worker()


def hurried(how, text, gold):
    """The verdict on a question that has one second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(math_checker, "LIMIT_S", 1)
        return math_equal(how, text, gold)


ENDLESS = ["2^{10^9}", "9^{9^{9^{9}}}", "1000000000!", "(x+1)^{100000} - (x+2)^{100000}"]


@pytest.mark.parametrize("text", ENDLESS)
def test_what_takes_for_ever_is_wrong_and_holds_nobody_up(text, fresh):
    assert math_equal("equal", "1", "1")  # the process is there
    assert not hurried("close", text, "5")  # without a limit it would hang
    assert math_equal("close", "10/2", "5")


@pytest.mark.parametrize("mode", ["strict", "medium", "loose"])
@pytest.mark.parametrize(("seconds", "most"), [(5, 2), (4, 3), (0.01, 400)])
def test_all_golds_of_a_row_have_a_time_together(mode, seconds, most, monkeypatch):
    """Golds are the data's, and a row may have any number of slow ones."""
    asked = []
    monkeypatch.setattr(math_checker, "LIMIT_S", 5)
    monkeypatch.setattr(math_checker, "_asked", lambda *question: (asked.append(question) or False, seconds))
    golds = [f"10^{{10^{{{number}}}}}" for number in range(200)]
    assert not is_right(mode, tag("x+1"), golds) and min(len(golds), most) <= len(asked) <= most
    assert is_right(mode, tag("x+1"), [*golds, "x+1"]), "the same text is no question"


def test_one_that_feels_the_signal_goes_on(fresh, monkeypatch):
    monkeypatch.setattr(math_checker, "_MORE_S", HANGS_AFTER_S)
    assert math_equal("equal", "1/3", "2/6")
    pid = math_checker._worker.pid
    assert not hurried("close", ENDLESS[-1], "5")
    assert math_checker._worker.pid == pid


def test_a_process_that_died_is_replaced_and_its_question_asked_again(fresh):
    assert math_equal("equal", "2/4", "1/2")
    pid = math_checker._worker.pid
    os.kill(pid, signal.SIGKILL)
    assert math_equal("equal", "3/6", "1/2") and math_checker._worker.pid != pid


def test_one_that_takes_no_signal_is_ended(fresh):
    assert math_equal("equal", "4/8", "1/2")
    pid = math_checker._worker.pid
    os.kill(pid, signal.SIGSTOP)
    assert not hurried("equal", "5/10", "1/2")
    assert math_equal("equal", "6/12", "1/2") and not os.path.exists(f"/proc/{pid}")


def test_many_threads_ask_one_process():
    found = {}
    threads = [threading.Thread(target=lambda n=n: found.setdefault(n, math_equal("equal", f"{n}/7", f"{2 * n}/14")))
               for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(8), True)


def test_a_fork_asks_a_process_of_its_own():
    assert math_equal("equal", "7/14", "1/2")
    before = math_checker._worker.pid
    child = os.fork()
    if child == 0:
        ok = math_equal("equal", "8/16", "1/2") and math_checker._worker.pid != before
        stop_worker()
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert math_equal("equal", "9/18", "1/2") and math_checker._worker.pid == before


KILLED = """
import os, signal
from mem_agent.rewards import math_checker
math_checker.LIMIT_S = {limit}
assert math_checker.math_equal("equal", "2/4", "1/2")
print(math_checker._worker.pid, flush=True)
if {sudden}: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("sudden", [True, False])
def test_it_ends_with_whoever_asked(sudden):
    code = KILLED.format(sudden=sudden, limit=int(HANGS_AFTER_S))
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANGS_AFTER_S)
    wait_for(lambda: not os.path.exists(f"/proc/{int(asked.stdout)}"))


def test_without_anybody_to_ask_there_is_one_line(monkeypatch, tmp_path):
    stop_worker()
    broken = tmp_path / "broken.py"
    broken.write_text("raise ImportError('math_verify')")
    monkeypatch.setattr(math_checker.math_worker, "__file__", str(broken))
    with pytest.raises(math_checker.NoWorker, match="is math-verify installed"):
        math_equal("equal", "11/22", "1/2")
    assert is_right("medium", tag("18"), ["18"]), "plain numbers need nobody"


def test_plain_numbers_start_no_process(monkeypatch):
    monkeypatch.setattr(math_checker, "_Worker", lambda: pytest.fail("a process was started"))
    stop_worker()
    for reply, gold, *_ in CASES[:10]:
        for mode in Mode:
            is_right(mode, reply, [gold])
