"""Samples of one document: they share its group, and nothing that a hook writes into."""

from mem_agent.data.training_file import TrainingRow
from mem_agent.training.rollout_side import siblings


def test_siblings_share_group_and_have_their_own_index():
    groups = [siblings(TrainingRow("q", "a", {"context": "c"}), group, 4) for group in range(6)]
    assert [sample.index for group in groups for sample in group] == list(range(24))
    assert {sample.group_index for sample in groups[5]} == {5}
    assert {(sample.prompt, sample.label) for sample in groups[0]} == {("q", "a")}


def test_siblings_share_no_metadata():
    one, two = siblings(TrainingRow("q", "a", {"context": "c"}), 0, 2)
    one.metadata["x"] = 1
    assert two.metadata == {"context": "c"}
