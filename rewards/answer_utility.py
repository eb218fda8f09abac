r"""``REWARD=answer_utility``: a ranking is worth what a frozen chat model's answers gain by it.

A valid ranking earns ``alpha * R_ans`` (``marginal_utility.py``) and, while the reward warms up, ``beta * NDCG``::

    rollouts         0 .. warmup - 1    from warmup on, over anneal rollouts    then
    answer_utility   not asked          alpha * R_ans                           alpha * R_ans
    ranking          beta * NDCG        beta falls in equal steps to 0          nothing; anneal=0: beta stays

A reply that is no valid ranking earns ``-(alpha + below)``, always: R_ans is at least -1 and NDCG at least 0, so the
worst valid ranking is worth more, and breaking the form never pays. (Released: 0, which is more than a valid ranking
that harms; arXiv 2603.03379's formula is kept, its alpha, beta and steps are not published.)

What the chat model is shown is what inference shows it: the first k sessions of the ranking, packed to a budget, in
the order of time (``sessions/``). So a request depends on the set of sessions alone: siblings share the answers to no
session at all and to every set that they have in common, also those on their way, and whoever comes first changes no
reward. Requests have seeds of their own by row and set.

State: the number of rollouts that were scored, from which alpha and beta follow. Siblings are asked about alike, as
the first of them was; a group that began in the warm-up keeps its beta, wherever a host samples ahead.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import ClassVar

from ..sessions.answer import answer_of
from ..sessions.packing import pack
from ..sessions.ranking import BadRanking, strict_ranking
from ..sessions.records import Session
from ..sessions.render import render_history
from ..sessions.wording import Wording
from ..system.errors import ConfigError
from ..system.files import write_atomically
from ..system.gather import gather_or_cancel
from .judge import judge_prompt
from .marginal_utility import marginal_utility, read_tiers, tiers_for
from .memo import Memo
from .option_choice import choice_score
from .ranked_row import RankedRow, read_history, read_row
from .reward import Answered, Parts, Reward
from .text_f1 import answer_em, answer_f1

MOST = 1e6
"""Of every weight: rewards, their sums and squares stay numbers in float32."""
SCORERS = ("f1", "em", "judge")
_GROUPS = 4096
"""Groups whose way of being scored is remembered: those of many rollouts."""
_HISTORIES = 64
"""Histories kept in memory: a group's is read once."""


@dataclass(frozen=True)
class AnswerUtilitySettings:
    tiers: str = "1,2,3,5,8,10"
    alpha: float = 1.0
    """Weight of R_ans; 0: nobody is ever asked."""
    beta: float = 0.0
    """Weight of NDCG (of what the task says a ranking is worth) in the warm-up."""
    warmup: int = 0
    """Rollouts on NDCG alone, in which nobody is asked."""
    anneal: int = 0
    """Rollouts after the warm-up over which beta falls to 0; 0: it stays."""
    below: float = 1.0
    """How far a reply that is no valid ranking lies below the worst one that is."""
    scorer: str = "f1"
    """What an answer is scored by: f1, em or judge. Where there are options, the choice counts alone."""
    judge_url: str = ""
    """scorer=judge: the judge's address; empty: the frozen chat model's."""
    judge_model: str = ""
    """scorer=judge: its name there; empty: the frozen chat model's."""
    kept: int = 65536
    """Scores kept in memory, those used last."""

    def __post_init__(self) -> None:
        try:
            read_tiers(self.tiers)
        except ValueError as error:
            raise ConfigError(f"REWARD_ARGS: tiers={error}") from None
        if self.scorer not in SCORERS:
            raise ConfigError(f"REWARD_ARGS: scorer={self.scorer!r}: allowed: {', '.join(SCORERS)}")
        for name in ("alpha", "beta", "warmup", "anneal"):
            if not 0 <= getattr(self, name) <= MOST:
                raise ConfigError(f"REWARD_ARGS: {name}={getattr(self, name)}: allowed: a number from 0 to {MOST:g}")
        if not 0 < self.below <= MOST:
            raise ConfigError(f"REWARD_ARGS: below={self.below}: allowed: a number above 0, at most {MOST:g}")
        if self.kept < 1:
            raise ConfigError(f"REWARD_ARGS: kept={self.kept}: allowed: a whole number from 1 on")
        if self.alpha == 0 and self.beta == 0:
            raise ConfigError("REWARD_ARGS: alpha=0 beta=0: no ranking is worth anything; set one of them")
        if self.warmup and not self.beta:
            raise ConfigError(f"REWARD_ARGS: warmup={self.warmup} beta=0: nothing is learned in the warm-up; set beta")
        if (self.judge_url or self.judge_model) and self.scorer != "judge":
            raise ConfigError("REWARD_ARGS: judge_url and judge_model are read with scorer=judge alone")


