"""TRL's trainer as a process that does one thing when told: run by the Python of TRL's environment, not by the pack's.

Imports nothing of the package. Standard input has JSON lines; the first says what to train::

    {"model": FOLDER, "rows": [[tokens, response length, advantage], ...], "micro_batch": 64, "scratch": FOLDER}

and is answered with TRL's version and the tokens it computes, padding among them. Then ``"step"`` is one GRPO step on
all rows, TRL's own ``_compute_loss``, backward, clipping and AdamW, and ``"score"`` the log-probs without gradient;
each is answered with ``{"cpu": seconds, "wall": seconds}``, a score also with the sum of all log-probs.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
from trl import __version__ as trl_version


class Worker:
    def __init__(self, task: dict) -> None:
        rows, size = task["rows"], task["micro_batch"]
        assert len(rows) % size == 0, (len(rows), size)
        torch.set_num_threads(1)
        steps = len(rows) // size
        arguments = GRPOConfig(
            output_dir=task["scratch"], use_cpu=True, bf16=False, per_device_train_batch_size=size, num_generations=8,
            gradient_accumulation_steps=steps, steps_per_generation=steps, beta=0.0, gradient_checkpointing=False,
            report_to=[], max_completion_length=max(length for _, length, _ in rows), learning_rate=0.0,
        )
        self.trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(task["model"], dtype=torch.float32),
            reward_funcs=lambda **_: [0.0], args=arguments, train_dataset=Dataset.from_list([{"prompt": "a"}] * 64),
            processing_class=PreTrainedTokenizerFast.from_pretrained(task["model"]),
        )
        self.model = self.trainer.model
        self.trainer.current_gradient_accumulation_steps = steps
        self.trainer.create_optimizer()
        trained = sum(length for _, length, _ in rows)
        self.batches = [batch(rows[i : i + size], trained) for i in range(0, len(rows), size)]

    def tokens(self) -> int:
        return sum(b["prompt_ids"].numel() + b["completion_ids"].numel() for b in self.batches)

    def step(self) -> None:
        self.model.train()
        for one in self.batches:
            self.trainer._compute_loss(self.model, one).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.trainer.optimizer.step()
        self.trainer.optimizer.zero_grad()

    @torch.no_grad()
    def score(self) -> float:
        self.model.eval()
        total = 0.0
        for one in self.batches:
            ids = torch.cat([one["prompt_ids"], one["completion_ids"]], 1)
            mask = torch.cat([one["prompt_mask"], one["completion_mask"]], 1)
            length = one["completion_ids"].shape[1]
            found = self.trainer._get_per_token_logps_and_entropies(self.model, ids, mask, length)
            total += float((found[0] * one["completion_mask"]).sum())
        return total


def batch(rows: list, trained: int) -> dict:
    """Prompts padded on the left, replies on the right, as TRL has them."""
    prompt = max(len(tokens) - length for tokens, length, _ in rows)
    reply = max(length for _, length, _ in rows)

    def zeros(width: int) -> torch.Tensor:
        return torch.zeros(len(rows), width, dtype=torch.long)

    made = {"prompt_ids": zeros(prompt), "prompt_mask": zeros(prompt), "completion_ids": zeros(reply),
            "completion_mask": zeros(reply), "advantages": torch.tensor([advantage for *_, advantage in rows]),
            "num_items_in_batch": torch.tensor(trained)}
    for i, (tokens, length, _) in enumerate(rows):
        own = len(tokens) - length
        made["prompt_ids"][i, prompt - own :] = torch.tensor(tokens[:own])
        made["prompt_mask"][i, prompt - own :] = 1
        made["completion_ids"][i, :length] = torch.tensor(tokens[own:])
        made["completion_mask"][i, :length] = 1
    return made


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def answer(content: dict) -> None:
        print(json.dumps(content), file=answers, flush=True)

    worker = Worker(json.loads(sys.stdin.readline()))
    answer({"trl": trl_version, "tokens": worker.tokens()})
    for line in sys.stdin:
        call = {"step": worker.step, "score": worker.score}[json.loads(line)]
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        answer({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "result": result})


if __name__ == "__main__":
    main()
