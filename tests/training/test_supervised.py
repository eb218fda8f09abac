"""LOSS=sft: the loop on replies that rows give, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from mem_agent.config import Config
from mem_agent.hooks.traces import read_traces
from mem_agent.system.errors import MemAgentError
from mem_agent.training import rollouts, train
from mem_agent.training.log import read_metrics
from mem_agent.training.rollouts import Rollouts

ANSWERS = {"Where is Anna?": "Paris", "Where is Carl?": "Berlin", "Which house?": "the blue one", "How many?": "seven"}


@pytest.fixture(scope="module")
def tokenizer(model):
    return AutoTokenizer.from_pretrained(model)


SOLVED = [{"prompt": question, "label": answer, "metadata": {"solution": f"It is \\boxed{{{answer}}}"}}
          for question, answer in ANSWERS.items()]


@pytest.fixture
def no_engines(monkeypatch):
    monkeypatch.setattr(rollouts.Fleet, "start", None)


def run_of(model: Path, folder: Path, rows=SOLVED, **settings) -> Config:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    defaults = {"hf_ckpt": str(model), "train_data": str(folder / "train.jsonl"), "save_path": str(folder / "run"),
                "loss": "sft", "agent": "single", "mem_max_final": 32, "lr": 3e-3, "rollout_batch_size": 4,
                "num_rollout": 4, "weight_decay": 0.0}
    return Config(**defaults | settings)


def rollout_of(config: Config, number: int = 0, first: int = 0):
    side = Rollouts(config)
    try:
        side.begin()
        return side.rollout(number, first)
    finally:
        side.close()


# --- what is taught --------------------------------------------------------------------------------------------------


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


def test_a_tasks_own_rule_teaches_the_memory_and_the_replies_are_kept_to_be_read(model, tmp_path, no_engines):
    facts = ["Mary went to the office.", "John took the milk.", "Mary went to the garden."]
    row = {"prompt": "Where is Mary?", "label": "garden", "metadata": {
        "task": "babilong", "babi": "qa1", "facts": facts, "context": f"It rained. {' Boats came. '.join(facts)}"}}
    config = run_of(model, tmp_path, [row], rollout_batch_size=1, num_rollout=1, agent="gated", mem_chunk_tokens=24,
                    agent_args="whole_sentences=1", mem_max_memory=48)
    train.train(config)
    (file,) = (Path(config.save_path) / "trajectories").iterdir()
    document, trace = read_traces(file)
    replies = [turn.reply for turn in trace.turns]
    assert "".join(document.sections) == row["metadata"]["context"] and replies[-1] == "garden"
    assert [reply for reply in replies if reply != "skip"] == [
        "update\nMary: office", "update\nMary: garden", "garden"]
    assert [turn.shown_memory for turn in trace.turns][-1] == "Mary: garden"


def test_a_row_that_cannot_be_taught_is_counted_and_masked(model, tmp_path):
    good, long = reading(["a", "b", "c"]), reading(["a " * 20, "b", "c"])
    config = run_of(model, tmp_path, [good, long], rollout_batch_size=2, rollout_shuffle=False, **READING)
    found = rollout_of(config)
    assert (found.metrics["failed"], found.metrics["failed/long_reply"]) == (1, 1)
    assert [any(mask) for mask in found.train_data["loss_masks"]] == [True] * 3 + [False]
    with pytest.raises(MemAgentError, match="MEM_MAX_MEMORY"):
        rollout_of(run_of(model, tmp_path / "all", [long], rollout_batch_size=2, **READING))


# --- the loop --------------------------------------------------------------------------------------------------------


def test_a_few_steps_teach_the_replies(model, tmp_path, tokenizer, no_engines):
    """From the settings to a Hugging Face folder whose greedy replies are the rows'."""
    config = run_of(model, tmp_path, num_rollout=30)
    train.train(config)
    assert train.train(config, convert=True) == Path(config.save_path) / "hf" / "iter_0000029"
    lines = read_metrics(config.save_path)
    assert len(lines) == 30 and lines[0]["loss"] > 4 and lines[-1]["loss"] < 0.1 and "kl" not in lines[0]
    plain = AutoModelForCausalLM.from_pretrained(Path(config.save_path) / "hf" / "iter_0000029")
    rollout = rollout_of(config.replace(rollout_shuffle=False), first=1)
    assert rollout.next_group == 5 and not {"reward", "mixed_groups", "accuracy"} & rollout.metrics.keys()
    for row, question in zip(rollout.train_data["tokens"], [*list(ANSWERS)[1:], *ANSWERS], strict=False):
        prompt, _, reply = tokenizer.decode(row).partition("assistant\n")
        assert question in prompt and reply == f"It is \\boxed{{{ANSWERS[question]}}}<|im_end|>"
        ids = tokenizer.encode(f"{prompt}assistant\n", add_special_tokens=False, return_tensors="pt")
        said = plain.generate(ids, max_new_tokens=32, do_sample=False)[0, ids.shape[1] :]
        assert tokenizer.decode(said) == reply
