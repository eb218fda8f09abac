"""All targets by name."""

from __future__ import annotations

from mem_agent.tests.fuzz import (
    of_checkpoints,
    of_documents,
    of_encoders,
    of_kept,
    of_models,
    of_raw,
    of_replies,
    of_rows,
    of_settings,
    of_stages,
)
from mem_agent.tests.fuzz.target import Target

_ALL = (
    *of_replies.TARGETS, *of_rows.TARGETS, *of_kept.TARGETS, *of_documents.TARGETS, *of_settings.TARGETS,
    *of_models.TARGETS, *of_encoders.TARGETS, *of_checkpoints.TARGETS, *of_raw.TARGETS, *of_stages.TARGETS,
)
TARGETS: dict[str, Target] = {target.name: target for target in _ALL}
assert len(TARGETS) == len(_ALL), "two targets share a name"
