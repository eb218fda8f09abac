"""The host's data source reads what ``prepare_data`` writes, with documents inline and in the store."""

import copy

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mem_agent.config import Config
from mem_agent.hooks.reader import question_of
from mem_agent.launch.arguments import prompt_file
from mem_agent.launch.launch import join_shards
from mem_agent.memsifter.rl_data import SCHEMA
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.inside_host.host import (
    DataSource,
    Library,
    Sample,
    loop,
    module,
    parse,
    questions_of,
    training_file,
)


@pytest.mark.parametrize("inline", [True, False], ids=["context", "context_id"])
def test_rows_arrive_whole(tmp_path, inline):
    path = training_file(tmp_path, 5, inline)
    groups = DataSource(parse(tmp_path, FakeRouter(port=1), "--prompt-data", str(path))).get_samples(5)
    assert questions_of(groups) == [0, 1, 2, 3, 4]
    for number, group in enumerate(groups):
        assert [s.index for s in group] == [2 * number, 2 * number + 1]
        assert {s.group_index for s in group} == {number}
        for sample in group:
            assert (sample.prompt, sample.label) == (f"problem {number}?", "red")
            assert sample.metadata["ground_truth"] == ["red", "crimson"]
            assert ("context" in sample.metadata) == inline and ("context_id" in sample.metadata) != inline


def test_shards_arrive_as_one_file_of_messages(tmp_path):
    """The launcher's copy of two shards, through the host's own reader: lists of dicts, in order, slices too."""
    data = tmp_path / "data"
    data.mkdir()
    rows = [{"prompt": [{"role": "user", "content": f"rank {n}"}], "label": "", "metadata": {
        "task": "rank_sessions", "id": str(n), "dataset": "d", "shown": 3, "gold": [1], "question": "q",
        "question_date": "", "language": "en", "answers": ["a"], "options": [], "history_id": "h",
        "session_tokens": [4, 4, 4]}} for n in range(5)]
    for number, part in enumerate((rows[:3], rows[3:])):
        pq.write_table(pa.Table.from_pylist(part, SCHEMA), data / f"train_{number}.parquet")
    config = Config(train_data=str(data), save_path=str(tmp_path / "run"))
    join_shards(config)
    for slice_, numbers in (("", range(5)), ("@[1:4]", range(1, 4))):
        args = parse(tmp_path, FakeRouter(port=1), "--prompt-data", f"{prompt_file(config)}{slice_}")
        samples = [group[0] for group in DataSource(args).get_samples(len(numbers))]
        assert [(s.prompt, s.label, s.metadata) for s in samples] == [
            (rows[n]["prompt"], "", rows[n]["metadata"]) for n in numbers]
        assert question_of(samples[0]) == f"rank {numbers[0]}"


def test_saved_samples_come_back_with_their_turns(tmp_path):
    """Hosts dump rollouts as plain dicts; ours must survive that, turns included."""
    router = FakeRouter(default=Library())
    path = training_file(tmp_path, 1)
    with running_beside(router):
        args = parse(tmp_path, router, "--prompt-data", str(path))
        group = DataSource(args).get_samples(1)[0]
        state = loop.GenerateState(args)
        sample = module("utils.async_utils").run(loop.generate_and_rm(args, group[0], state.sampling_params))
    back = Sample.from_dict(copy.deepcopy(sample.to_dict()))
    assert back == sample and len(back.train_metadata["turns"]) == 2
