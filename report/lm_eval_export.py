"""Results in the form of lm-evaluation-harness: one ``results_<time>.json`` per run.

The keys are those of lm-eval 0.4.13's ``EvalResults`` (lm_eval/result_schema.py) that an evaluation made elsewhere can
fill; git hash, library versions and tokenizer ids are left out, as they would be made up.

Invariants:
- scores are shares of 1 under ``<metric>,none``; the standard error is over questions, samples averaged first;
- task names begin with ``mem_agent_``: these are our prompts and metrics, not the harness's own tasks.
"""

from __future__ import annotations

import re
from math import sqrt
from pathlib import PurePosixPath
from statistics import stdev
from typing import Any

import orjson

from ..evaluation.results import Cell, Results, Run
from ..evaluation.summary import question_means, shared_metrics

_VERSION = 1


def export(results: Results) -> tuple[PurePosixPath, bytes]:
    """The file's path below the harness's output folder, and its content."""
    run = results.run
    cells = {f"mem_agent_{_task_name(cell)}": cell for cell in results.cells if cell.rows}
    document: dict[str, Any] = {
        "results": {task: _results(task, cell) for task, cell in cells.items()},
        "group_subtasks": {task: [] for task in cells},
        "configs": {task: _config(task, cell, run) for task, cell in cells.items()},
        "versions": dict.fromkeys(cells, _VERSION),
        "n-shot": dict.fromkeys(cells, 0),
        "higher_is_better": {task: dict.fromkeys(shared_metrics(cell.rows), True) for task, cell in cells.items()},
        "n-samples": {task: _counts(cell) for task, cell in cells.items()},
        "config": {"model": "mem_agent", "model_args": {"pretrained": run.model}, "batch_size": None, "limit": None,
                   "gen_kwargs": {name: run.settings.get(f"eval_{name}") for name in ("temperature", "top_p")},
                   "random_seed": run.settings.get("seed")},
        "date": results.written.timestamp(),
        "task_hashes": {task: cell.data for task, cell in cells.items()},
        "model_source": "mem_agent",
        "model_name": results.label,
        "model_name_sanitized": sanitised(results.label),
        "system_instruction": None,
        "chat_template": None,
        "fewshot_as_multiturn": False,
    }
    time = results.written.replace(tzinfo=None).isoformat(timespec="microseconds").replace(":", "-")
    path = PurePosixPath(sanitised(results.label), f"results_{time}.json")
    return path, orjson.dumps(document, option=orjson.OPT_INDENT_2)


def sanitised(name: str) -> str:
    """A file name that the harness's tools accept."""
    return re.sub(r"[^\w.-]+", "__", name).strip(".") or "run"


def _task_name(cell: Cell) -> str:
    return cell.name if cell.task == cell.name else f"{cell.task or 'hqa'}_{cell.length}"


def _results(task: str, cell: Cell) -> dict[str, Any]:
    found: dict[str, Any] = {"name": task, "alias": task}
    for name in shared_metrics(cell.rows):
        means = list(question_means(cell.rows, lambda row, name=name: row.scores[name]).values())  # type: ignore[misc]
        found["sample_len"] = len(means)
        found[f"{name},none"] = sum(means) / len(means)
        found[f"{name}_stderr,none"] = stdev(means) / sqrt(len(means)) if len(means) > 1 else "N/A"
    return found


def _config(task: str, cell: Cell, run: Run) -> dict[str, Any]:
    return {
        "task": task,
        "output_type": "generate_until",
        "num_fewshot": 0,
        "repeats": max(row.sample for row in cell.rows) + 1,
        "metric_list": [
            {"metric": name, "aggregation": "mean", "higher_is_better": True} for name in shared_metrics(cell.rows)
        ],
        "metadata": {"version": _VERSION, "mode": run.mode, "settings": dict(run.settings)},
    }


def _counts(cell: Cell) -> dict[str, int]:
    return {"original": cell.questions, "effective": len({row.question for row in cell.rows})}
