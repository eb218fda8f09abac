"""Stage 2's work: a history's sessions shown to a ranker through the pack's own client, and its reply read."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ... import rollout
from ...agents import longest_turn
from ...agents.records import Outcome
from ...agents.vocabulary import Vocabulary
from ...checkpoints.hf_model import load_vocabulary, model_positions
from ...config import Config, ConfigError
from ...evaluation.connect import back, connect
from ...evaluation.endpoint import EvalEndpoint
from ...hooks.host import embedded_args, evaluation_sampling
from ...hooks.sample import Record, Sample
from ...rollout_client import close_clients
from ...sessions.ranking import BadRanking, in_history, lenient_ranking, strict_ranking
from ...sessions.records import Language
from ...sessions.table import BadRow, question_of
from ...sessions.wording import load_wording
from ..blocks.asking_worker import AskingWorker
from ..blocks.worker import OK, Row
from ..stage_options import RankOptions
from .ranking_prompt import NoRoom, RankingPrompt, ranking_prompt
from .shown_sessions import session_tokens, similarities

ADDS = pa.schema([
    ("generated_text", pa.string()), ("prefiltered_session_idx", pa.list_(pa.int64())),
    ("haystack_session_gen_rankings", pa.list_(pa.int64())), ("ranking_error", pa.string()),
    ("rank_status", pa.string()),
])
STATUS = "rank_status"
KEYS = ("BASE_URL_KEY", "API_KEY", "OPENAI_API_KEY")
_NOTHING = {"generated_text": "", "prefiltered_session_idx": [], "haystack_session_gen_rankings": [],
            "ranking_error": ""}
_STEP = 64
"""What an engine's context is rounded up to."""


@dataclass(frozen=True, slots=True)
class RankPlan:
    """What a worker is made from; pickles, and has no key. ``config`` has been ``settled``."""

    config: Config
    options: RankOptions
    model: Path
    served: str = ""
    """The model's name at BASE_URL."""
    url: str = ""
    """Of engines that were started for this; empty: BASE_URL."""


def settled(config: Config, prompts: str, model: Path, length: int) -> Config:
    """The config of a single message and its reply within ``length`` tokens, or, where that is 0, within
    ENGINE_MAX_LEN or the model's positions: MEM_MAX_QUESTION as large as fits, and the engine's length for it.

    Raises ConfigError where no prompt fits beside a reply.
    """
    vocabulary = load_vocabulary(model, config.trust_remote_code)
    positions = model_positions(model)
    most = length or config.engine_max_len or positions
    around = longest_turn(config.replace(mem_max_question=1), vocabulary) - 1
    room = most - around if most else config.mem_max_question
    question = min(config.mem_max_question, room)
    wording = load_wording(prompts)
    # Of the shorter language: a wording may be for one alone, and a row of the other says that it has no room.
    least = min(_tokens(vocabulary, wording.ranking_prompt("", "", 1, language)) for language in Language)
    if question <= least:
        raise ConfigError(
            f"a prompt without a history has {least} tokens, and {most or config.mem_max_question} have room for "
            f"{max(0, question)} beside a reply of MEM_MAX_FINAL={config.mem_max_final}; lower that, or raise "
            "ENGINE_MAX_LEN or MEM_MAX_QUESTION"
        )
    needed = -(-(question + around) // _STEP) * _STEP
    return config.replace(mem_max_question=question, engine_max_len=min(needed, most) if most else needed)


def _tokens(vocabulary: Vocabulary, text: str) -> int:
    return len(vocabulary.encode_text(text.strip()))


class RankWorker(AskingWorker):
    status = STATUS

    def __init__(self, plan: RankPlan, *, stoppable: bool = True) -> None:
        super().__init__(stoppable=stoppable)
        self._plan = plan
        self._wording = load_wording(plan.options.prompts)
        self._vocabulary = load_vocabulary(plan.model, plan.config.trust_remote_code)
        self._connecting: asyncio.Task[EvalEndpoint] | None = None

    async def ask(self, row: Row) -> Row:
        """Raises EvalError where no server answers, or it went away and stayed away."""
        try:
            prompt, name = await asyncio.to_thread(self._prepared, row)
        except (BadRow, NoRoom) as error:
            return {**_NOTHING, STATUS: str(error)}
        shown = {**_NOTHING, "prefiltered_session_idx": list(prompt.shown)}
        endpoint = await self._endpoint()
        sample = Sample(prompt=[{"role": "user", "content": prompt.text}])
        args = embedded_args(self._plan.config, endpoint)
        sampling = evaluation_sampling(args.mem_agent, args.mem_agent.seed_for(f"{name}/rank"))
        sample = await rollout.generate(args, sample, sampling, evaluation=True)
        record = Record.of(sample)
        assert record is not None, "the pack's own hook writes it"
        if record.failure in ("connection", "server_error", "rate_limited"):
            await back(endpoint)
        if record.outcome in (Outcome.FAILED, Outcome.ABORTED):
            why = f"{record.failure}: {record.failure_message}" if record.failure else "aborted: the server ended it"
            return {**shown, STATUS: why}
        return {**shown, **self._read(sample.response, record, prompt.shown, endpoint), STATUS: OK}

    async def finish(self) -> None:
        await close_clients()

    def _prepared(self, row: Row) -> tuple[RankingPrompt, str]:
        asked = question_of(row, "stage 1")
        prompt = ranking_prompt(
            asked, similarities(row, asked), session_tokens(row, asked), limit=self._plan.config.mem_max_question,
            top_k=self._plan.options.rank_top_k, wording=self._wording,
            count=lambda text: _tokens(self._vocabulary, text),
        )
        return prompt, asked.id

    async def _endpoint(self) -> EvalEndpoint:
        if self._connecting is None:
            plan = self._plan
            self._connecting = asyncio.ensure_future(connect(plan.url, plan.model, plan.config, KEYS, plan.served))
        return await asyncio.shield(self._connecting)

    def _read(self, said: str, record: Record, shown: tuple[int, ...], endpoint: EvalEndpoint) -> Row:
        """``said`` is the reply without its thinking; no column keeps a key that the server repeats in it."""
        turn = record.turns[-1]
        error = ""
        try:
            strict_ranking(said, len(shown))
        except BadRanking as bad:
            cut = f"the reply was cut at {turn.response_length} tokens: " if turn.truncated else ""
            error = f"{cut}{bad}"
        named = in_history(lenient_ranking(said, len(shown)), shown)
        reply = self._vocabulary.reply_text(turn.tokens[turn.prompt_tokens:])
        return {"generated_text": endpoint.redacted(reply), "haystack_session_gen_rankings": list(named),
                "ranking_error": endpoint.redacted(error)}
