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
are to choose from.

MemSifter averages the best checkpoints by validation at the end of each round, and leaves it to the reader to say
which those are. Here the score of a checkpoint is the mean over the data sets of what their task is judged by, itself
a mean over questions (``evaluation.summary``); of equal ones the later is better. Without test questions the newest
are averaged, and with ``--ckpt-steps`` (CKPT_STEPS) those of these steps, which count from 1.

Invariants: a step that has ended leaves ``ROUND/steps/NAME.json``, and is not run again while that and its files are
there; one that was killed is run again, and continues by itself. A folder continues with the settings that it was
begun with (``WORK/curriculum.json``), except ``--rounds`` and places, or not at all; one run at a time.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from ..config import Config, ConfigError
from ..evaluation.results import Row, read_results
from ..evaluation.summary import main_metric, question_means, shared_metrics
from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError
from ..system.files import folder_lock, write_atomically
from ..system.one_line_errors import one_line_errors
from ..system.python_command import python_module
from ..system.signals import stop_on_signals
from .files import FINISHED_WITH_FAILURES, read_table
from .rl_data import PROMPT_TOKENS, DataRecipe, from_variable, read_recipe

PACK = Path(__file__).resolve().parents[1]
_FREE = (
    "hf_ckpt", "torch_dist", "train_data", "save_path", "data_root", "reward", "base_url", "length",  # a round's own
    "host", "host_root", "megatron_root", "num_nodes", "num_gpus", "master_addr", "ray_address", "num_engines",
    "engine_args", "mem_concurrency", "answer_url", "tracker", "trust_remote_code", "keep_checkpoints",
    "keep_trajectories", "eval_api", "eval_interval", "eval_data",
)
"""Settings that a later run may change: places, machines, and what is only watched."""
_OTHERS = ("AVERAGE", "OUTPUT", "SINGLE_ITER", "VERSION", "BASE_URL", "POCKET_DATA", "DATA_ROOT", "LENGTH", "FORCE",
           "DRY_RUN", "RESULTS", "SAVE_FILE", "CONVERT", "MODEL_PATH")
"""Variables that mean one command of several here."""
_ANY = "iter_*"
"""Stands for the checkpoints that a dry run does not know."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What stays as it is from the first round to the last."""

    work: Path
    model: str
    recipe_file: Path
    recipe: DataRecipe
    results: Path
    """With stage 1's files, in a folder named by the embedding model; rankings are written here."""
    embedding: str
    primary: Path | None
    """Rankings that the first round is chosen by."""
    average: int
    ckpt_steps: tuple[int, ...]
    """Which checkpoints are averaged; empty: the best."""
    warm_up: int
    reward: str
    prompt_tokens: int
    seed: int
    prompts: str

    @property
    def rankings(self) -> str:
        """The folder in ``results`` of this curriculum alone: told apart from folders of the same name elsewhere, and
        kept where the folder is moved later.
        """
        begun = f"{self.work.name}-{hashlib.sha256(str(self.work).encode()).hexdigest()[:8]}"
        return str(kept_settings(self.work).get("rankings", begun))

    def folder(self, number: int) -> Path:
        return self.work / f"round_{number}"

    def data(self, number: int) -> Path:
        return self.work / "rl_train_data" / f"round_{number}"

    def ranker(self, number: int) -> str:
        return f"{self.rankings}/round_{number}"

    def model_of(self, number: int) -> str:
        """What round ``number`` starts from."""
        return self.model if number == 1 else str(self.folder(number - 1) / "model")


@dataclass(frozen=True, slots=True)
class Step:
    """A command that is run once, however often it takes until it has ended well."""

    round: int
    name: str
    command: Sequence[str]
    outputs: Sequence[Path]
    """Files and folders that are there once it has ended."""
    env: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = _OTHERS
    """Variables that are the user's, and of another step."""
    accepted: frozenset[int] = frozenset({0})
    """Exit codes of an end that counts."""
    check: Callable[[], object] = bool
    """Raises MemAgentError where what was written is not worth keeping as done."""

    def shown(self) -> str:
        """As a line of shell."""
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return " ".join([*settings, shlex.join(self.command)])


