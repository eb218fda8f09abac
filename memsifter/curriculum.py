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
from statistics import fmean

import orjson

from ..config import Config, ConfigError
from ..evaluation.results import Row as Answer
from ..evaluation.results import read_results
from ..evaluation.summary import main_metric, question_means, shared_metrics
from ..system.command_line_types import positive_number, whole_number
from ..system.errors import MemAgentError
from ..system.files import folder_lock, write_atomically
from ..system.one_line_errors import one_line_errors
from ..system.python_command import python_module
from ..system.signals import stop_on_signals
from .files import FINISHED_WITH_FAILURES, OK, RANKING, Row, keep_settings, read_rows
from .rl_data import PROMPT_TOKENS, from_variable, read_recipe

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
    check: Callable[[], object] = bool
    """Raises MemAgentError where what was written is not worth keeping as done."""


class Curriculum:
    """The steps of all rounds, by the options and settings of a command."""

    def __init__(self, given: argparse.Namespace, config: Config) -> None:
        self.given, self.config, self.recipe = given, config, read_recipe(given.data_recipe)
        self.work, self.results = given.work.absolute(), given.output_dir.absolute()
        start = Path(os.path.expanduser(given.model))
        self.model = str(start.absolute()) if start.is_dir() else given.model
        self.prompt_tokens = given.max_prompt_tokens or min(config.mem_max_question, PROMPT_TOKENS)
        self.prompts = ["--prompts", given.prompts] if given.prompts else []
        # Of its rankings: told apart from curricula of the same name elsewhere, and kept where it is moved.
        self.name = f"{self.work.name}-{hashlib.sha256(str(self.work).encode()).hexdigest()[:8]}"
        if (self.work / "curriculum.json").is_file():
            self.name = orjson.loads((self.work / "curriculum.json").read_bytes())["rankings"]

    def folder(self, number: int, *names: str) -> Path:
        return Path(self.work, f"round_{number}", *names)

    def data(self, number: int) -> Path:
        return self.work / "rl_train_data" / f"round_{number}"

    def model_of(self, number: int) -> str:
        """What round ``number`` starts from."""
        return self.model if number == 1 else str(self.folder(number - 1, "model"))

    def steps(self, number: int, *, dry: bool = False) -> Iterator[Step]:
        """Of a round, in order: each is to be run before the next is asked for, unless ``dry``."""
        yield self.prepare(number)
        yield self.train(number)
        yield self.convert(number)
        average, chosen = self.given.average, self.given.ckpt_steps
        there = [] if dry else self.checkpoints(number)
        names = there or ["iter_*"] * min(2, average)
        if chosen:  # step 20 is iteration 19, for iterations count from 0
            names = [f"iter_{step - 1:07}" for step in chosen]
            absent = [step for step, name in zip(chosen, names, strict=True) if name not in there and not dry]
            if absent:
                raise MemAgentError(f"--ckpt-steps: round {number} has no step {absent[0]}, but {', '.join(there)}")
        elif self.recipe.test and (dry or len(names) > average):
            for name in dict.fromkeys(names):
                yield self.validate(number, name)
            names = names if dry else self.best(number, names)
        yield self.average(number, names if chosen else names[-average:])
        if number < self.given.rounds:
            yield self.rank(number)

    # --- the steps --------------------------------------------------------------------------------------------------

    def prepare(self, number: int) -> Step:
        rankings = self.results / f"{self.name}/round_{number - 1}" if number > 1 else self.given.rankings
        folders = [rankings, self.results / self.given.embedding_model_name]
        command = python_module(
            "mem_agent", "prepare-rl-data", "--recipe", str(self.given.data_recipe),
            "--data-dirs", *(str(folder.absolute()) for folder in folders if folder), "--output-dir", str(self.work),
            "--version", f"round_{number}", "--tokenizer", self.model, "--max-prompt-tokens", str(self.prompt_tokens),
            "--seed", str(self.given.seed), *self.prompts)
        return Step(number, "prepare", command, [self.data(number) / "prepared.json"])

    def train(self, number: int) -> Step:
        """A round that starts from an average has no TORCH_DIST: the user's is of the first model. What REWARD_ARGS
        says of over-long replies holds for every reward, the rest for ``--reward`` alone."""
        words, warm = shlex.split(os.environ.get("REWARD_ARGS", "")), number <= self.given.warm_up
        if warm:
            words = [word for word in words if word.startswith("overlong_")]
        own = {"HF_CKPT": self.model_of(number), "TRAIN_DATA": str(self.data(number)), "EVAL": "0", "CONVERT": "0",
               "SAVE_PATH": str(self.folder(number, "train")), "REWARD": "task" if warm else self.given.reward,
               "REWARD_ARGS": shlex.join(words)}
        unset = [*_OTHERS, *(["TORCH_DIST"] if number > 1 else [])]
        tracker = self.folder(number, "train", "latest_checkpointed_iteration.txt")
        return Step(number, "train", ["bash", str(PACK / "run-train.sh")], [tracker], own, unset)

    def convert(self, number: int) -> Step:
        folder = self.folder(number, "train")
        own = {"SAVE_PATH": str(folder), "HF_CKPT": self.model_of(number), "SINGLE_ITER": "all"}
        return Step(number, "convert", ["bash", str(PACK / "convert-to-hf.sh")], [folder / "hf"], own)

    def validate(self, number: int, name: str) -> Step:
        """By the data sets that have test questions: a file without a usable row has none."""
        data, results = self.data(number), self.folder(number, "validation", name)
        tested = [name for name in self.recipe.test if (data / f"eval_{name}.json").is_file()] or self.recipe.test
        own = {"MODEL_PATH": str(self.folder(number, "train", "hf", name)), "DATA_ROOT": str(data),
               "LENGTH": " ".join(tested), "RESULTS": str(results.parent), "SAVE_FILE": name, "CONVERT": "0"}
        return Step(number, f"validate-{name}", ["bash", str(PACK / "run-eval.sh")], [results / "run.json"], own,
                    check=partial(score_of, results))

    def average(self, number: int, names: Sequence[str]) -> Step:
        """One checkpoint is its own mean: a link."""
        inputs = [str(self.folder(number, "train", "hf", name)) for name in names]
        model = self.folder(number, "model")
        command = python_module("mem_agent", "average", "--inputs", *inputs, "--output", str(model), "--force")
        if len(names) == 1:
            command = ["ln", "-sfn", *inputs, str(model)]
        return Step(number, "average", command, [model / "config.json"])

    def rank(self, number: int) -> Step:
        """The test questions are not ranked: theirs are the same in every round."""
        ranker, train = f"{self.name}/round_{number}", self.recipe.train
        command = python_module(
            "mem_agent", "session-ranking", "--model", str(self.folder(number, "model")), "--model-name", ranker,
            "--output-dir", str(self.results), "--embedding-model-name", self.given.embedding_model_name,
            "--splits", "train", "--datasets", " ".join(train), *self.prompts)
        unset = [*_OTHERS, "TEMPERATURE"]  # of training; the stages would take it for theirs, EVAL_TEMPERATURE
        outputs = [self.results / ranker / f"{name}_train_{RANKING}.parquet" for name in train]
        return Step(number, "rank", command, outputs, {}, unset, partial(check_ranked, outputs))

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def checkpoints(self, number: int) -> list[str]:
        folder = self.folder(number, "train", "hf")
        names = sorted(path.parent.name for path in folder.glob("iter_*/config.json"))
        if not names:
            raise MemAgentError(f"{folder}: no converted checkpoint; see the lines above")
        return names

    def best(self, number: int, names: Sequence[str]) -> list[str]:
        """The names of the best checkpoints, in the order in which they were trained."""
        scores = {name: score_of(self.folder(number, "validation", name)) for name in names}
        print("".join(f"round {number}: {name} {score:.4f}\n" for name, score in scores.items()), end="", flush=True)
        write_atomically(self.folder(number, "scores.json"), orjson.dumps(scores, option=orjson.OPT_INDENT_2))
        return sorted(sorted(names, key=lambda name: (scores[name], name))[-self.given.average :])

    def settings(self) -> Row:
        """What a later run must share. Folders are not among them: results may be moved."""
        given = self.given
        own = {"rankings": self.name, "model": self.model, "data-recipe": self.recipe.model_dump(),
               "embedding-model-name": given.embedding_model_name, "reward": given.reward, "average": given.average,
               "warm-up": given.warm_up, "max-prompt-tokens": self.prompt_tokens, "seed": given.seed,
               "prompts": given.prompts, **({"ckpt-steps": given.ckpt_steps} if given.ckpt_steps else {})}
        return own | {name: value for name, value in self.config.to_mapping().items() if name.lower() not in _FREE}


