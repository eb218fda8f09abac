"""What a run says: one JSON line per rollout in ``<save>/metrics.jsonl``, one readable line on the terminal."""

from __future__ import annotations

from pathlib import Path

import orjson

from ..system.atomic_file import write_atomically


class RunLog:
    """Appends to ``metrics.jsonl``; lines of rollouts that a resumed run does again are removed first."""

    def __init__(self, save_path: str | Path, first_rollout: int) -> None:
        self.path = Path(save_path) / "metrics.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            kept = [line for line in self.path.read_bytes().splitlines() if _rollout(line) < first_rollout]
            write_atomically(self.path, b"".join(line + b"\n" for line in kept))

    def write(self, rollout: int, metrics: dict[str, float]) -> None:
        with self.path.open("ab") as file:
            file.write(orjson.dumps({"rollout": rollout, **metrics}) + b"\n")


def read_metrics(save_path: str | Path) -> list[dict[str, float]]:
    """All lines of a run's ``metrics.jsonl``, in order."""
    return [orjson.loads(line) for line in (Path(save_path) / "metrics.jsonl").read_bytes().splitlines()]


def _rollout(line: bytes) -> float:
    try:
        return orjson.loads(line)["rollout"]
    except (orjson.JSONDecodeError, KeyError):
        return float("inf")  # half a line of a killed run


def progress_line(rollout: int, last: int, metrics: dict[str, float]) -> str:
    """One line for people."""
    m = metrics
    parts = [
        f"rollout {rollout + 1}/{last}",
        f"reward {m.get('reward', float('nan')):.3f}",
        f"mixed groups {m.get('mixed_groups', 0):.0%}",
        f"turns {m.get('turns', 0):.1f}",
        f"memory {m.get('memory_tokens', 0):.1f}",
        f"loss {m['loss']:+.5f}",
        f"kl {m.get('kl', 0):.4f}",
        f"grad {m['grad_norm']:.3f}",
        f"engine/trainer gap {m.get('rollout_log_prob_gap', 0):.1e}",
        f"{m['seconds']:.1f} s (rollout {m['seconds/rollout']:.1f}, log-probs {m['seconds/log_probs']:.1f}, "
        f"update {m['seconds/update']:.1f}, sync {m['seconds/sync']:.1f})",
    ]
    if m.get("accuracy", m.get("reward")) != m.get("reward"):
        parts.insert(2, f"accuracy {m['accuracy']:.3f}")
    if m.get("failed"):
        parts.append(f"FAILED {m['failed']:.0f} of {m['trajectories']:.0f}")
    return " | ".join(parts)
