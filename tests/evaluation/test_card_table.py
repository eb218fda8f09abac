"""``mem-agent card``: numbers of result folders in a model's card, and the card as it was where they are of no use."""

import re

import pytest
import yaml

from mem_agent.checkpoints.model_card import card_of_run, read_card, write_card
from mem_agent.evaluation.card_table import main
from mem_agent.tests.helpers.fake_results import plain_row, write_folder


@pytest.fixture
def model(tmp_path):
    write_card(tmp_path, card_of_run(tmp_path, "iter_0000003", "Org/Model"))
    return tmp_path


@pytest.fixture
def results(tmp_path):
    for name, right in (("before", 1), ("after", 3)):
        rows = [plain_row(str(number), float(number < right)) for number in range(4)]
        write_folder(tmp_path / name, rows)
    return [str(tmp_path / name) for name in ("before", "after")]


def test_the_table_has_every_run_and_the_head_the_last_ones_numbers(model, results, capsys):
    assert main([str(model), "--results", *results]) == 0
    card = read_card(model)
    assert re.search(r"\| before \| 50 \| +4 \| +0 \| sub_em \| 25\.0 \(0\.0 to", card)
    assert re.search(r"\| after \| 50 \| +4 \| +0 \| sub_em \| 75\.0 \(", card)
    (entry,) = yaml.safe_load(card.split("---")[1])["model-index"]
    assert [one["metrics"][0]["value"] for one in entry["results"]] == [75.0]
    assert "README.md" in capsys.readouterr().out


def test_what_is_of_no_use_leaves_the_card_as_it_was(model, results, tmp_path, capsys):
    before = read_card(model)
    assert main([str(model), "--results", str(tmp_path / "nothing")]) != 0
    assert "no results" in capsys.readouterr().err and read_card(model) == before
    with pytest.raises(SystemExit):
        main([str(model)])
    assert "nothing to do" in capsys.readouterr().err
