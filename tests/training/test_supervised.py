"""LOSS=sft: the loop on replies that rows give, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from mem_agent.config import Config
from mem_agent.system.errors import MemAgentError
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.training import rollouts, train
from mem_agent.training.log import read_metrics
from mem_agent.training.rollouts import Rollouts
from mem_agent.training.rows import TrainRow
from mem_agent.training.trainer import Trainer

ANSWERS = {"Where is Anna?": "Paris", "Where is Carl?": "Berlin", "Which house?": "the blue one", "How many?": "seven"}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"), tied=True)


@pytest.fixture(scope="module")
def tokenizer(model):
    return AutoTokenizer.from_pretrained(model)


def solved(question: str, answer: str) -> dict:
    return {"prompt": question, "label": answer, "metadata": {"solution": f"It is \\boxed{{{answer}}}"}}


SOLVED = [solved(question, answer) for question, answer in ANSWERS.items()]


def run_of(model: Path, folder: Path, rows=SOLVED, **settings) -> Config:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    defaults = {
        "hf_ckpt": str(model), "train_data": str(folder / "train.jsonl"), "save_path": str(folder / "run"),
        "loss": "sft", "agent": "single", "mem_max_final": 32, "lr": 3e-3, "rollout_batch_size": 4, "num_rollout": 4,
        "weight_decay": 0.0,
    }
    return Config(**(defaults | settings))


def rollout_of(config: Config, number: int = 0, first: int = 0):
    side = Rollouts(config)
    try:
        side.begin()
        return side.rollout(number, first)
    finally:
        side.close()


# --- what is taught --------------------------------------------------------------------------------------------------


def test_a_solution_is_taught_after_the_prompt_of_rollouts(model, tmp_path, tokenizer):
    config = run_of(model, tmp_path, rollout_shuffle=False)
    found = rollout_of(config, first=1)
    assert found.next_group == 5
    data = found.train_data
    texts = [tokenizer.decode(tokens) for tokens in data["tokens"]]
    order = [*list(ANSWERS)[1:], next(iter(ANSWERS))]
    for question, text, length, mask in zip(order, texts, data["response_lengths"], data["loss_masks"], strict=True):
        prompt, _, reply = text.partition("<|im_start|>assistant\n")
        assert question in prompt and reply == f"It is \\boxed{{{ANSWERS[question]}}}<|im_end|>"
        assert mask == [1] * length and len(tokenizer.encode(reply)) == length
    assert not {"reward", "mixed_groups", "accuracy"} & found.metrics.keys()
    assert (found.metrics["trajectories"], found.metrics["failed"], found.metrics["rows"]) == (4, 0, 4)


def reading(replies) -> dict:
    """A document of two sections, of which the agent makes three turns."""
    return {"prompt": "Which key?", "metadata": {"context": "Anna has the red key.", "replies": replies}}


READING = {"agent": "memagent", "mem_chunk_tokens": 8, "mem_max_memory": 16}


def test_a_reading_agent_is_taught_turn_by_turn(model, tmp_path, tokenizer):
    """The memory of a turn stands in the next one's prompt as the row gave it."""
    replies = ["Anna has a key.", "The key is red.", "\\boxed{red}"]
    config = run_of(model, tmp_path, [reading(replies)], rollout_batch_size=1, **READING)
    texts = [tokenizer.decode(tokens) for tokens in rollout_of(config).train_data["tokens"]]
    assert [text.rpartition("assistant\n")[2] for text in texts] == [f"{reply}<|im_end|>" for reply in replies]
    assert [replies[0] in text for text in texts] == [True, True, False]
    assert [replies[1] in text for text in texts] == [False, True, True]


KEPT = [  # one document of three sections, and what each turn of memagent is taught without replies of the row
    ("memagent", ["Nothing yet.", "Anna has the red key.", "Anna has the red key.", "\\boxed{red}"]),
    ("gated", ["skip", "update\nAnna has the red key.", "skip", "\\boxed{red}"]),
]


