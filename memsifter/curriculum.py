"""The rounds of MemSifter's training, as one command that may be killed at any moment and run again.

    RECIPE=recipes/memsifter-qwen3-4b.env KEEP_CHECKPOINTS=10 mem-agent curriculum --work runs/memsifter \
        --model Qwen/Qwen3-4B-Thinking-2507 --data-recipe recipes/memsifter/mix-v1.yaml --rounds 3

A round, in ``WORK/round_1``::

    prepare    rows by the last round's rankings, at random in the first    WORK/rl_train_data/round_1
    train      run-train.sh on them, from the last round's model            WORK/round_1/train
    convert    every checkpoint                                             WORK/round_1/train/hf
    validate   each by the test questions, where there are more than are averaged   WORK/round_1/validation
    average    the best ``--average``                                       WORK/round_1/model
    rank       the training questions, for the next round                   OUTPUT_DIR/WORK'S NAME/round_1

The first ``--warm-up`` rounds are trained by the ranking alone (REWARD=task), the others by ``--reward``: the answers
that a ranking leads to. Optimizer state ends with a round (MemSifter, arXiv 2603.03379). How a round is trained,
validated and ranked are the settings of ``mem-agent config``, from the environment; KEEP_CHECKPOINTS is how many there
are to choose from.

MemSifter averages the best checkpoints by validation at the end of each round, and leaves it to the reader to say
which those are. Here the score of a checkpoint is the mean over the data sets of what their task is judged by, itself
a mean over questions (``evaluation.summary``); of equal ones the later is better. Without test questions the newest
are averaged.

Invariants: a step that has ended leaves ``ROUND/steps/NAME``, and is not run again while that and its files are
there; one that was killed is run again, and continues by itself. A folder continues with the settings that it was
begun with (``WORK/curriculum.json``), except ``--rounds`` and places, or not at all; one run at a time.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ..config import Config, ConfigError
from ..evaluation.results import read_results
from ..evaluation.summary import cells_of, summary_of
from ..system.cli import one_line_errors, positive_number, python_module, whole_number
from ..system.errors import MemAgentError
from ..system.files import folder_lock
from .rl_data import PROMPT_TOKENS, DataRecipe, from_variable, read_recipe
from .stages import FINISHED_WITH_FAILURES, RANKING, keep_settings

PACK = Path(__file__).resolve().parents[1]
_FREE = {
    "work", "output_dir", "rankings", "rounds", "data_recipe", "dry_run",
    "HF_CKPT", "TORCH_DIST", "TRAIN_DATA", "SAVE_PATH", "DATA_ROOT", "REWARD", "BASE_URL", "LENGTH",  # a round's own
    "HOST", "HOST_ROOT", "MEGATRON_ROOT", "NUM_NODES", "NUM_GPUS", "MASTER_ADDR", "RAY_ADDRESS", "NUM_ENGINES",
    "ENGINE_ARGS", "MEM_CONCURRENCY", "ANSWER_URL", "TRACKER", "TRUST_REMOTE_CODE", "KEEP_CHECKPOINTS",
    "KEEP_TRAJECTORIES", "EVAL_API", "EVAL_INTERVAL", "EVAL_DATA",
}
"""Options and settings that a later run may change: places, machines, and what is only watched. A recipe is compared
by what it says."""
_OTHERS = {"AVERAGE", "OUTPUT", "SINGLE_ITER", "VERSION", "BASE_URL", "POCKET_DATA", "DATA_ROOT", "LENGTH", "FORCE",
           "DRY_RUN", "RESULTS", "SAVE_FILE", "CONVERT", "MODEL_PATH"}
"""Variables that mean one command of several here."""


class Step(NamedTuple):
    """A command that is run once, however often it takes until it has ended well."""

    round: int
    name: str
    command: Sequence[str]
    outputs: Sequence[Path]
    """Files and folders that are there once it has ended."""
    env: Mapping[str, str] = {}
    check: Callable[[], object] = bool
    """Raises MemAgentError where what was written is not worth keeping as done."""


def steps(given: argparse.Namespace, recipe: DataRecipe, number: int, dry: bool = False) -> Iterator[Step]:
    """Of round ``number``, in order: each is to be run before the next is asked for, unless ``dry``."""
    work, results, prompts = given.work, given.output_dir, ["--prompts", given.prompts] if given.prompts else []
    folder, before = work / f"round_{number}", work / f"round_{number - 1}"
    data, train, model = work / "rl_train_data" / folder.name, folder / "train", folder / "model"
    start = str(before / "model") if number > 1 else given.model

    rankings = results / work.name / before.name if number > 1 else given.rankings
    folders = [*filter(None, [rankings]), results / given.embedding_model_name]
    yield Step(number, "prepare", python_module(
        "mem_agent", "prepare-rl-data", "--recipe", str(given.data_recipe),
        "--data-dirs", *(str(path.absolute()) for path in folders), "--output-dir", str(work),
        "--version", folder.name, "--tokenizer", given.model, "--max-prompt-tokens", str(given.prompt_tokens),
        "--seed", str(given.seed), *prompts), [data / "prepared.json"])

    # What REWARD_ARGS says of over-long replies holds for every reward, the rest for --reward alone. The user's
    # TORCH_DIST is of the first model.
    warm, words = number <= given.warm_up, shlex.split(os.environ.get("REWARD_ARGS", ""))
    own = {"HF_CKPT": start, "TRAIN_DATA": str(data), "EVAL": "0", "CONVERT": "0", "SAVE_PATH": str(train),
           "REWARD": "task" if warm else given.reward,
           "REWARD_ARGS": shlex.join(word for word in words if word.startswith("overlong_") or not warm)}
    own |= {"TORCH_DIST": ""} if number > 1 else {}
    tracker = train / "latest_checkpointed_iteration.txt"
    yield Step(number, "train", ["bash", str(PACK / "run-train.sh")], [tracker], own)

    own = {"SAVE_PATH": str(train), "HF_CKPT": start, "SINGLE_ITER": "all"}
    yield Step(number, "convert", ["bash", str(PACK / "convert-to-hf.sh")], [train / "hf"], own)

    names = sorted(path.parent.name for path in (train / "hf").glob("iter_*/config.json"))
    names = ["iter_*"] * min(2, given.average) if dry else names
    if recipe.test and (dry or len(names) > given.average):
        # A file without a usable row has no test questions.
        tested = [name for name in recipe.test if (data / f"eval_{name}.json").is_file()] or recipe.test
        scores = {}
        for name in dict.fromkeys(names):
            own = {"MODEL_PATH": str(train / "hf" / name), "DATA_ROOT": str(data), "LENGTH": " ".join(tested),
                   "RESULTS": str(folder / "validation"), "SAVE_FILE": name, "CONVERT": "0"}
            found = folder / "validation" / name
            yield Step(number, f"validate-{name}", ["bash", str(PACK / "run-eval.sh")], [found / "run.json"],
                       own, partial(score_of, found))
            scores[name] = 0.0 if dry else score_of(found)
        chosen = sorted(sorted(names, key=lambda name: (scores[name], name))[-given.average :])
        if not dry:
            print("".join(f"round {number}: {name} {score:.4f}\n" for name, score in scores.items()), end="")
    else:
        chosen = names[-given.average :]
    inputs = [str(train / "hf" / name) for name in chosen]
    command = python_module("mem_agent", "average", "--inputs", *inputs, "--output", str(model), "--force")
    if len(chosen) == 1:  # is its own mean
        command = ["ln", "-sfn", *inputs, str(model)]
    yield Step(number, "average", command, [model / "config.json"])

    if number < given.rounds:  # the test questions are the same in every round
        ranker, trained = f"{work.name}/{folder.name}", recipe.train
        outputs = [results / ranker / f"{name}_train_{RANKING}.parquet" for name in trained]
        yield Step(number, "rank", python_module(
            "mem_agent", "session-ranking", "--model", str(model), "--model-name", ranker,
            "--output-dir", str(results), "--embedding-model-name", given.embedding_model_name,
            "--splits", "train", "--datasets", " ".join(trained), *prompts), outputs,
            {"TEMPERATURE": ""})  # of training; the stage would take it for EVAL_TEMPERATURE


def score_of(results: Path) -> float:
    """The mean over data sets, from 0 to 1. Raises MemAgentError: the checkpoint has no score."""
    scores = []
    for _, file, lines, score in cells_of(summary_of(read_results([results]))):
        failed, missing = lines["failed"].mean, lines["missing"].mean
        if not score or missing or failed == lines["rows"].mean:
            raise MemAgentError(f"{results}: no score of {file}, {failed:.0f} answers failed and {missing:.0f} are "
                                "missing; the same command asks again")
        scores.append(score.mean / 100)
    return fmean(scores)


def run_step(step: Step, folder: Path) -> None:
    """Run it unless it has ended before. Raises MemAgentError."""
    note = folder / "steps" / step.name
    if note.is_file() and all(path.exists() for path in step.outputs):
        print(f"round {step.round}: {step.name} is done", flush=True)
        return
    print(f"round {step.round}: {step.name}", flush=True)
    code = run_command(step)
    if code not in (0, FINISHED_WITH_FAILURES):
        raise MemAgentError(f"round {step.round}: {step.name} ended with code {code}; the same command goes on there")
    step.check()
    note.parent.mkdir(parents=True, exist_ok=True)
    note.touch()


def run_command(step: Step) -> int:
    """Its exit code; the command is told to stop when this process is, and when this process is gone."""
    own = {name: value for name, value in os.environ.items() if name not in _OTHERS}
    bound = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    with subprocess.Popen([*bound, *step.command], env=own | dict(step.env)) as child:
        try:
            return child.wait()
        except BaseException:
            child.terminate()
            child.wait()
            raise


@one_line_errors("the same command goes on there")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="mem-agent curriculum", description="Train a ranker in rounds.")
    add, variable = parser.add_argument, os.environ.get
    add("--work", type=Path, required=True, metavar="DIR", help="folder of all rounds")
    add("--model", **from_variable("HF_CKPT", "MODEL_PATH"), metavar="HF", help="what the first round starts from")
    add("--data-recipe", type=Path, **from_variable("DATA_RECIPE"), metavar="YAML", help="prepare-rl-data's --recipe")
    add("--output-dir", type=Path, default=Path(variable("OUTPUT_DIR") or "data/results"), help="of the stages' files")
    add("--embedding-model-name", default=variable("EMBEDDING_MODEL_NAME") or "bge-m3", help="of stage 1 (bge-m3)")
    add("--rankings", type=Path, metavar="DIR", help="what the first round is chosen by (chance)")
    add("--rounds", type=positive_number, default=3, metavar="N", help="in all (3)")
    add("--average", type=positive_number, default=3, metavar="K", help="best checkpoints of a round (3)")
    add("--warm-up", type=whole_number, default=1, metavar="N", help="rounds trained by the ranking alone (1)")
    add("--reward", default="answer_utility", help="of the others (answer_utility)")
    add("--prompts", default="", metavar="YAML", help="another wording of the ranking prompts")
    add("--seed", type=whole_number, default=42, help="of the rounds' data (42)")
    add("--dry-run", action="store_true", help="print the commands, start nothing")
    given, config = parser.parse_args(argv), Config.from_env()
    if 0 < config.keep_checkpoints < given.average:
        raise ConfigError(f"KEEP_CHECKPOINTS={config.keep_checkpoints}: {given.average} are averaged; keep as many")
    recipe, start = read_recipe(given.data_recipe), Path(given.model).expanduser()
    given.work, given.output_dir = given.work.absolute(), given.output_dir.absolute()
    given.model = str(start.absolute()) if start.is_dir() else given.model
    given.prompt_tokens = min(config.mem_max_question, PROMPT_TOKENS)
    if given.dry_run:
        for number in range(1, given.rounds + 1):
            for step in steps(given, recipe, number, dry=True):
                settings = "".join(f"{name}={shlex.quote(value)} " for name, value in step.env.items())
                print(f"# round {number}: {step.name}\n{settings}{shlex.join(step.command)}")
        return 0
    with folder_lock(given.work, busy="another run is at work there; choose another folder"):
        every = vars(given) | config.to_mapping()
        kept = {name: value for name, value in every.items() if name not in _FREE}
        keep_settings(given.work / "curriculum.json", kept | {"data-recipe": recipe.model_dump()})
        for number in range(1, given.rounds + 1):
            for step in steps(given, recipe, number):
                run_step(step, given.work / f"round_{number}")
    print(f"{given.work}/round_{given.rounds}/model: the model of round {given.rounds}")
    return 0
