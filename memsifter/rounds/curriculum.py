"""The rounds of MemSifter's training, as one command that may be killed at any moment and run again.

    RECIPE=recipes/memsifter-qwen3-4b.env KEEP_CHECKPOINTS=10 mem-agent curriculum --work runs/memsifter \
        --model Qwen/Qwen3-4B-Thinking-2507 --data-recipe recipes/memsifter/mix-v1.yaml --rounds 3

A round, in ``WORK/round_1``::

    prepare    rows by the last round's rankings, at random in the first    WORK/rl_train_data/round_1
    train      run-train.sh on them, from the last round's model            WORK/round_1/train
    convert    every checkpoint                                             WORK/round_1/train/hf
    validate   each by the test questions, where there are more than are averaged   WORK/round_1/validation
    average    the best ``--average``                                       WORK/round_1/model
    rank       the training questions, for the next round                   OUTPUT_DIR/WORK'S NAME-1f3c9a20/round_1

The first ``--warm-up`` rounds are trained by the ranking alone (REWARD=task), the others by ``--reward``: the answers
that a ranking leads to. Optimizer state ends with a round (MemSifter, arXiv 2603.03379). How a round is trained,
validated and ranked are the settings of ``mem-agent config``, from the environment; KEEP_CHECKPOINTS is how many there
are to choose from. Without test questions the newest are averaged.

Invariants: a step that has ended is not run again while its files are there (``round_steps``); a folder continues with
the settings that it was begun with, but for ``--rounds``, or not at all; one run at a time.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import orjson

from ...config import Config, ConfigError
from ...system.command_line_types import positive_number, whole_number
from ...system.errors import MemAgentError
from ...system.files import folder_lock, write_atomically
from ...system.one_line_errors import one_line_errors
from ...system.python_command import python_module
from ...system.signals import stop_on_signals
from ..files import FINISHED_WITH_FAILURES, OK, read_table
from .best_checkpoints import all_scores, best, score_of
from .data_recipe import read_recipe
from .rank_rows import PROMPT_TOKENS
from .round_plan import Plan, keep_settings, rankings_name
from .round_steps import Step, run_step

PACK = Path(__file__).resolve().parents[2]
_OTHERS = ("AVERAGE", "OUTPUT", "SINGLE_ITER", "VERSION", "BASE_URL", "POCKET_DATA", "DATA_ROOT", "LENGTH", "FORCE",
           "DRY_RUN", "RESULTS", "SAVE_FILE", "CONVERT", "MODEL_PATH")
"""Variables that mean one command of several here."""
_STATUS = "rank_status"
"""Exit code of evaluation and ranking where some questions have no answer."""


@one_line_errors("the same command goes on there")
def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    config = Config.from_env()
    plan = Plan(
        args.work.absolute(), _model(args.model), args.data_recipe, read_recipe(args.data_recipe),
        args.output_dir.absolute(), rankings_name(args.work.absolute()), args.embedding_model_name,
        args.primary_data_dir and args.primary_data_dir.absolute(),
        args.average, args.warm_up, args.reward,
        args.max_prompt_tokens or min(config.mem_max_question, PROMPT_TOKENS), args.seed, args.prompts,
    )
    if 0 < config.keep_checkpoints < plan.average:
        raise ConfigError(f"KEEP_CHECKPOINTS={config.keep_checkpoints}: {plan.average} are averaged; keep as many at "
                          "least, or 0, which keeps all")
    if args.dry_run:
        for step in planned(plan, args.rounds):
            print(f"# round {step.round}: {step.name}\n{step.shown()}")
        return 0
    with folder_lock(plan.work, busy="another run is at work there; choose another folder"):
        keep_settings(plan, config)
        for number in range(1, args.rounds + 1):
            _round(plan, number, last=number == args.rounds)
    print(f"{plan.folder(args.rounds) / 'model'}: the model of round {args.rounds}")
    return 0


def _round(plan: Plan, number: int, *, last: bool) -> None:
    folder = plan.folder(number)
    for step in (prepare(plan, number), train(plan, number), convert(plan, number)):
        run_step(step, folder)
    names = sorted(path.name for path in (folder / "train" / "hf").glob("iter_*") if (path / "config.json").is_file())
    if not names:
        raise MemAgentError(f"{folder / 'train' / 'hf'}: no converted checkpoint; see the lines above")
    if len(names) > plan.average and plan.recipe.test:
        for name in names:
            run_step(validate(plan, number, name), folder)
        scores = all_scores(names, folder / "validation")
        print("".join(f"round {number}: {name} {score:.4f}\n" for name, score in scores.items()), end="", flush=True)
        write_atomically(folder / "scores.json", orjson.dumps(scores, option=orjson.OPT_INDENT_2))
        names = best(scores, plan.average)
    run_step(average(plan, number, names[-plan.average :]), folder)
    if not last:
        run_step(rank(plan, number), folder)


def planned(plan: Plan, rounds: int) -> Iterator[Step]:
    """The steps of all rounds, with ``iter_*`` for the checkpoints that will be there."""
    for number in range(1, rounds + 1):
        yield from (prepare(plan, number), train(plan, number), convert(plan, number))
        if plan.recipe.test:
            yield validate(plan, number, "iter_*")
        yield average(plan, number, ["iter_*"] * min(2, plan.average))
        if number < rounds:
            yield rank(plan, number)


# --- the steps ------------------------------------------------------------------------------------------------------


def prepare(plan: Plan, number: int) -> Step:
    rankings = plan.chosen_by(number)
    command = [
        *_mem_agent("prepare-rl-data"), "--recipe", str(plan.recipe_file),
        *(["--primary-data-dir", str(rankings)] if rankings else []),
        "--fallback-data-dir", str(plan.results / plan.embedding), "--output-dir", str(plan.work),
        "--version", f"round_{number}", "--tokenizer", plan.model, "--max-prompt-tokens", str(plan.prompt_tokens),
        "--seed", str(plan.seed), *(["--prompts", plan.prompts] if plan.prompts else []),
    ]
    return Step(number, "prepare", command, [plan.data(number) / "prepared.json"], unset=_OTHERS)


def train(plan: Plan, number: int) -> Step:
    """A round that starts from an average has no TORCH_DIST: the user's is of the first model. What REWARD_ARGS says
    of over-long replies holds for every reward, the rest for ``plan.reward`` alone."""
    words = shlex.split(os.environ.get("REWARD_ARGS", ""))
    if number <= plan.warm_up:
        words = [word for word in words if word.startswith("overlong_")]
    own = {"HF_CKPT": plan.model_of(number), "TRAIN_DATA": str(plan.data(number)),
           "SAVE_PATH": str(plan.folder(number) / "train"), "EVAL": "0", "CONVERT": "0",
           "REWARD": "task" if number <= plan.warm_up else plan.reward, "REWARD_ARGS": shlex.join(words)}
    unset = [*_OTHERS, *(["TORCH_DIST"] if number > 1 else [])]
    tracker = plan.folder(number) / "train" / "latest_checkpointed_iteration.txt"
    return Step(number, "train", ["bash", str(PACK / "run-train.sh")], [tracker], own, unset)


def convert(plan: Plan, number: int) -> Step:
    own = {"SAVE_PATH": str(plan.folder(number) / "train"), "HF_CKPT": plan.model_of(number), "SINGLE_ITER": "all"}
    outputs = [plan.folder(number) / "train" / "hf"]
    return Step(number, "convert", ["bash", str(PACK / "convert-to-hf.sh")], outputs, own, _OTHERS)


def validate(plan: Plan, number: int, name: str) -> Step:
    folder = plan.folder(number)
    own = {"MODEL_PATH": str(folder / "train" / "hf" / name), "DATA_ROOT": str(plan.data(number)),
           "LENGTH": " ".join(_tested(plan, number)), "RESULTS": str(folder / "validation"), "SAVE_FILE": name,
           "CONVERT": "0"}
    outputs = [folder / "validation" / name / "run.json"]
    return Step(number, f"validate-{name}", ["bash", str(PACK / "run-eval.sh")], outputs, own, _OTHERS,
                frozenset({0, FINISHED_WITH_FAILURES}), partial(score_of, folder / "validation" / name))


def average(plan: Plan, number: int, names: Sequence[str]) -> Step:
    """One checkpoint is its own mean: a link."""
    hf, model = plan.folder(number) / "train" / "hf", plan.folder(number) / "model"
    if len(names) == 1:
        command = ["ln", "-sfn", str(hf / names[0]), str(model)]
    else:
        # Whatever an interrupted step has left: the folder appears whole, but its note may be missing.
        command = [*_mem_agent("average"), "--inputs", *(str(hf / name) for name in names), "--output", str(model),
                   "--force"]
    return Step(number, "average", command, [model / "config.json"], unset=_OTHERS)


def rank(plan: Plan, number: int) -> Step:
    """The test questions are not ranked: theirs are the same in every round."""
    command = [
        *_mem_agent("session-ranking"), "--model", str(plan.folder(number) / "model"), "--model-name",
        plan.ranker(number), "--output-dir", str(plan.results), "--embedding-model-name", plan.embedding,
        "--splits", "train", "--datasets", " ".join(plan.recipe.train),
        *(["--prompts", plan.prompts] if plan.prompts else []),
    ]
    unset = [*_OTHERS, "TEMPERATURE"]  # of training; the stages would take it for theirs, which is EVAL_TEMPERATURE
    outputs = [plan.results / plan.ranker(number) / f"{name}_train_ranking.parquet" for name in plan.recipe.train]
    return Step(number, "rank", command, outputs, {}, unset, frozenset({0, FINISHED_WITH_FAILURES}),
                partial(_check_ranked, outputs))


def _check_ranked(outputs: Sequence[Path]) -> None:
    """Raises MemAgentError where all rows of a file failed: the next round would be chosen by similarity alone."""
    for path in outputs:
        said = read_table(path, [_STATUS])[_STATUS].to_pylist()
        if said and OK not in said:
            raise MemAgentError(f"{path}: none of {len(said)} questions was ranked ({said[-1]}); once that is "
                                "seen to, the same command asks for them again")


def _mem_agent(command: str) -> list[str]:
    return python_module("mem_agent", command)


def _tested(plan: Plan, number: int) -> list[str]:
    """The data sets that have test questions: a file without a usable row has none."""
    names = [name for name in plan.recipe.test if (plan.data(number) / f"eval_{name}.json").is_file()]
    return names or list(plan.recipe.test)


def _model(name: str) -> str:
    folder = Path(os.path.expanduser(name))
    return str(folder.absolute()) if folder.is_dir() else name


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent curriculum", description="Train a ranker in rounds.")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder of all rounds")
    parser.add_argument("--model", required=True, metavar="HF", help="what the first round starts from")
    parser.add_argument("--data-recipe", type=Path, required=True, metavar="YAML",
                        help="as prepare-rl-data's --recipe")
    parser.add_argument("--output-dir", type=Path, default=Path("data/results"), metavar="DIR",
                        help="folder of the stages' files (data/results)")
    parser.add_argument("--embedding-model-name", default="bge-m3", metavar="NAME",
                        help="whose files of stage 1 are read (bge-m3)")
    parser.add_argument("--primary-data-dir", type=Path, metavar="DIR", help="rankings for the first round")
    parser.add_argument("--rounds", type=positive_number, default=3, metavar="N", help="in all (3)")
    parser.add_argument("--average", type=positive_number, default=3, metavar="K",
                        help="best checkpoints of a round (3)")
    parser.add_argument("--warm-up", type=whole_number, default=1, metavar="N",
                        help="rounds that are trained by the ranking alone (1)")
    parser.add_argument("--reward", default="answer_utility", help="of the others (answer_utility)")
    parser.add_argument("--max-prompt-tokens", type=positive_number, metavar="N",
                        help=f"of a ranking prompt (MEM_MAX_QUESTION, at most {PROMPT_TOKENS})")
    parser.add_argument("--prompts", default="", metavar="YAML", help="another wording of the ranking prompts")
    parser.add_argument("--seed", type=whole_number, default=42, help="of the rounds' data (42)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, start nothing")
    return parser


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
