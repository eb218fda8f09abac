"""What joins an earlier run, and what is refused."""

from dataclasses import replace

import pytest

from mem_agent.evaluation.identity import check_same_run
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import Run, read_run, write_run

RUN = Run(model="m", mode="rag", settings={"seed": 1}, samples=4, data={"50": "x"}, questions={"50": 7})


def test_more_lengths_join_and_fewer_samples_take_nothing_away(tmp_path):
    write_run(tmp_path, check_same_run(tmp_path, RUN))
    later = replace(RUN, samples=2, data={"100": "y"}, questions={"100": 9})
    write_run(tmp_path, check_same_run(tmp_path, later))
    assert read_run(tmp_path) == replace(RUN, data={"50": "x", "100": "y"}, questions={"50": 7, "100": 9})


OTHERS = [
    ({"model": "n"}, "holds results of another model; set another SAVE_FILE"),
    ({"settings": {"seed": 2}}, r"holds results of another settings \(SEED was 1, is 2\); set another SAVE_FILE"),
    ({"data": {"50": "z"}}, r"50\.jsonl is of another eval_50\.json; set another SAVE_FILE"),
]


@pytest.mark.parametrize("change,message", OTHERS)
def test_anything_else_is_refused(tmp_path, change, message):
    write_run(tmp_path, RUN)
    with pytest.raises(EvalError, match=message):
        check_same_run(tmp_path, replace(RUN, **change))


def test_prompts_that_were_recorded_as_such_are_told_apart_from_none(tmp_path):
    def joins(known, wanted):
        write_run(tmp_path, replace(RUN, settings=known))
        try:
            return bool(check_same_run(tmp_path, replace(RUN, settings=wanted)))
        except EvalError as error:
            assert "MEM_PROMPTS was 'own', is ''" in str(error)
            return False

    assert joins({"prompts": "own"}, {"mem_prompts": "own"}) and joins({"prompts": ""}, {"mem_prompts": ""})
    assert not joins({"prompts": "own"}, {"mem_prompts": ""})
