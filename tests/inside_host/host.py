"""The host this process runs in, under names common to slime and vime, and a library of questions to ask in it.

Question ``i`` is a row of a training file that ``prepare_data`` wrote; what a server answers to it is decided by
``Library``, from the prompt's text alone. Nothing of the host is replaced but Ray's object store.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from mem_agent import prepare_data
from mem_agent.data import questions as question_shapes
from mem_agent.tests.helpers.fake_router import FakeRouter
from mem_agent.tests.helpers.tiny_tokenizer import encode, make_tokenizer

NAME = os.environ["INSIDE_HOST"]
DIALECT = {"slime": "sglang", "vime": "vllm"}[NAME]
SETTINGS = {"MEM_CHUNK_TOKENS": 4, "MEM_MAX_MEMORY": 8, "MEM_MAX_FINAL": 16}


def module(path: str) -> Any:
    return importlib.import_module(f"{NAME}.{path}")


arguments = module("utils.arguments")
http_utils = module("utils.http_utils")
ray_rollout = module("ray.rollout")
Sample = module("utils.types").Sample
DataSource = module("rollout.data_source").RolloutDataSourceWithBuffer
ray_rollout.ray.put = lambda value, **options: value  # so a box can be looked into without a Ray cluster
RolloutManager = ray_rollout.RolloutManager.__ray_metadata__.modified_class


def parse(folder: Path, router: FakeRouter, *flags: str) -> argparse.Namespace:
    """The host's own defaults under ``flags``; Megatron's and the engine's are given by name, they are not here."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser = getattr(arguments, f"get_{NAME}_extra_args_provider")()(parser)
    getattr(module(f"backends.{DIALECT}_utils.arguments"), f"add_{DIALECT}_router_arguments")(parser)
    make_tokenizer().save_pretrained(folder / "tokenizer")
    args = parser.parse_args([
        "--custom-generate-function-path", "mem_agent.rollout.generate",
        "--custom-rm-path", "mem_agent.rollout.reward_func",
        "--custom-convert-samples-to-train-data-path", "mem_agent.custom_convert.custom_convert",
        "--hf-checkpoint", str(folder / "tokenizer"), "--input-key", "prompt", "--label-key", "label",
        f"--{DIALECT}-router-ip", "127.0.0.1", f"--{DIALECT}-router-port", str(router.port),
        "--rollout-num-gpus", "1", "--n-samples-per-prompt", "2", "--rollout-batch-size", "2",
        "--use-dynamic-batch-size", "--max-tokens-per-gpu", "512", *flags,
    ])
    args.debug_rollout_only = args.debug_train_only = args.grpo_std_normalization = False
    args.load_debug_rollout_data = None
    args.eval_datasets = arguments._resolve_eval_datasets(args)
    args.over_sampling_batch_size = args.over_sampling_batch_size or args.rollout_batch_size
    args.global_batch_size = args.global_batch_size or args.rollout_batch_size * args.n_samples_per_prompt
    args.data_parallel_size = 2
    setattr(args, f"{DIALECT}_server_concurrency", 64)
    setattr(args, f"{DIALECT}_dp_size", 1)
    args.mem_agent = SETTINGS
    module(f"rollout.{DIALECT}_rollout").GenerateState.clear_instances()
    http_utils.init_http_client(args)
    return args


class RecordingSource(DataSource):
    """The host's data source, remembering every group that it made, without those put back."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__(args)
        self.drawn: list[list[Any]] = []

    def get_samples(self, num_samples: int) -> list[list[Any]]:
        groups = super().get_samples(num_samples)
        known = {group[0].group_index for group in self.drawn}
        self.drawn += [group for group in groups if group[0].group_index not in known]
        return groups


def manager(args: argparse.Namespace, dp: int = 2, cp: int = 1, vpp: int = 1, vpp_group: int = 1) -> Any:
    """The host's ``RolloutManager`` without engines and without Ray."""
    self = RolloutManager.__new__(RolloutManager)
    self.args, self.servers, self._health_monitors, self.rollout_id = args, {}, [], -1
    self.custom_reward_post_process_func = None
    self.data_source = RecordingSource(args) if args.prompt_data else None
    load = module("utils.misc").load_function
    self.generate_rollout = load(args.rollout_function_path)
    self.eval_generate_rollout = load(args.eval_function_path or args.rollout_function_path)
    self.custom_convert_samples_to_train_data_func = load(args.custom_convert_samples_to_train_data_path)
    self.set_train_parallel_config({"dp_size": dp, "cp_size": cp, "vpp_size": vpp,
                                    "microbatch_group_size_per_vp_stage": vpp_group})
    return self


# --- questions and answers ----------------------------------------------------------------------------------------


def training_file(folder: Path, questions: int, inline: bool = True) -> Path:
    """Question i has 1 + i % 4 chunks."""
    rows = [
        {"prompt": [{"role": "user", "content": f"problem {i}?"}], "context": "QWZJ" * (1 + i % 4),
         "reward_model": {"ground_truth": ["red", "crimson"]}, "extra_info": {"question": f"problem {i}?"}}
        for i in range(questions)
    ]
    source, output = folder / "source.jsonl", folder / "train.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with mock.patch.object(question_shapes, "INLINE_CHARS", 100_000 if inline else 0):
        assert prepare_data.main(["--input", str(source), "--output", str(output)]) == 0
    return output


@dataclass
class Library:
    """Answers by question number: every second final answer of a question is right, unless ``odd`` says otherwise.

    ``odd[i]`` is asked first, with the turn's name and how many such turns of question i came before; None declines.
    """

    odd: dict[int, Callable[[str, int], Any]] = field(default_factory=dict)
    turns: Counter[tuple[int, str]] = field(default_factory=Counter)

    def __call__(self, body: dict[str, Any]) -> Any:
        text = make_tokenizer().decode(body.get("token_ids") or body["input_ids"])
        number = int(re.search(r"problem (\d+)\?", text)[1])
        turn = "final" if "boxed" in text else "first" if "Nothing yet." in text else "later"
        before = self.turns[number, turn]
        self.turns[number, turn] += 1
        usual = ("\\boxed{red}", "\\boxed{blue}")[before % 2] if turn == "final" else "note"
        reply = self.odd.get(number, lambda *_: None)(turn, before) or usual
        return encode(reply) if reply == "note" or str(reply).startswith("\\") else reply


def questions_of(groups: list[list[Any]]) -> list[int]:
    return [int(re.search(r"problem (\d+)\?", group[0].prompt)[1]) for group in groups]
