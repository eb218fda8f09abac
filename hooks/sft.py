"""LOSS=sft: the replies that a row gives, in place of those that an engine would sample.

The configured agent runs on them by the one loop, so its prompts are those of rollouts, and every turn becomes a row
of the converter's. A row gives ``metadata["replies"]``, a list of texts, one for each turn; or, for an agent of one
turn, its task knows a ``solution`` of it. AGENT=memagent on a document of two sections::

    {"replies": ["Anna has the key.", "Anna has the key; it is red.", "\\boxed{red}"]}
    MEMORY prompt 0 -> reply 0, end | MEMORY prompt 1, which shows reply 0 -> reply 1, end | FINAL -> reply 2, end

Replies are text: a control token spelled in one is taught letter by letter, as in documents.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..agents.records import FailureKind, Generation, StopReason, Trajectory, TurnFailed, TurnKind, TurnRequest
from ..agents.vocabulary import Vocabulary
from ..config import Config, ConfigError
from .task_row import reply_form, row_of, task_of


async def run(
    loop: Callable[[Any], Awaitable[Trajectory]], vocabulary: Vocabulary, config: Config, sample: Any
) -> Trajectory:
    """The trajectory of ``rollout.run_trajectory``, which takes a sampler, with the replies of the row.

    Raises:
        TurnFailed: the row gives no reply, too few or too many, or one that a rollout has no room for.
        ConfigError: the tokenizer has no end of a turn.
    """
    end = vocabulary.turn_end_id
    if end is None:
        raise ConfigError(f"HF_CKPT={config.hf_ckpt!r}: its tokenizer_config.json has no eos_token")
    replies = _replies(config, sample)

    def wrong_number(turns: str) -> TurnFailed:
        return TurnFailed(FailureKind.NO_REPLY, f"metadata.replies has {len(replies)} replies, AGENT={config.agent} "
                          f"has {turns}; give one for each turn")

    async def reply(requests: Sequence[TurnRequest], number: int) -> list[Generation]:
        if number + len(requests) > len(replies):
            raise wrong_number("more turns")
        given = []
        for request, text in zip(requests, replies[number : number + len(requests)], strict=True):
            ids = [*vocabulary.encode_text(text), end]
            _check_room(config, request, len(ids))
            given.append(Generation(ids, [0.0] * len(ids), StopReason.STOP))
        return given

    trajectory = await loop(reply)
    if trajectory.failure is None and len(trajectory.turns) != len(replies):
        raise wrong_number(f"{len(trajectory.turns)} turns")
    return trajectory


def _replies(config: Config, sample: Any) -> list[str]:
    replies = (sample.metadata or {}).get("replies")
    if replies is None:
        solution = task_of(config, sample).solution(row_of(sample)).removeprefix(reply_form(sample)[0])
        replies = [solution] if solution else []
    if not replies or not isinstance(replies, list) or not all(isinstance(reply, str) for reply in replies):
        raise TurnFailed(FailureKind.NO_REPLY, "metadata.replies must be a list of texts, one for each turn")
    return replies


def _check_room(config: Config, request: TurnRequest, reply: int) -> None:
    """That a rollout could have sampled it: what a model is taught must be what it may do."""
    most, tokens, limit = request.max_new_tokens, len(request.prompt_ids) + reply, config.engine_max_len
    if reply > most:
        setting = "MEM_MAX_FINAL" if request.kind is TurnKind.FINAL else "MEM_MAX_MEMORY"
        raise TurnFailed(FailureKind.LONG_REPLY, f"a given reply has {reply} tokens, {setting} allows {most}")
    if limit and tokens > limit:
        raise TurnFailed(FailureKind.LONG_PROMPT, f"prompt and reply have {tokens} tokens, ENGINE_MAX_LEN={limit}")
