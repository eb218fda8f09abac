"""What a run says: one JSON line per rollout in ``<save>/metrics.jsonl``, one readable line on the terminal."""

from __future__ import annotations

from pathlib import Path

import orjson

from ..system.files import append_whole, write_atomically


class RunLog:
    """Appends to ``metrics.jsonl``; lines of rollouts that a resumed run does again are removed first."""

    def __init__(self, save_path: str | Path, first_rollout: int) -> None:
        self.path = Path(save_path) / "metrics.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            kept = [line for line in self.path.read_bytes().splitlines() if _rollout(line) < first_rollout]
            write_atomically(self.path, b"".join(line + b"\n" for line in kept))

    def write(self, rollout: int, metrics: dict[str, float]) -> None:
        with self.path.open("ab", buffering=0) as file:
            append_whole(file, orjson.dumps({"rollout": rollout} | metrics | {"rollout": rollout}) + b"\n")


def read_metrics(save_path: str | Path) -> list[dict[str, float]]:
    """All lines of a run's ``metrics.jsonl``, in order."""
    return [orjson.loads(line) for line in (Path(save_path) / "metrics.jsonl").read_bytes().splitlines()]


def _rollout(line: bytes) -> float:
    try:
        return float(orjson.loads(line)["rollout"])
    except (ValueError, LookupError, TypeError):  # half a line of a killed run
        return float("inf")


_SHOWN = (
    ("reward", "reward {:.3f}"),
    ("accuracy", "accuracy {:.3f}"),
    ("mixed_groups", "mixed groups {:.0%}"),
    ("turns", "turns {:.1f}"),
    ("memory_tokens", "memory {:.1f}"),
    ("loss", "loss {:+.5f}"),
    ("kl", "kl {:.4f}"),
    ("grad_norm", "grad {:.3f}"),
    ("rollout_log_prob_gap", "engine/trainer gap {:.1e}"),
)
_SECONDS = ("rollout", "log_probs", "update", "sync", "evaluation")


def progress_line(rollout: int, last: int, metrics: dict[str, float]) -> str:
    """One line for people; what is absent is left out, or was no number (a journal's null), and an accuracy that the
    reward says already."""
    m = metrics
    said = {"accuracy"} if m.get("accuracy") == m.get("reward") else set()
    parts = [f"rollout {rollout + 1}/{last}"]
    parts += [text.format(m[name]) for name, text in _SHOWN if m.get(name) is not None and name not in said]
    took = [(name.replace("_", "-"), m.get(f"seconds/{name}")) for name in _SECONDS]
    seconds = ", ".join(f"{name} {value:.1f}" for name, value in took if value is not None)
    parts.append(f"{m['seconds']:.1f} s ({seconds})")
    if m.get("failed") and m.get("trajectories"):
        parts.append(f"FAILED {m['failed']:.0f} of {m['trajectories']:.0f}")
    return " | ".join(parts)