@pytest.mark.parametrize(("agent", "expected"), KEPT)
def test_without_replies_a_memory_keeps_the_sentences_with_the_answer(agent, expected, model, tmp_path, tokenizer):
    sections = ["Snow fell. Boats came.", "Anna has the red key. Rain fell.", "Bob has a drum. Winds blew."]
    size = max(len(tokenizer.encode(text, add_special_tokens=False)) for text in sections)
    padded = [text + " a" * (size - len(tokenizer.encode(text, add_special_tokens=False))) for text in sections]
    row = {"prompt": "Which key?", "label": "red", "metadata": {"context": "".join(padded), "ground_truth": ["red"]}}
    config = run_of(model, tmp_path, [row], rollout_batch_size=1, agent=agent, mem_chunk_tokens=size,
                    mem_max_memory=48)
    texts = [tokenizer.decode(tokens) for tokens in rollout_of(config).train_data["tokens"]]
    assert [text.rpartition("assistant\n")[2] for text in texts] == [f"{reply}<|im_end|>" for reply in expected]


def test_a_row_that_cannot_be_taught_is_counted_and_masked(model, tmp_path):
    good, long = reading(["a", "b", "c"]), reading(["a " * 20, "b", "c"])
    config = run_of(model, tmp_path, [good, long], rollout_batch_size=2, rollout_shuffle=False, **READING)
    found = rollout_of(config)
    assert (found.metrics["failed"], found.metrics["failed/long_reply"]) == (1, 1)
    assert [any(mask) for mask in found.train_data["loss_masks"]] == [True] * 3 + [False]
    with pytest.raises(MemAgentError, match="MEM_MAX_MEMORY"):
        rollout_of(run_of(model, tmp_path / "all", [long], rollout_batch_size=2, **READING))


# --- the loop --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_engines(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("engines are started")

    monkeypatch.setattr(rollouts.Fleet, "start", refuse)


def exact(config: Config) -> list[dict[str, float]]:
    return [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in read_metrics(config.save_path)]


def converted(config: Config) -> dict[str, torch.Tensor]:
    [folder] = sorted((Path(config.save_path) / "hf").iterdir())[-1:]
    return dict(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).named_parameters())


def test_a_step_whose_rows_all_failed_changes_nothing(model):
    trainer = Trainer(Config(hf_ckpt=str(model), loss="sft", weight_decay=0.1))
    before = trainer.export_hf()
    trainer.sft_step([TrainRow([0, 0], 1, [0], [0.0], 0.0, i, 0.0) for i in range(3)])
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.export_hf().items())


def test_a_few_steps_teach_the_replies(model, tmp_path, tokenizer, no_engines):
    """From the settings to a Hugging Face folder whose greedy replies are the rows'."""
    config = run_of(model, tmp_path, num_rollout=30)
    assert train.train(config, convert=True)
    lines = read_metrics(config.save_path)
    assert len(lines) == 30 and lines[0]["loss"] > 4 and lines[-1]["loss"] < 0.1 and "kl" not in lines[0]
    plain = AutoModelForCausalLM.from_pretrained(Path(config.save_path) / "hf" / "iter_0000029")
    for row in rollout_of(config).train_data["tokens"]:
        prompt, _, reply = tokenizer.decode(row).partition("assistant\n")
        ids = tokenizer.encode(f"{prompt}assistant\n", add_special_tokens=False, return_tensors="pt")
        said = plain.generate(ids, max_new_tokens=32, do_sample=False)[0, ids.shape[1] :]
        assert tokenizer.decode(said) == reply


def test_a_resumed_run_is_the_unbroken_one_bit_for_bit(model, tmp_path, no_engines):
    settings = {"save_interval": 2, "lr_warmup_steps": 5, "global_batch_size": 2}
    unbroken = run_of(model, tmp_path / "unbroken", num_rollout=4, **settings)
    train.train(unbroken, convert=True)
    broken = unbroken.replace(save_path=str(tmp_path / "broken"), num_rollout=2)
    train.train(broken)
    train.train(broken.replace(num_rollout=4), convert=True)
    assert exact(broken) == exact(unbroken)
    rates = [line["lr"] for line in exact(broken)]
    assert rates == pytest.approx([3e-3 * x for x in (0.1, 0.5, 0.9, 1.0)])
    weights = converted(unbroken)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in converted(broken).items())
