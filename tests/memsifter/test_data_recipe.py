"""Recipes of data sets: the published shapes, and one line for whatever else."""

from pathlib import Path

import pytest

from mem_agent.memsifter.rounds.data_recipe import DataRecipe, RecipeError, read_recipe

ROOT = Path(__file__).parents[2]


def recipe(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    return read_recipe(path)


def test_both_kinds_and_the_older_form_are_one_recipe(tmp_path):
    text = """
    deepsearch_datasets: {train: {HotpotQA: 750}, test: {HotpotQA: 60}}
    memory_datasets: {train: {locomo: 500, zh4o: 0}}
    train: {own: 3, locomo: 500}
    test:
    """
    assert recipe(tmp_path, text) == DataRecipe({"locomo": 500, "HotpotQA": 750, "own": 3}, {"HotpotQA": 60})


def test_the_published_mix_adds_up():
    """Reference A10: 6,650 to train, 480 to test."""
    mix = read_recipe(ROOT / "recipes" / "memsifter" / "mix-v1.yaml")
    assert sum(mix.train.values()) == 6650 and sum(mix.test.values()) == 480
    assert len(mix.train) == 11 and len(mix.test) == 8
    small = read_recipe(ROOT / "recipes" / "memsifter" / "locomo.yaml")
    assert set(small.train) == {"locomo"} == set(small.test)


@pytest.mark.parametrize("text,place", [
    ("memory_datasets: {dev: {a: 1}}", "memory_datasets.dev"), ("memory_datasets: {train: {a: many}}", "train.a"),
    ("memory_datasets: {train: {a: 1}}\ntrain: {a: 2}", "train.a"), ("memory_datasets: {test: {a: 1}}", "train"),
])
def test_what_is_wrong_is_one_line(tmp_path, text, place):
    with pytest.raises(RecipeError, match=place) as refused:
        recipe(tmp_path, text)
    assert "\n" not in str(refused.value)