@one_line_errors("the same command goes on there")
def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    config = Config.from_env()
    start = Path(os.path.expanduser(args.model))
    plan = Plan(
        work=args.work.absolute(), model=str(start.absolute()) if start.is_dir() else args.model,
        recipe_file=args.data_recipe, recipe=read_recipe(args.data_recipe), results=args.output_dir.absolute(),
        embedding=args.embedding_model_name, primary=args.primary_data_dir and args.primary_data_dir.absolute(),
        average=args.average, ckpt_steps=args.ckpt_steps, warm_up=args.warm_up, reward=args.reward,
        prompt_tokens=args.max_prompt_tokens or min(config.mem_max_question, PROMPT_TOKENS), seed=args.seed,
        prompts=args.prompts,
    )
    if 0 < config.keep_checkpoints < plan.average:
        raise ConfigError(f"KEEP_CHECKPOINTS={config.keep_checkpoints}: {plan.average} are averaged; keep as many at "
                          "least, or 0, which keeps all")
    if args.dry_run:
        for number in range(1, args.rounds + 1):
            for step in steps(plan, number, last=number == args.rounds, dry=True):
                print(f"# round {number}: {step.name}\n{step.shown()}")
        return 0
    with folder_lock(plan.work, busy="another run is at work there; choose another folder"):
        keep_settings(plan, config)
        for number in range(1, args.rounds + 1):
            for step in steps(plan, number, last=number == args.rounds):
                run_step(step, plan.folder(number))
    print(f"{plan.folder(args.rounds) / 'model'}: the model of round {args.rounds}")
    return 0


def steps(plan: Plan, number: int, *, last: bool, dry: bool = False) -> Iterator[Step]:
    """Of a round, in order: each is to be run before the next is asked for, unless ``dry``."""
    yield prepare(plan, number)
    yield train(plan, number)
    yield convert(plan, number)
    names = [_ANY] * min(2, plan.average) if dry else _checkpoints(plan, number)
    if plan.ckpt_steps and not dry:
        names = _of_steps(plan, number, names)
    elif plan.recipe.test and not plan.ckpt_steps and (dry or len(names) > plan.average):
        for name in dict.fromkeys(names):
            yield validate(plan, number, name)
        names = names if dry else _best(plan, number, names)
    yield average(plan, number, names if plan.ckpt_steps else names[-plan.average :])
    if not last:
        yield rank(plan, number)


# --- the steps ------------------------------------------------------------------------------------------------------


def prepare(plan: Plan, number: int) -> Step:
    rankings = plan.primary if number == 1 else plan.results / plan.ranker(number - 1)
    command = [
        *python_module("mem_agent", "prepare-rl-data"), "--recipe", str(plan.recipe_file),
        *(["--primary-data-dir", str(rankings)] if rankings else []),
        "--fallback-data-dir", str(plan.results / plan.embedding), "--output-dir", str(plan.work),
        "--version", f"round_{number}", "--tokenizer", plan.model, "--max-prompt-tokens", str(plan.prompt_tokens),
        "--seed", str(plan.seed), *(["--prompts", plan.prompts] if plan.prompts else []),
    ]
    return Step(number, "prepare", command, [plan.data(number) / "prepared.json"])


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
    return Step(number, "convert", ["bash", str(PACK / "convert-to-hf.sh")], [_converted(plan, number)], own)


def validate(plan: Plan, number: int, name: str) -> Step:
    """By the data sets that have test questions: a file without a usable row has none."""
    data, results = plan.data(number), plan.folder(number) / "validation"
    tested = [name for name in plan.recipe.test if (data / f"eval_{name}.json").is_file()] or plan.recipe.test
    own = {"MODEL_PATH": str(_converted(plan, number) / name), "DATA_ROOT": str(data), "LENGTH": " ".join(tested),
           "RESULTS": str(results), "SAVE_FILE": name, "CONVERT": "0"}
    return Step(number, f"validate-{name}", ["bash", str(PACK / "run-eval.sh")], [results / name / "run.json"], own,
                accepted=frozenset({0, FINISHED_WITH_FAILURES}), check=partial(score_of, results / name))


