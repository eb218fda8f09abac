"""What rankings without a trained model reach on the sifter task's held-out questions, and trained ones beside them.

    python -m mem_agent.pocket.sifter_baselines [--runs runs/sifter-1 runs/sifter-2 ...]

``minilm`` and ``hashing`` order sessions by the cosine of session and question (what stage 1 embeds), ``bm25`` by the
question's words, the earlier session first where two are equal; ``newest`` shows the last session first. A run is told
by its results before and after training, ``SAVE_PATH/eval``. NDCG@1 of one gold session is whether it comes first.
Differences are of the same questions; intervals and p as in ``evaluation/statistics.py``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ..agents.recall import bm25, count_query, count_words
from ..evaluation.questions import EvalError
from ..evaluation.results import read_rows
from ..evaluation.statistics import Comparison, Estimate, compare, interval
from ..evaluation.summary import question_means
from ..hooks.intrinsic import encoder
from ..rewards.intrinsic.encoder import Encoder
from ..sessions.packing import by_score
from ..sessions.render import embedded_text
from ..system.markdown import markdown_cell
from ..system.one_line_errors import one_line_errors
from .prepare import EVAL_ROWS, EVAL_SEED
from .sifter import History, histories

METRIC = "ndcg@1"
MINILM = "all-MiniLM-L6-v2"

Order = Callable[[History], Sequence[int]]
"""A history's sessions, best first."""


def by_embedding(model: Encoder) -> Order:
    def order(history: History) -> Sequence[int]:
        question, *sessions = model.encode([history.question, *map(embedded_text, history.sessions)])
        return by_score([float(session @ question) for session in sessions])

    return order


def by_words(history: History) -> Sequence[int]:
    held, numbers = count_words(talk.text for talk in history.talks)
    return by_score([float(score) for score in bm25(held, count_query(history.question, numbers, held.vocabulary))])


def newest_first(history: History) -> Sequence[int]:
    return list(reversed(range(len(history.talks))))


def orders() -> Mapping[str, Order]:
    return {
        "minilm": by_embedding(encoder(MINILM)), "hashing": by_embedding(encoder("hashing")), "bm25": by_words,
        "newest": newest_first,
    }


def first_is_gold(order: Order, questions: Iterable[History]) -> dict[str, float]:
    """NDCG@1 of each question, by its number."""
    return {str(number): float(order(history)[0] == history.gold) for number, history in enumerate(questions)}


def of_run(folder: Path) -> dict[str, float]:
    """NDCG@1 of each question in a folder of results. Raises EvalError where there is none."""
    means = question_means(read_rows(folder, "sifter"), lambda row: row.scores.get(METRIC))
    if not any(str(number) in means for number in range(EVAL_ROWS)):
        raise EvalError(f"{folder}: no results of the held-out questions; evaluate again, or remove it")
    return means


def report(runs: Sequence[Path]) -> str:
    questions = list(histories(EVAL_SEED, EVAL_ROWS))
    measured = {name: first_is_gold(order, questions) for name, order in orders().items()}
    baselines = list(measured)
    for run in runs:
        folders = filter(Path.is_dir, (run / "eval").iterdir())  # beside which a file manager leaves files
        for folder in sorted(folders, reverse=True):  # before, after
            measured[f"{run.name} {folder.name}"] = of_run(folder)
    lines = ["| ranking | n | NDCG@1 | 95% interval | over minilm | 95% interval | p |"]
    lines.append("|---|--:|--:|---|--:|---|--:|")
    for name, values in measured.items():
        shown = interval(values.values(), full=1.0)
        over = "| | | |" if name in baselines else _over(compare(measured["minilm"], values))
        lines.append(f"| {markdown_cell(name)} | {shown.n} | {100 * shown.mean:.1f} | {_range(shown)} {over}")
    return "\n".join(lines)


def _over(found: Comparison) -> str:
    return f"| {100 * found.difference.mean:+.1f} | {_range(found.difference)} | {found.p:.4f} |"


def _range(shown: Estimate) -> str:
    return f"{100 * shown.low:.1f} to {100 * shown.high:.1f}"


@one_line_errors("nothing was written")
def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="NDCG@1 on the sifter task without training, and of runs.")
    parser.add_argument("--runs", nargs="*", type=Path, default=[])
    print(report(parser.parse_args(argv).runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