def check_ranked(outputs: Sequence[Path]) -> None:
    """Raises MemAgentError where all rows of a file failed: the next round would be chosen by similarity alone."""
    for path in outputs:
        said = [row["rank_status"] for row in read_rows(path, ["rank_status"])]
        if said and OK not in said:
            raise MemAgentError(f"{path}: none of {len(said)} was ranked ({said[-1]}); the same command asks again")


def score_of(results: Path) -> float:
    """The mean over data sets. Raises MemAgentError of a checkpoint without a score; names its results."""
    (found,) = read_results([results])
    rows = [row for cell in found.cells for row in cell.rows]
    if rows and all(row.failure for row in rows):
        raise MemAgentError(f"{results}: all answers failed ({rows[-1].failure_message}); the same command asks again")
    scores = []
    for cell in found.cells:
        metric = main_metric(shared_metrics(cell.rows))
        if metric is None or cell.missing:
            raise MemAgentError(f"{results}: {cell.missing} answers of {cell.name} are missing; evaluate it again")
        scores.append(fmean(question_means(cell.rows, partial(_score, metric)).values()))
    return fmean(scores)


def _score(metric: str, row: Answer) -> float:
    return row.scores[metric]


def run_step(step: Step, folder: Path) -> None:
    """Run it unless it has ended before. Raises MemAgentError."""
    note = folder / "steps" / f"{step.name}.json"
    if note.is_file() and all(path.exists() for path in step.outputs):
        print(f"round {step.round}: {step.name} is done", flush=True)
        return
    print(f"round {step.round}: {step.name}", flush=True)
    begun = time.monotonic()
    code = run_command(step)
    if code not in (0, FINISHED_WITH_FAILURES):
        raise MemAgentError(f"round {step.round}: {step.name} ended with code {code}; the same command goes on there")
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


