"""``python -m mem_agent.benchmarks.simulation --gpus "8 64 512" --document-tokens "8192 131072 4194304"``"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ...config import ConfigError
from ...system.markdown import markdown_table
from ...system.one_line_errors import one_line_errors
from .predict import MODELS, SIMULATED, VARIANTS, Prediction, Task, predict
from .prompts import Reading
from .rates import DEFAULT, read_rates
from .traces import read_trace

HEADER = ("document", "GPUs", "how", "engines", "copies", "rollout", "90%", "log-probs", "update", "sync", "step s",
          "computed of sent", "of least", "engines busy", "trained tokens")


@one_line_errors("nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    options = arguments().parse_args(argv)
    rates = read_rates(options.rates)
    replies = reply_shares(options.trace) if options.trace else (options.memory_share,)
    reading = Reading(chunk=options.chunk, memory=options.memory, final=options.memory, replies=replies)
    model = MODELS[options.model]
    if options.model_parameters:
        model = replace(model, parameters=options.model_parameters)
    predictions = []
    for document in options.document_tokens:
        task = Task(reading=reading, document=document, documents=options.documents, group=options.group,
                    spread=options.spread, steps=options.steps, reference=not options.no_reference, seed=options.seed)
        for gpus in options.gpus:
            for name in options.variants:
                predictions.append(predict(task, model, gpus, name, rates, options.simulated))
                print(f"{document} tokens, {gpus} GPUs, {name}: {predictions[-1].step:.0f} s", file=sys.stderr)
    print(markdown_table(HEADER, map(cells, predictions), words=("how",)))
    if options.output:
        content = {"model": asdict(model), "rates": asdict(rates), "reading": asdict(reading), "seed": options.seed}
        content |= {"predictions": [prediction.to_dict() for prediction in predictions]}
        options.output.write_text(json.dumps(content, indent=1) + "\n")
    return 0


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mem_agent.benchmarks.simulation", description="Predict a training step's seconds on GPUs."
    )
    add = parser.add_argument
    add("--gpus", type=whole_numbers, default="8 64 512", help="numbers of GPUs")
    add("--document-tokens", type=whole_numbers, default="8192 131072 4194304")
    add("--documents", type=whole_number, default=128, help="documents of a rollout")
    add("--group", type=whole_number, default=16, help="trajectories of a document")
    add("--chunk", type=whole_number, default=5000)
    add("--memory", type=whole_number, default=1000, help="tokens of a memory and of the answer, at most")
    add("--memory-share", type=share, default=1.0, help="share of --memory that replies have, without --trace")
    add("--spread", type=share, default=0.0, help="documents are this share longer or shorter, at most")
    add("--model", choices=sorted(MODELS), default="qwen2.5-7b")
    add("--model-parameters", type=count, help="weights, in the shape of --model")
    add("--steps", type=whole_number, default=1, help="optimizer steps of a rollout")
    add("--no-reference", action="store_true", help="no KL, so no log-probs of the reference model")
    add("--variants", type=variants, default="published section trees", help=f"of {' '.join(VARIANTS)}")
    add("--rates", type=Path, default=DEFAULT, help="YAML: rate, value, source; default: an H100")
    add("--trace", type=Path, help="a recorded rollout whose replies' lengths are drawn from")
    add("--simulated", type=whole_number, default=SIMULATED, help="chunks simulated of a document that has more")
    add("--seed", type=int, default=0)
    add("--output", type=output_file, help="JSON with the inputs and all figures")
    return parser


def whole_number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def whole_numbers(text: str) -> list[int]:
    return [whole_number(word) for word in text.replace(",", " ").split()] or [whole_number(text)]


def share(text: str) -> float:
    if not 0 <= (number := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share from 0 to 1")
    return number


def count(text: str) -> int:
    """Of parameters; 7.6e9 as well."""
    if not 1 <= (number := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(number)


def output_file(text: str) -> Path:
    if not Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text}: there is no folder {Path(text).parent}")
    return Path(text)


def variants(text: str) -> list[str]:
    names = text.replace(",", " ").split()
    if unknown := [name for name in names if name not in VARIANTS] or not names:
        raise argparse.ArgumentTypeError(f"{unknown} unknown; choose of {' '.join(VARIANTS)}")
    return names


def reply_shares(path: Path) -> tuple[float, ...]:
    """Lengths of a real run's memories, as shares of the most allowed."""
    trace = read_trace(path)
    most = trace.settings["memory"]
    last = {turn.trajectory: index for index, turn in enumerate(trace.turns)}
    shares = tuple(turn.reply / most for index, turn in enumerate(trace.turns) if index != last[turn.trajectory])
    if not shares:
        raise ConfigError(f"{path}: no memory turn in this trace")
    return shares


def cells(p: Prediction) -> tuple[object, ...]:
    seconds = (f"{value:,.0f}" for value in (p.rollout, p.rollout_90, p.log_probs, p.update, p.sync, p.step))
    shares = (f"{p.computed / p.sent:.0%}", f"{p.computed / p.least:.2f}", f"{p.engine_busy:.0%}")
    extrapolated = "*" if p.extrapolated else ""
    return (f"{p.document:,}{extrapolated}", p.gpus, p.variant, p.engines, p.copies, *seconds, *shares,
            f"{p.trained_tokens / 1e6:,.1f}M")


if __name__ == "__main__":
    sys.exit(main())
