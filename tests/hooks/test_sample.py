"""A trajectory as data: what is written is read back, and what is not ours is no record."""

import pytest

from mem_agent.agents.records import FailureKind, Outcome, StopReason, Trajectory, Turn, TurnKind
from mem_agent.hooks.sample import Record, Sample, write_failure, write_record
from mem_agent.tests.helpers.samples import foreign, trajectory, turns_of


@pytest.mark.parametrize("metadata", [
    None, {}, {"turns": []}, {"turns": [], "memories": [], "outcome": "completed"}, {"steps": 3}], ids=str)
def test_a_sample_of_another_hook_has_no_record(metadata):
    assert Record.of(foreign(train_metadata=metadata)) is None


def test_a_turn_is_its_prompt_and_its_reply():
    asked = Turn(TurnKind.FINAL, [1, 2, 3, 7, 8], 3, [-0.1, -0.2], StopReason.STOP, "v1", 2)
    record = Record.of_trajectory(Trajectory((asked,), Outcome.COMPLETED, "yes"), rewards=[{"gain": 1.0}])
    assert (asked.prompt_ids, asked.response_ids) == ([1, 2, 3], [7, 8]) and record.state_totals == [1.0]
    done = write_record(Sample(), record, "yes", ["v1"])
    assert done.status is Sample.Status.COMPLETED and done.loss_mask == [1, 1] and done.reward is None
    assert done.response == "yes" and done.weight_versions == ["v1"] and Record.of(done) == record


@pytest.mark.parametrize("key,reward", [("", 0.0), ("score", {"score": 0.0})])
def test_a_failure_after_the_end_takes_it_out_of_training_and_keeps_the_turns(key, reward):
    done = trajectory(turns_of([2, 2]), record={"reward_parts": {"answer": 1.0}, "accuracy": 1.0}, response_length=2)
    write_failure(done, FailureKind.INTERNAL, "why", key)
    record = Record.of(done)
    assert (record.outcome, record.failure, record.failure_message) == (Outcome.FAILED, FailureKind.INTERNAL, "why")
    assert len(record.turns) == 2 and record.reward_parts == {} and record.accuracy is None
    assert done.reward == reward and done.remove_sample and done.loss_mask == [0, 0]