def average(plan: Plan, number: int, names: Sequence[str]) -> Step:
    """One checkpoint is its own mean: a link."""
    hf, model = _converted(plan, number), plan.folder(number) / "model"
    if len(names) == 1:
        command = ["ln", "-sfn", str(hf / names[0]), str(model)]
    else:
        # Whatever an interrupted step has left: the folder appears whole, but its note may be missing.
        inputs = [str(hf / name) for name in names]
        command = [*python_module("mem_agent", "average"), "--inputs", *inputs, "--output", str(model), "--force"]
    return Step(number, "average", command, [model / "config.json"])


def rank(plan: Plan, number: int) -> Step:
    """The test questions are not ranked: theirs are the same in every round."""
    command = [
        *python_module("mem_agent", "session-ranking"), "--model", str(plan.folder(number) / "model"), "--model-name",
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
        said = read_table(path, ["rank_status"])["rank_status"].to_pylist()
        if said and "ok" not in said:
            raise MemAgentError(f"{path}: none of {len(said)} questions was ranked ({said[-1]}); once that is "
                                "seen to, the same command asks for them again")


# --- checkpoints ----------------------------------------------------------------------------------------------------


def _converted(plan: Plan, number: int) -> Path:
    return plan.folder(number) / "train" / "hf"


def _checkpoints(plan: Plan, number: int) -> list[str]:
    folder = _converted(plan, number)
    names = sorted(path.name for path in folder.glob("iter_*") if (path / "config.json").is_file())
    if not names:
        raise MemAgentError(f"{folder}: no converted checkpoint; see the lines above")
    return names


def _of_steps(plan: Plan, number: int, names: Sequence[str]) -> list[str]:
    """Step 20 is iteration 19, for iterations count from 0."""
    wanted = {f"iter_{step - 1:07}": step for step in plan.ckpt_steps}
    if absent := [step for name, step in wanted.items() if name not in names]:
        raise MemAgentError(f"{_converted(plan, number)}: --ckpt-steps names step {absent[0]}, of which there is no "
                            f"checkpoint; it has {', '.join(names)}")
    return sorted(wanted)


def _best(plan: Plan, number: int, names: Sequence[str]) -> list[str]:
    """The names of the best checkpoints, in the order in which they were trained."""
    scores = {name: score_of(plan.folder(number) / "validation" / name) for name in names}
    print("".join(f"round {number}: {name} {score:.4f}\n" for name, score in scores.items()), end="", flush=True)
    write_atomically(plan.folder(number) / "scores.json", orjson.dumps(scores, option=orjson.OPT_INDENT_2))
    return sorted(sorted(names, key=lambda name: (scores[name], name))[-plan.average :])


def score_of(results: Path) -> float:
    """Raises MemAgentError of a checkpoint without a score; names its results."""
    (found,) = read_results([results])
    rows = [row for cell in found.cells for row in cell.rows]
    if rows and all(row.failure for row in rows):
        raise MemAgentError(f"{results}: all {len(rows)} answers failed ({rows[-1].failure_message}); once that is "
                            "seen to, the same command asks for them again")
    scores = []
    for cell in found.cells:
        metric = main_metric(shared_metrics(cell.rows))
        if metric is None or cell.missing:
            raise MemAgentError(f"{results}: {cell.missing} answers of {cell.name} are missing; evaluate it again")
        means = question_means(cell.rows, partial(_score, metric))
        scores.append(sum(means.values()) / len(means))
    return sum(scores) / len(scores)


def _score(metric: str, row: Row) -> float:
    return row.scores[metric]


# --- what runs, and what is kept ------------------------------------------------------------------------------------


def run_step(step: Step, folder: Path) -> None:
    """Run it unless it has ended before. Raises MemAgentError."""
    note = folder / "steps" / f"{step.name}.json"
    if note.is_file() and all(path.exists() for path in step.outputs):
        print(f"round {step.round}: {step.name} is done", flush=True)
        return
    print(f"round {step.round}: {step.name}", flush=True)
    begun = time.monotonic()
    code = run_command(step)
    if code not in step.accepted:
        raise MemAgentError(f"round {step.round}: {step.name} ended with code {code}; once the lines above are seen "
                            "to, the same command goes on there")
    if absent := [path for path in step.outputs if not path.exists()]:
        raise MemAgentError(f"round {step.round}: {step.name} has not written {absent[0]}")
    step.check()
    note.parent.mkdir(parents=True, exist_ok=True)
    about = {"outputs": [str(path) for path in step.outputs], "seconds": round(time.monotonic() - begun, 1)}
    write_atomically(note, orjson.dumps(about, option=orjson.OPT_INDENT_2))


def run_command(step: Step) -> int:
    """Its exit code; the command is told to stop when this process is, and when this process is gone."""
    own = {name: value for name, value in os.environ.items() if name not in step.unset}
    bound = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    with subprocess.Popen([*bound, *step.command], env=own | dict(step.env)) as child:
        try:
            return child.wait()
        except BaseException:
            child.terminate()
            child.wait()
            raise


def keep_settings(plan: Plan, config: Config) -> None:
    """Write the settings of a new folder. Raises ConfigError where an older one was begun with others."""
    path = plan.work / "curriculum.json"
    now = orjson.loads(orjson.dumps(settings_of(plan, config)))
    if not path.is_file():
        write_atomically(path, orjson.dumps(now, option=orjson.OPT_INDENT_2))
    before = kept_settings(plan.work)
    for name in {**before, **now}:
        if before.get(name) != now.get(name):
            raise ConfigError(f"{path}: {name} was {before.get(name)!r:.80} and is {now.get(name)!r:.80}; go on with "
                              "the former, or choose another folder")


def kept_settings(work: Path) -> Mapping[str, Any]:
    """Those that the folder was begun with; none of a new one."""
    path = work / "curriculum.json"
    try:
        return dict(orjson.loads(path.read_bytes())) if path.is_file() else {}
    except (TypeError, ValueError):
        raise ConfigError(f"{path}: damaged; choose another folder") from None


def settings_of(plan: Plan, config: Config) -> dict[str, Any]:
    """By name; what a later run must share. Folders are not: results may be moved."""
    training = {name: value for name, value in config.to_mapping().items() if name.lower() not in _FREE}
    own = {"rankings": plan.rankings, "model": plan.model, "data-recipe": plan.recipe.model_dump(),
           "embedding-model-name": plan.embedding, "reward": plan.reward, "average": plan.average,
           "warm-up": plan.warm_up, "max-prompt-tokens": plan.prompt_tokens, "seed": plan.seed,
           "prompts": plan.prompts}
    return own | ({"ckpt-steps": plan.ckpt_steps} if plan.ckpt_steps else {}) | training


def _steps(text: str) -> tuple[int, ...]:
    """Of ``20 30 40``."""
    return tuple(sorted(set(map(positive_number, text.split()))))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent curriculum", description="Train a ranker in rounds.")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder of all rounds")
    parser.add_argument("--model", **from_variable("HF_CKPT", "MODEL_PATH"), metavar="HF",
                        help="what the first round starts from")
    parser.add_argument("--data-recipe", type=Path, **from_variable("DATA_RECIPE"), metavar="YAML",
                        help="as prepare-rl-data's --recipe")
    parser.add_argument("--output-dir", type=Path, default=Path(os.environ.get("OUTPUT_DIR") or "data/results"),
                        metavar="DIR", help="folder of the stages' files (data/results)")
    parser.add_argument("--embedding-model-name", default=os.environ.get("EMBEDDING_MODEL_NAME") or "bge-m3",
                        metavar="NAME", help="whose files of stage 1 are read (bge-m3)")
    parser.add_argument("--primary-data-dir", type=Path, metavar="DIR", help="rankings for the first round")
    parser.add_argument("--rounds", type=positive_number, default=3, metavar="N", help="in all (3)")
    parser.add_argument("--average", type=positive_number, default=3, metavar="K",
                        help="best checkpoints of a round (3)")
    parser.add_argument("--ckpt-steps", type=_steps, default=os.environ.get("CKPT_STEPS", ""), metavar="STEPS",
                        help="average the checkpoints of these steps, as in '20 30 40', and validate none")
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
