"""Every target comes to its hour, least searched first, over as many calls as it takes."""

from mem_agent.tests.fuzz.hours import Hours
from mem_agent.tests.fuzz.target import Target

TARGETS = [Target(name, print, (b"",)) for name in "abc"]


def test_least_searched_is_next_and_nobody_is_searched_twice_at_once(tmp_path):
    hours = Hours(tmp_path, TARGETS, each_s=100)
    first, second = hours.take(), hours.take()
    assert [first.name, second.name] == ["a", "b"]
    hours.give_back(first, 10, found=False)
    assert hours.take().name == "c"
    assert hours.take().name == "a"
    assert hours.take() is None


def test_another_call_goes_on_and_ends_when_all_had_theirs(tmp_path):
    for seconds, name in [(60, "a"), (60, "b"), (100, "c"), (50, "a"), (40, "b")]:
        hours = Hours(tmp_path, TARGETS, each_s=100)
        target = hours.take()
        assert target.name == name
        hours.give_back(target, seconds, found=False)
    assert Hours(tmp_path, TARGETS, each_s=100).take() is None
    assert Hours(tmp_path, TARGETS, each_s=101).take().name == "b"


def test_what_found_a_fault_begins_anew(tmp_path):
    hours = Hours(tmp_path, TARGETS[:1], each_s=100)
    hours.give_back(hours.take(), 99, found=False)
    hours.give_back(hours.take(), 99, found=True)
    assert hours.searched == {"a": 0.0} and hours.take() is not None
