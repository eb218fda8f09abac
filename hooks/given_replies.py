"""LOSS=sft: the replies that a row gives, in place of those that an engine would sample.

The configured agent runs on them by the one loop, so its prompts are those of rollouts, and every turn becomes a row
of the converter's. A row gives ``metadata["replies"]``, a list of texts, one for each turn; or, for an agent of one
turn, its task knows a ``solution`` of it. AGENT=memagent on a document of two sections::

    {"replies": ["Anna has the key.", "Anna has the key; it is red.", "\\boxed{red}"]}
    MEMORY prompt 0 -> reply 0, end | MEMORY prompt 1, which shows reply 0 -> reply 1, end | FINAL -> reply 2, end

Replies are text: what spells a control token in them is taught letter by letter, as in documents.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ..agents.interface import Reading
from ..agents.loop import run_trajectory
from ..agents.records import FailureKind, Generation, StopReason, Trajectory, TurnFailed, TurnKind, TurnRequest
from ..config import Config, ConfigError
from ..system.errors import MemAgentError
from ..system.gather import gather_or_cancel
from .reader import Reader
from .record import Record
from .sample import lost
from .task_row import reply_form, row_of, task_of

REPLIES = "replies"
"""In a row's metadata."""


async def teach(samples: Sequence[Any], one: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """``one`` for each of a rollout's samples, side by side.

    Raises:
        MemAgentError: not one of them could be taught; the first one's reason.
    """
    await gather_or_cancel(*map(one, samples))
    if all(map(lost, samples)):
        first = Record.of(samples[0])
        assert first is not None, "of this pack's own generate"
        raise MemAgentError(f"all {len(samples)} rows of a rollout failed; the first: {first.failure_message}")


async def run_given(reader: Reader, reading: Reading, config: Config, sample: Any) -> Trajectory:
    """The trajectory whose turns were replied to as the row of ``sample`` says.

    Raises:
        TurnFailed: the row gives no reply, too few or too many, or one that a rollout has no room for.
        ConfigError: nobody says how a reply of this model ends.
    """
    end = reader.vocabulary.turn_end_id
    if end is None:
        raise ConfigError(f"HF_CKPT={config.hf_ckpt!r}: its tokenizer names no end of a turn, so that LOSS=sft cannot "
                          "teach it; set eos_token in tokenizer_config.json")
    given = _given(config, sample)

    async def reply(request: TurnRequest, number: int) -> Generation:
        ids = [*reader.vocabulary.encode_text(_of_turn(given, config, request, number)), end]
        _check_room(config, request, len(ids))
        return Generation(ids, [0.0] * len(ids), StopReason.STOP)

    trajectory = await run_trajectory(reader.agent, reading, reply)
    if trajectory.failure is None and len(trajectory.turns) != len(given):
        raise _wrong_number(given, config, f"asks for {len(trajectory.turns)}")
    return trajectory


def _given(config: Config, sample: Any) -> list[str]:
    replies = (sample.metadata or {}).get(REPLIES)
    if replies is None:
        solution = task_of(config, sample).solution(row_of(sample)).removeprefix(reply_form(sample)[0])
        replies = [solution] if solution else []
    if not isinstance(replies, list) or not all(isinstance(reply, str) for reply in replies):
        raise TurnFailed(FailureKind.NO_REPLY, f"metadata.{REPLIES}: expected a list of texts, one for each turn")
    if not replies:
        raise TurnFailed(
            FailureKind.NO_REPLY,
            f"LOSS=sft: the row has no metadata.{REPLIES}, and its task knows no solution of it",
        )
    return replies


def _of_turn(given: list[str], config: Config, request: TurnRequest, number: int) -> str:
    if number >= len(given):
        raise _wrong_number(given, config, f"asks for more: turn {number + 1} is {_turn_name(request)}")
    return given[number]


def _wrong_number(given: list[str], config: Config, asked: str) -> TurnFailed:
    return TurnFailed(
        FailureKind.NO_REPLY,
        f"the row gives {len(given)} replies, AGENT={config.agent} {asked}; metadata.{REPLIES} has one for each turn, "
        "and a task's solution is that of an agent of one",
    )


def _turn_name(request: TurnRequest) -> str:
    return "the final one" if request.kind is TurnKind.FINAL else "a memory turn"


def _check_room(config: Config, request: TurnRequest, reply: int) -> None:
    """That a rollout could have sampled it: what a model is taught must be what it may do."""
    if reply > request.max_new_tokens:
        setting = "MEM_MAX_FINAL" if request.kind is TurnKind.FINAL else "MEM_MAX_MEMORY"
        raise TurnFailed(
            FailureKind.LONG_REPLY,
            f"a given reply has {reply} tokens with its end, the turn has room for {request.max_new_tokens}; "
            f"raise {setting}",
        )
    limit = config.mem_max_prompt_tokens or config.engine_max_len
    if limit and len(request.prompt_ids) + reply > limit:
        raise TurnFailed(
            FailureKind.LONG_PROMPT,
            f"prompt of {len(request.prompt_ids)} tokens and reply of {reply} exceed the engine's {limit}; lower "
            "MEM_CHUNK_TOKENS, or raise ENGINE_MAX_LEN",
        )