@dataclass(frozen=True)
class Frozen:
    """The chat model that answers, and what it is shown; made by ``hooks/answer_utility.py``."""

    ask: Callable[[str, int], Awaitable[str]]
    """A user message and a seed to a reply."""
    judge: Callable[[str, int], Awaitable[float]]
    """As that, to the score in the reply."""
    document: Callable[[str], Awaitable[str]]
    """A history's document by its id."""
    wording: Wording
    budget: int
    """Tokens of the sessions that are shown."""
    seed_for: Callable[[object], int]
    """A sampling seed from the run's and a request's name."""


class AnswerUtility(Reward):
    Settings: ClassVar[type] = AnswerUtilitySettings
    reads_state = True

    def __init__(self, settings: AnswerUtilitySettings, frozen: Frozen | None = None) -> None:
        """``frozen`` may be absent where settings are only checked, and where alpha is 0."""
        super().__init__(settings)
        self._tiers = read_tiers(settings.tiers)
        self._frozen = frozen
        self._rollouts = 0
        self._asked: OrderedDict[Hashable, bool] = OrderedDict()
        self._scores: Memo[float] = Memo(settings.kept)
        self._histories: Memo[tuple[Session, ...]] = Memo(_HISTORIES)
        self._window = _Window(self._scores)
        self._told: Mapping[str, float] = {}

    def begin(self) -> None:
        self._asked.clear()  # a group that was broken off is sampled again from its beginning

    async def parts(self, answer: Answered) -> Parts:
        """Raises BadRow, and whatever the chat model's ``ask`` raises: a score that is missing is no score."""
        row = read_row(answer.metadata)
        try:
            ranking = strict_ranking(answer.reply, row.shown)
        except BadRanking:
            return {"format": -(self.settings.alpha + self.settings.below)}
        if not self._asks(answer.group):
            return {}
        scores = await self._scored(row, ranking)
        utility = marginal_utility(scores)
        self._window.saw(scores, utility)
        return {"answer_utility": self.settings.alpha * utility}

    def batch_parts(self, batch: Sequence[Answered]) -> Sequence[Parts]:
        parts = self.expected_parts(batch)
        weights = {"answers/alpha": self.alpha, "answers/beta": self.beta}
        self._told, self._window = {**self._window.metrics(self._scores), **weights}, _Window(self._scores)
        self._rollouts += 1  # only now: all of a rollout is weighed alike
        return parts

    def expected_parts(self, answers: Sequence[Answered]) -> Sequence[Parts]:
        return [self._for_ranking(answer) for answer in answers]

    def _for_ranking(self, answer: Answered) -> Parts:
        asked = "answer_utility" in answer.parts
        beta = self.beta if asked else self.settings.beta
        return {"ranking": beta * answer.accuracy} if beta and "format" not in answer.parts else {}

    @property
    def alpha(self) -> float:
        """Weight of R_ans in the coming rollout."""
        return self.settings.alpha if self._rollouts >= self.settings.warmup else 0.0

    @property
    def beta(self) -> float:
        """Weight of NDCG in the coming rollout, where R_ans counts as well or nothing else ever does."""
        s: AnswerUtilitySettings = self.settings
        past = max(0, self._rollouts - s.warmup)
        return s.beta * max(0.0, 1.0 - past / s.anneal) if s.anneal else s.beta

    def _asks(self, group: Hashable) -> bool:
        """Whether the chat model is asked about answers of ``group``."""
        if group is None:
            return self.alpha > 0
        asks = self._asked.setdefault(group, self.alpha > 0)
        self._asked.move_to_end(group)
        if len(self._asked) > _GROUPS:
            self._asked.popitem(last=False)
        return asks

    def metrics(self) -> Mapping[str, float]:
        return self._told

    def save(self, folder: Path) -> None:
        write_atomically(folder / "rollouts.json", str(self._rollouts).encode())

    def load(self, folder: Path) -> None:
        file = folder / "rollouts.json"
        try:
            rollouts = int(file.read_text())
            if rollouts < 0:
                raise ValueError
        except (OSError, ValueError):
            problem = "damaged" if file.exists() else "not there"
            raise ConfigError(f"{file}: is {problem}; write the number of rollouts that were scored, or go back to a "
                              "checkpoint whose reward_state is whole") from None
        self._rollouts = rollouts

    # --- scores -----------------------------------------------------------------------------------------------------

    async def _scored(self, row: RankedRow, ranking: Sequence[int]) -> dict[int, float]:
        """The score s_k of every tier k, and of 0: no session at all."""
        assert self._frozen is not None, "made without a chat model"
        tiers = (0, *tiers_for(len(ranking), self._tiers))
        shown = [pack(ranking[:tier], row.session_tokens, self._frozen.budget).shown for tier in tiers]
        scores = await gather_or_cancel(*(self._score(self._frozen, row, positions) for positions in shown))
        return dict(zip(tiers, scores, strict=True))

    async def _score(self, frozen: Frozen, row: RankedRow, shown: tuple[int, ...]) -> float:
        asked = (row.history_id, row.question, row.date, row.language, row.options, row.answers)
        key = hashlib.blake2b(repr((asked, shown)).encode(), digest_size=16).hexdigest()
        return await self._scores.get(key, lambda: self._made(frozen, row, shown, frozen.seed_for(key)))

    async def _made(self, frozen: Frozen, row: RankedRow, shown: tuple[int, ...], seed: int) -> float:
        history = render_history([(await self._history(frozen, row))[position] for position in shown])
        prompt = frozen.wording.chat_prompt(row.question, history, row.language, row.date, row.options)
        reply = await frozen.ask(prompt, seed)
        answer = answer_of(reply)
        if (chosen := choice_score(answer, row.answers, row.options)) is not None:
            return chosen  # whatever the scorer: wrong options share words with the right one
        match self.settings.scorer:
            case "f1":
                return answer_f1(answer, row.answers)
            case "em":
                return answer_em(answer, row.answers)
        if not answer:
            return 0.0
        return await frozen.judge(judge_prompt(row.question, row.answers, answer, row.language), seed)

    async def _history(self, frozen: Frozen, row: RankedRow) -> tuple[Session, ...]:
        async def read() -> tuple[Session, ...]:
            return await asyncio.to_thread(read_history, await frozen.document(row.history_id), row.shown)

        return await self._histories.get(row.history_id, read)


class _Window:
    """What one rollout's answers were worth, and the requests that it took."""

    def __init__(self, scores: Memo[float]) -> None:
        self._made, self._shared = scores.made, scores.shared
        self._utilities: list[float] = []
        self._by_tier: defaultdict[int, list[float]] = defaultdict(list)

    def saw(self, scores: Mapping[int, float], utility: float) -> None:
        self._utilities.append(utility)
        for tier, score in scores.items():
            self._by_tier[tier].append(score)

    def metrics(self, scores: Memo[float]) -> dict[str, float]:
        told = {"asked": scores.made - self._made, "shared": scores.shared - self._shared}
        means = {"utility": fmean(self._utilities)} if self._utilities else {}
        means |= {f"score@{tier}": fmean(values) for tier, values in sorted(self._by_tier.items())}
        return {f"answers/{name}": value for name, value in {**told, **means}.items()}
