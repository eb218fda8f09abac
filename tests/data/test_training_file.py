"""The data order is a function of seed and number; a bad file is named by line before anything starts."""

import json

import pytest

from mem_agent.data.training_file import DataError, DataSource, TrainingRow


def write(path, rows):
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows) + "\n")
    return path


def rows(count):
    return [{"prompt": f"q{i}", "label": "a", "metadata": {"context": f"c{i}"}} for i in range(count)]


def test_without_shuffling_rows_come_in_the_files_order_again_and_again(tmp_path):
    path = write(tmp_path / "t.jsonl", rows(3))
    assert [DataSource(path, 3, shuffle=False).row(k).prompt for k in range(7)] == [
        DataSource(path, 9, shuffle=False).row(k % 3).prompt for k in range(7)]
    assert [DataSource(path, 3, shuffle=False).row(k).prompt for k in range(3)] == [row["prompt"] for row in rows(3)]


def test_each_epoch_is_another_permutation_and_repeatable(tmp_path):
    path = write(tmp_path / "t.jsonl", rows(7))
    orders = [[DataSource(path, 3).row(k).prompt for k in range(14)] for _ in range(2)]
    assert orders[0] == orders[1]
    assert sorted(orders[0][:7]) == sorted(orders[0][7:]) == [f"q{i}" for i in range(7)]
    assert orders[0][:7] != orders[0][7:]
    assert [DataSource(path, 4).row(k).prompt for k in range(7)] != orders[0][:7]


def test_rows_are_read_afresh(tmp_path):
    source = DataSource(write(tmp_path / "t.jsonl", [rows(1)[0], {"prompt": [], "metadata": {}}]), 0)
    both = [source.row(k) for k in range(2)]
    assert sorted(both, key=str) == [TrainingRow("q0", "a", {"context": "c0"}), TrainingRow([], None, {})]
    both[0].metadata["x"] = 1
    assert "x" not in source.row(0).metadata


def test_blank_lines_are_nothing(tmp_path):
    assert len(DataSource(write(tmp_path / "t.jsonl", ["", rows(1)[0], "  ", rows(1)[0]]), 0)) == 2


@pytest.mark.parametrize(
    "content,message",
    [
        ([rows(1)[0], "{broken"], "line 2: not JSON"),
        ([rows(1)[0], '{"prompt": "x"}'], "line 2: expected an object with `prompt` and `metadata`"),
        (["[1]"], "line 1: expected an object"),
        ([""], "no rows"),
    ],
)
def test_bad_files_name_the_line(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        DataSource(write(tmp_path / "t.jsonl", content), 0)


def test_missing_file_names_the_remedy(tmp_path):
    with pytest.raises(DataError, match="no such file; make it with prepare_data"):
        DataSource(tmp_path / "none.jsonl", 0)
