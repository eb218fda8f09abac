"""Predictions of a step: what must hold whatever the rates are, and what bad input is told."""

import json

import pytest

from mem_agent.benchmarks.simulation.__main__ import main, reply_shares
from mem_agent.benchmarks.simulation.predict import MODELS, Task, predict
from mem_agent.benchmarks.simulation.prompts import Reading, read_documents
from mem_agent.benchmarks.simulation.rates import attention_flops, engine_costs, key_value_bytes, read_rates
from mem_agent.benchmarks.simulation.traces import committed, read_trace
from mem_agent.benchmarks.simulation.training import Work, largest_share, tree_work, work_items

MODEL = MODELS["qwen2.5-7b"]
READING = Reading(chunk=5000, memory=200, final=100)


def step(gpus=8, how="trees", chunks=3, simulated=24, **settings):
    task = Task(reading=READING, document=5000 * chunks, documents=4, group=4, **settings)
    return predict(task, MODEL, gpus, how, read_rates(), simulated)


def test_a_tree_by_hand():
    """The module's example, and its pairs: 5000^2 / 2 + 2 * 1100 * (5000 + 550)."""
    assert tree_work(5000, [1100, 1100]) == Work(7200, 12_500_000 + 2 * 1100 * 5550)
    rows, trees = (work_items(read_documents(READING, [2], 2), trees=trees) for trees in (False, True))
    assert len(rows) == 6 and len(trees) == 3
    assert sum(w.tokens for w in rows) - sum(w.tokens for w in trees) == (5136 + 5112 + 112)


def test_a_tree_has_the_pairs_of_its_rows_less_the_shared_ones():
    shared, own = 300, [50, 70]
    rows = sum((shared + length) ** 2 / 2 for length in own)
    assert tree_work(shared, own).pairs == pytest.approx(rows - shared**2 / 2)


def test_the_largest_piece_goes_first():
    share = largest_share([Work(tokens, 0) for tokens in (2, 3, 4, 5)], 2)
    assert share.tokens == 7


def test_engine_costs_are_operations_and_bytes():
    rates = read_rates()
    costs = engine_costs(MODEL, 128, 2, rates)
    assert costs.prompt_token == pytest.approx(2 * MODEL.parameters / (989.4e12 * 0.5 * 2))
    # Qwen2.5-7B: keys and values of 28 layers, 4 heads of 128, 2 bytes each.
    assert key_value_bytes(MODEL, 128) == 2 * 2 * 28 * 4 * 128 == 57_344
    assert costs.context_token == pytest.approx(57_344 / (3.35e12 * 0.6 * 2))
    assert attention_flops(MODEL) == 4 * 28 * 3584


def test_trees_train_fewer_tokens_and_a_step_is_the_sum_of_its_parts():
    rows, trees = step(how="section"), step()
    assert trees.trained_tokens < rows.trained_tokens == rows.row_tokens and trees.update < rows.update
    assert trees.step == trees.rollout + trees.log_probs + trees.update + trees.sync
    # Each engine computes the instructions for itself.
    assert step(how="published").computed > rows.computed == pytest.approx(rows.least, rel=0.01)


def test_a_straight_line_is_near_the_whole_reading():
    whole, line = step(chunks=24), step(chunks=24, simulated=8)
    assert line.extrapolated and not whole.extrapolated
    for name in ("rollout", "computed", "trained_tokens", "update"):
        assert getattr(line, name) == pytest.approx(getattr(whole, name), rel=0.05), name


def test_more_gpus_take_no_longer_and_split_groups_use_them():
    seconds = [step(gpus, "split").step for gpus in (8, 16, 32)]
    assert seconds == sorted(seconds, reverse=True)
    assert step(32, "split").engine_busy > step(32).engine_busy


def test_the_command_prints_a_table_and_writes_json_twice_the_same(tmp_path, capsys):
    words = ["--gpus", "8", "--document-tokens", "8192", "--documents", "4", "--group", "4", "--memory", "100",
             "--variants", "published trees", "--trace", str(committed()[0]), "--spread", "0.3"]
    texts = []
    for name in ("a", "b"):
        assert main([*words, "--output", str(tmp_path / name)]) == 0
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    assert [p["variant"] for p in json.loads(texts[0])["predictions"]] == ["published", "trees"]
    assert "| 8,192 | 8 | trees |" in capsys.readouterr().out


def test_replies_of_a_trace_are_those_of_memory_turns():
    trace = read_trace(committed()[0])
    shares = reply_shares(committed()[0])
    assert len(shares) == len(trace.turns) - len({turn.trajectory for turn in trace.turns})
    assert 0 < min(shares) and max(shares) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("peak: {value: 1, source: x}", "unknown rate 'peak'"),
        ("peak_flops: 5", "needs a value and a source"),
        ("peak_flops: {value: -1, source: x}", "not a positive number"),
        ("peak_flops: {value: 1, source: ''}", "needs a value and a source"),
        ("- a", "a mapping"),
        ("a: [", "not YAML"),
    ],
)
def test_bad_rates_are_refused_in_one_line(tmp_path, text, message, capsys):
    file = tmp_path / "rates.yaml"
    file.write_text(text)
    assert main(["--rates", str(file)]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [["--gpus", "0"], ["--gpus", "8 x"], ["--group", "0"], ["--variants", "best"], ["--memory-share", "nan"],
     ["--spread", "2"], ["--model-parameters", "inf"], ["--model-parameters", "-5"], ["--output", "missing/file"]],
)
def test_numbers_that_make_no_machine_are_refused(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert words[1].split()[-1] in capsys.readouterr().err


def test_gpus_that_cannot_hold_the_model_are_refused_in_one_line(capsys):
    assert main(["--gpus", "1", "--document-tokens", "8192", "--model", "qwen2.5-14b"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
