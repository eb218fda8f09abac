"""TRL's trainer as a process that does one thing when told: run by the Python of TRL's environment, not by the pack's.

Imports nothing of the package. Standard input has JSON lines; the first says what to train, and is answered with TRL's
version::

    {"model": FOLDER, "rows": [[tokens, response length, advantage], ...], "micro_batch": 64, "scratch": FOLDER}

Then ``"step"`` is one GRPO step on all rows, TRL's own ``_compute_loss``, backward, clipping and AdamW, answered with
its CPU seconds, and ``"score"`` the sum of all log-probs without gradient.
"""

import json
import os
import sys
import time

import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
from trl import __version__ as trl_version


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    torch.set_num_threads(1)
    trainer, batches = prepare(**json.loads(sys.stdin.readline()))
    print(json.dumps(trl_version), file=answers, flush=True)
    for line in sys.stdin:
        answer = {"step": step, "score": score}[json.loads(line)](trainer, batches)
        print(json.dumps(answer), file=answers, flush=True)


def prepare(model: str, rows: list, micro_batch: int, scratch: str) -> tuple[GRPOTrainer, list[dict]]:
    size, steps = micro_batch, len(rows) // micro_batch
    arguments = GRPOConfig(
        output_dir=scratch, use_cpu=True, bf16=False, per_device_train_batch_size=size, num_generations=8,
        gradient_accumulation_steps=steps, steps_per_generation=steps, beta=0.0, gradient_checkpointing=False,
        report_to=[], max_completion_length=max(length for _, length, _ in rows), learning_rate=0.0,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), reward_funcs=lambda **_: [0.0],
        args=arguments, train_dataset=Dataset.from_list([{"prompt": "a"}] * 64),
        processing_class=PreTrainedTokenizerFast.from_pretrained(model),
    )
    trainer.current_gradient_accumulation_steps = steps
    trainer.create_optimizer()
    trained = torch.tensor(sum(length for _, length, _ in rows))
    return trainer, [batch(rows[i : i + size]) | {"num_items_in_batch": trained} for i in range(0, len(rows), size)]


def batch(rows: list) -> dict:
    """Prompts padded on the left, replies on the right, as TRL has them."""
    parts = {"prompt": ([torch.tensor(tokens[:-length]) for tokens, length, _ in rows], "left"),
             "completion": ([torch.tensor(tokens[-length:]) for tokens, length, _ in rows], "right")}
    made = {"advantages": torch.tensor([advantage for *_, advantage in rows])}
    for name, (ids, side) in parts.items():
        for what, values in (("ids", ids), ("mask", [torch.ones_like(each) for each in ids])):
            made[f"{name}_{what}"] = pad_sequence(values, batch_first=True, padding_side=side)
    return made


def step(trainer: GRPOTrainer, batches: list[dict]) -> float:
    began = time.process_time()
    trainer.model.train()
    for one in batches:
        trainer._compute_loss(trainer.model, one).backward()
    torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()
    return time.process_time() - began


@torch.no_grad()
def score(trainer: GRPOTrainer, batches: list[dict]) -> float:
    trainer.model.eval()
    total = 0.0
    for one in batches:
        ids = torch.cat([one["prompt_ids"], one["completion_ids"]], 1)
        mask = torch.cat([one["prompt_mask"], one["completion_mask"]], 1)
        found = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, one["completion_ids"].shape[1])
        total += float((found[0] * one["completion_mask"]).sum())
    return total


if __name__ == "__main__":
    main()