@one_line_errors("the same command goes on there")
def main(argv: Sequence[str] | None = None) -> int:
    given, config = _parser().parse_args(argv), Config.from_env()
    if 0 < config.keep_checkpoints < given.average:
        raise ConfigError(f"KEEP_CHECKPOINTS={config.keep_checkpoints}: {given.average} are averaged; keep as many")
    rounds = Curriculum(given, config)
    if given.dry_run:
        for number in range(1, given.rounds + 1):
            for step in rounds.steps(number, dry=True):
                settings = "".join(f"{name}={shlex.quote(value)} " for name, value in step.env.items())
                print(f"# round {number}: {step.name}\n{settings}{shlex.join(step.command)}")
        return 0
    with folder_lock(rounds.work, busy="another run is at work there; choose another folder"):
        keep_settings(rounds.work / "curriculum.json", rounds.settings())
        for number in range(1, given.rounds + 1):
            for step in rounds.steps(number):
                run_step(step, rounds.folder(number))
    print(f"{rounds.folder(given.rounds) / 'model'}: the model of round {given.rounds}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="mem-agent curriculum", description="Train a ranker in rounds.")
    add, given = parser.add_argument, os.environ.get
    add("--work", type=Path, required=True, metavar="DIR", help="folder of all rounds")
    add("--model", **from_variable("HF_CKPT", "MODEL_PATH"), metavar="HF", help="what the first round starts from")
    add("--data-recipe", type=Path, **from_variable("DATA_RECIPE"), metavar="YAML", help="prepare-rl-data's --recipe")
    add("--output-dir", type=Path, default=Path(given("OUTPUT_DIR") or "data/results"), help="of the stages' files")
    add("--embedding-model-name", default=given("EMBEDDING_MODEL_NAME") or "bge-m3", help="of stage 1 (bge-m3)")
    add("--rankings", type=Path, metavar="DIR", help="what the first round is chosen by (chance)")
    add("--rounds", type=positive_number, default=3, metavar="N", help="in all (3)")
    add("--average", type=positive_number, default=3, metavar="K", help="best checkpoints of a round (3)")
    add("--ckpt-steps", type=_steps, default=given("CKPT_STEPS", ""), help="'20 30 40': average these, validate none")
    add("--warm-up", type=whole_number, default=1, metavar="N", help="rounds trained by the ranking alone (1)")
    add("--reward", default="answer_utility", help="of the others (answer_utility)")
    add("--max-prompt-tokens", type=positive_number, help=f"of a ranking (MEM_MAX_QUESTION, at most {PROMPT_TOKENS})")
    add("--prompts", default="", metavar="YAML", help="another wording of the ranking prompts")
    add("--seed", type=whole_number, default=42, help="of the rounds' data (42)")
    add("--dry-run", action="store_true", help="print the commands, start nothing")
    return parser


def _steps(text: str) -> list[int]:
    """Of ``20 30 40``."""
    return sorted(set(map(positive_number, text.split())))


if __name__ == "__main__":
    stop_on_signals()
    sys.exit(main())
