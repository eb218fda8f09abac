"""The launcher's command line through the host's real parsers and checks: Megatron-LM's, its own, its engine's.

Megatron-LM at ``MEGATRON_ROOT``, with the host's patch, comes first on the path of this process.
"""

import argparse
import os
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from mem_agent.config import Config
from mem_agent.launch import launch
from mem_agent.launch import plan as planning
from mem_agent.tests.helpers import fake_host
from mem_agent.tests.helpers.fake_host import GPU_GIB, OUTSIDE, RECIPES, make_model
from mem_agent.tests.inside_host.host import DIALECT, NAME, arguments, module

PACK = Path(__file__).parents[2]
MORE = [
    {"FULLY_ASYNC": "1", "NUM_GPUS": "8", "EVAL_INTERVAL": "0", "EVAL_DATA": ""},
    {"DYNAMIC_FILTER": "nonzero_std", "OVER_SAMPLING_BATCH_SIZE": "256", "TRACKER": "tensorboard",
     "HOST_ARGS": "--use-tis"},
    {"TP": "2", "HOST_ARGS": "--pipeline-model-parallel-size 2 --context-parallel-size 2", "LOSS_AGG": "token",
     "KL_COEF": "0", "NUM_GPUS": "8"},
]

if NAME == "vime":
    # vime pins an older vLLM, which kept these flags there.
    from vllm.entrypoints.launchers import cli_args

    sys.modules["vllm.entrypoints.openai.cli_args"] = cli_args


@pytest.fixture
def plan(tmp_path, monkeypatch):
    def make(recipe, **changes):
        train = tmp_path / "train.jsonl"
        train.write_text('{"prompt": "q", "label": "a", "metadata": {"context": "c", "ground_truth": ["a"]}}\n' * 200)
        (tmp_path / "reference").mkdir()
        (tmp_path / "reference" / "latest_checkpointed_iteration.txt").write_text("release")
        model = make_model(tmp_path / "model", RECIPES[recipe])
        env = {"NUM_GPUS": "8", **fake_host.recipe(recipe), **OUTSIDE.get(recipe, {})}
        env |= {"HOST": NAME, "HOST_ROOT": os.getcwd(), "MEGATRON_ROOT": os.environ["MEGATRON_ROOT"],
                "HF_CKPT": str(model), "TORCH_DIST": str(tmp_path / "reference"), "TRAIN_DATA": str(train),
                "SAVE_PATH": str(tmp_path / "run"), "EVAL_INTERVAL": "5", "EVAL_DATA": str(train)}
        monkeypatch.setattr(planning, "nvidia_smi", lambda *_: f"{GPU_GIB.get(recipe, 80) * 1024}\n")
        made = planning.make_plan(Config.from_env(env | changes))
        launch.write_records(made)
        monkeypatch.setattr(sys, "argv", made.command[1:])
        monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", made.variables["CUDA_DEVICE_MAX_CONNECTIONS"])
        # Asked with tensor parallelism, to choose what to overlap: an H100's answer.
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: SimpleNamespace(major=9, minor=0))
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
        return made

    return make


def known_flags():
    """Every flag that Megatron-LM, the host and its engine know: the hosts ignore all others without a word."""
    from megatron.training.arguments import add_megatron_arguments

    first, second = argparse.ArgumentParser(allow_abbrev=False), argparse.ArgumentParser(allow_abbrev=False)
    add_megatron_arguments(first)
    first = getattr(arguments, f"get_{NAME}_extra_args_provider")()(first)
    if NAME == "vime":
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        second = FlexibleArgumentParser()
    getattr(module(f"backends.{DIALECT}_utils.arguments"), f"add_{DIALECT}_arguments")(second)
    return set(first._option_string_actions) | set(second._option_string_actions)


def unknown(words):
    return {word for word in words if word.startswith("--")} - known_flags()


def accepted(made):
    own = [group for name, group in made.arguments.items() if name != "host_args"]  # recipes name both hosts' engines
    assert not unknown(chain(*own))
    args = arguments.parse_args()
    config, layout = made.config, made.layout
    assert args.global_batch_size == config.step_trajectories
    assert args.data_parallel_size == layout.data_parallel and args.max_tokens_per_gpu == layout.tokens_per_gpu
    assert args.mem_agent == config.to_mapping() and args.load == args.ref_load == config.torch_dist
    assert [d.path for d in args.eval_datasets or ()] == list(config.eval_files)
    length = {"slime": "sglang_context_length", "vime": "vllm_max_model_len"}[NAME]
    assert getattr(args, length) == config.engine_max_len
    assert args.colocate is layout.colocate and args.rollout_num_gpus == layout.rollout_gpus
    return args


@pytest.mark.parametrize("recipe", RECIPES)
def test_each_recipe_is_accepted(recipe, plan):
    args = accepted(plan(recipe))
    assert args.padded_vocab_size >= args.vocab_size and args.custom_convert_samples_to_train_data_path


@pytest.mark.parametrize("changes", MORE)
def test_each_option_is_accepted(changes, plan):
    args = accepted(plan("qwen2.5-0.5b", **changes))
    assert args.use_tis == ("TRACKER" in changes or "FULLY_ASYNC" in changes)
    assert args.pipeline_model_parallel_size == args.context_parallel_size == (2 if "TP" in changes else 1)


def test_supervised_training_is_accepted(plan):
    made = plan("qwen2.5-0.5b", LOSS="sft", EVAL_INTERVAL="0", EVAL_DATA="", GLOBAL_BATCH_SIZE="8", KL_COEF="0.1")
    assert unknown(chain(*made.arguments.values())) == {"--debug-train-only"}  # the host has read that one before
    args = arguments.parse_args()
    assert (args.loss_type, args.debug_train_only, args.calculate_per_token_loss) == ("sft_loss", True, True)
    assert not args.compute_advantages_and_returns and not args.use_kl_loss and not args.colocate
    assert (args.n_samples_per_prompt, args.global_batch_size) == (1, 8) and not args.offload_train
    assert args.data_parallel_size == made.layout.data_parallel == 8


def test_the_block_for_ones_own_script_is_accepted(plan, tmp_path, monkeypatch):
    """``docs/hosts.md``, copied; the rest of the command is the launcher's."""
    made = plan("qwen3-4b", EVAL_INTERVAL="0", EVAL_DATA="")
    (block,) = re.findall(r"```bash\n([^`]*MEM_ARGS=.*?)```", (PACK / "docs" / "hosts.md").read_text(), re.DOTALL)
    own = [line for line in block.splitlines() if not line.startswith(("cd ", "pip "))]
    script = "\n".join([*own, r'printf "%s\0" "${MEM_ARGS[@]}"'])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    done = subprocess.run(["bash", "-euc", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    given = done.stdout.split("\0")[:-1]
    rest, kept = [], True
    for word in chain(*made.arguments.values()):
        kept = word not in given if word.startswith("--") else kept
        rest += [word] if kept else []
    monkeypatch.setattr(sys, "argv", ["train.py", *rest, *given])
    assert not unknown(given)
    args = arguments.parse_args()
    assert (args.mem_agent["MEM_CHUNK_TOKENS"], args.mem_agent["MEM_MAX_MEMORY"]) == (2048, 1024)
    assert args.custom_generate_function_path == "mem_agent.rollout.generate"
    assert (args.prompt_data, args.metadata_key) == ("data/train.jsonl", "metadata")


def test_an_argument_of_the_user_wins(plan):
    assert accepted(plan("qwen2.5-0.5b", HOST_ARGS="--lr 5e-6")).lr == 5e-6
