r"""``REWARD=answer_utility``: a ranking is worth what a frozen chat model's answers gain by it (MemSifter).

The chat model answers from the first k sessions of a ranking, for every k of a few tiers and for none. With scores s_k
in [0, 1], and tiers k_1 < ... < k_N (arXiv 2603.03379, equations 4 and 5),

    R_ans = sum_n D_n (s_{k_n} - s_{k_{n-1}}),  D_n = 1 / log2(k_n + 1),  k_0 = 0
          = -s_0 + sum_n w_n s_{k_n},           w_n = D_n - D_{n+1},  w_N = D_N

so sessions that help early count most. The weights sum to 1 where k_1 = 1, so R_ans is in [-1, 1], and is 0 where
sessions change nothing::

    tier       1       2       3       5       8       10
    weight     0.3691  0.1309  0.1131  0.0714  0.0264  0.2891

    answered from the first session on      1.0        gold at rank 2        0.6309
    by the first session alone              0.3691     gold at rank 10       0.2891
    right without any, wrong with them     -1.0        all alike             0.0

Their figure has 0.0528 at tier 8, with the next Fibonacci number in place of equation 5's last weight; their released
``task_reward_score.py`` omits the first tier, so sessions that change nothing are worth -0.3691 there.

A valid ranking earns ``alpha * R_ans`` and, while the reward warms up, ``beta * NDCG``::

    rollouts         0 .. warmup - 1    from warmup on, over anneal rollouts    then
    answer_utility   not asked          alpha * R_ans                           alpha * R_ans
    ranking          beta * NDCG        beta falls in equal steps to 0          nothing; anneal=0: beta stays

A reply that is no valid ranking earns ``-(alpha + 1)``, always: R_ans is at least -1 and NDCG at least 0, so the
worst valid ranking is worth more, and breaking the form never pays. (Released: 0, which is more than a valid ranking
that harms; alpha, beta and steps are not published.)

What the chat model is shown is what inference shows it: the first k sessions of the ranking, packed to a budget, in
the order of time (``sessions.py``). So a request depends only on the set of sessions. Siblings share the answer to
each set that they have in common, the empty one included, even while it is being computed; their order changes no
reward. Requests have seeds of their own by row and set.

State: the number of rollouts that were scored, from which alpha and beta follow.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import Field

from ..system.concurrency import gather_or_cancel
from .ranking import RankedRow, read_history, read_row
from .reward import Answered, Parts, Reward, RewardSettings
from .sessions import BadRanking, Session, Wording, after_thinking, answer_of, pack, render_history, strict_ranking
from .text_f1 import answer_f1, choice_score

Weight = Annotated[float, Field(ge=0, le=1e6)]


@dataclass(frozen=True)
class AnswerUtilitySettings(RewardSettings):
    model: str = ""
    """The chat model's name at ANSWER_URL."""
    tiers: str = "1,2,3,5,8,10"
    alpha: Weight = 1.0
    """Weight of R_ans; 0: the chat model is never asked."""
    beta: Weight = 0.0
    """Weight of NDCG (of what the task says a ranking is worth) in the warm-up."""
    warmup: Annotated[int, Field(ge=0)] = 0
    """Rollouts on NDCG alone, in which the chat model is not asked."""
    anneal: Annotated[int, Field(ge=0)] = 0
    """Rollouts after the warm-up over which beta falls to 0; 0: it stays."""
    scorer: Literal["f1", "judge"] = "f1"
    """What an answer is scored by: words, or the frozen chat model. Where there are options, only the choice counts.
    """
    max_tokens: Annotated[int, Field(ge=1)] = 1024
    """Tokens of the chat model's reply."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    budget: Annotated[int, Field(ge=1)] = 8192
    """Tokens of the sessions that it is shown."""
    concurrency: Annotated[int, Field(ge=1)] = 32
    prompts: str = ""
    """A YAML file with other prompts (``rewards/wording.yaml``)."""

    def __post_init__(self) -> None:
        tiers = read_tiers(self.tiers)
        if tiers[0] != 1 or any(later <= earlier for earlier, later in pairwise(tiers)):
            raise ValueError(f"tiers={self.tiers}: expected numbers that rise from 1, so that their weights sum to 1")


@dataclass(frozen=True)
class Frozen:
    """The chat model that answers, and what it is shown; made by ``hooks/rewards.py``."""

    ask: Callable[[str, int], Awaitable[str]]
    """A user message and a seed to a reply."""
    judge: Callable[[str, int], Awaitable[float]]
    """The same, to the score in the reply."""
    document: Callable[[str], Awaitable[str]]
    """A history's document by its id."""
    wording: Wording
    seed_for: Callable[[object], int]
    """A sampling seed from the run's and a request's name."""


class AnswerUtility(Reward):
    Settings: ClassVar[type] = AnswerUtilitySettings

    def __init__(self, settings: AnswerUtilitySettings, frozen: Frozen | None = None) -> None:
        """``frozen`` may be absent where settings are only checked, and where alpha is 0."""
        super().__init__(settings)
        self._frozen: Any = frozen
        self._rollouts = 0
        self._scores: dict[str, asyncio.Future[float]] = {}
        """Of the rollout that is being scored, by request; some may still be computed."""
        self._shared = 0
        self._seen: defaultdict[str, list[float]] = defaultdict(list)
        """Of the same rollout: utilities, and scores by tier."""
        self._logged: Mapping[str, float] = {}

    async def parts(self, answer: Answered) -> Parts:
        """Raises BadRow, and whatever the chat model's ``ask`` raises: a score that is missing is no score."""
        row = read_row(answer.metadata)
        try:
            ranking = strict_ranking(answer.reply, row.shown)
        except BadRanking:
            return {"format": -(self.settings.alpha + 1.0)}  # 1 below the worst valid one
        alpha, beta = self._current()
        parts = {"ranking": beta * answer.accuracy} if beta else {}
        if alpha:
            scores = await self._scored(row, ranking)
            utility = marginal_utility(scores)
            self._seen["utility"].append(utility)
            for tier, score in scores.items():
                self._seen[f"score@{tier}"].append(score)
            parts["answer_utility"] = alpha * utility
        return parts

    def batch_parts(self, batch: Sequence[Answered]) -> Sequence[Parts]:
        alpha, beta = self._current()
        asked = {"asked": len(self._scores), "shared": self._shared, "alpha": alpha, "beta": beta}
        shown = asked | {name: fmean(values) for name, values in self._seen.items()}
        self._logged = {f"answers/{name}": value for name, value in shown.items()}
        self._scores.clear()
        self._seen.clear()
        self._shared = 0
        self._rollouts += 1
        return [{}] * len(batch)

    def _current(self) -> tuple[float, float]:
        s: AnswerUtilitySettings = self.settings
        past = self._rollouts - s.warmup
        beta = s.beta * max(0.0, 1.0 - max(0, past) / s.anneal) if s.anneal else s.beta
        return (s.alpha if past >= 0 else 0.0), beta

    def metrics(self) -> Mapping[str, float]:
        return self._logged

    def save(self, folder: Path) -> None:
        (folder / "rollouts.json").write_text(json.dumps(self._rollouts))

    def load(self, folder: Path) -> None:
        self._rollouts = json.loads((folder / "rollouts.json").read_text())

    # --- scores -----------------------------------------------------------------------------------------------------

    async def _scored(self, row: RankedRow, ranking: Sequence[int]) -> dict[int, float]:
        """The score s_k of every tier k, and of 0: no session at all."""
        document = await self._frozen.document(row.history_id)
        sessions = await asyncio.to_thread(read_history, document)
        tiers = (0, *tiers_for(len(ranking), read_tiers(self.settings.tiers)))
        shown = [pack(ranking[:tier], row.session_tokens, self.settings.budget).shown for tier in tiers]
        scores = await gather_or_cancel(*(self._score(row, sessions, places) for places in shown))
        return dict(zip(tiers, scores, strict=True))

    async def _score(self, row: RankedRow, sessions: Sequence[Session], shown: tuple[int, ...]) -> float:
        """The score of a request, made unless it is there or on its way; one that failed is made again."""
        frozen = self._frozen
        asked = (row.history_id, row.question, row.question_date, row.language, row.options, row.answers)
        key = hashlib.blake2b(repr((asked, shown)).encode(), digest_size=16).hexdigest()
        seed = frozen.seed_for(key)

        async def made() -> float:
            history = render_history([sessions[position] for position in shown])
            prompt = frozen.wording.chat_prompt(row.question, history, row.language, row.question_date, row.options)
            answer = answer_of(await frozen.ask(prompt, seed))
            if (chosen := choice_score(answer, row.answers, row.options)) is not None:
                return chosen  # whatever the scorer: wrong options share words with the right one
            if self.settings.scorer == "f1":
                return answer_f1(answer, row.answers)
            return await frozen.judge(judge_prompt(row, answer), seed) if answer else 0.0

        known = self._scores.get(key)
        if known is None or (known.done() and (known.cancelled() or known.exception())):
            known = self._scores[key] = asyncio.ensure_future(made())
        else:
            self._shared += 1
        return await asyncio.shield(known)


# --- what a ranking gains -------------------------------------------------------------------------------------------


def read_tiers(text: str) -> tuple[int, ...]:
    """Tiers as settings write them, ``1,2,3,5,8,10``."""
    return tuple(map(int, text.split(",")))


def tiers_for(ranked: int, tiers: Sequence[int]) -> tuple[int, ...]:
    """The tiers of a ranking of ``ranked`` sessions: those beyond it fall together at its end. Of 6 sessions: 1, 2, 3,
    5, 6."""
    return tuple(sorted({min(tier, ranked) for tier in tiers}))


def tier_weights(tiers: Sequence[int]) -> tuple[float, ...]:
    """w_n of each tier, [tiers]; they sum to 1 where the first is 1."""
    discounts = [1.0 / math.log2(tier + 1) for tier in tiers]
    return tuple(here - after for here, after in zip(discounts, [*discounts[1:], 0.0], strict=True))


def marginal_utility(scores: Mapping[int, float]) -> float:
    """R_ans of the score s_k for every tier k; ``scores[0]`` is that without any session."""
    tiers = sorted(tier for tier in scores if tier > 0)
    # The differences are summed, not -s_0 plus the weighted scores: equal scores then give 0 to the last bit.
    return math.fsum(
        weight * (scores[tier] - scores[0]) for tier, weight in zip(tiers, tier_weights(tiers), strict=True))


# --- a judge --------------------------------------------------------------------------------------------------------

_JUDGED = re.compile(r'"score"\s*:\s*(0(?:\.\d+)?|1(?:\.0+)?)\s*[,}]')
_JUDGE: dict[str, str] = yaml.safe_load(Path(__file__).with_name("judge.yaml").read_text(encoding="utf-8"))


def judge_prompt(row: RankedRow, answer: str) -> str:
    """The user message to a judge; texts stand in it as JSON strings, so that none of them ends its line."""
    slots = {"question": row.question, "golds": list(row.answers), "answer": answer}
    texts = {name: json.dumps(slot, ensure_ascii=False) for name, slot in slots.items()}
    return _JUDGE[row.language.value].format(**texts)


def judged_score(reply: str) -> float | None:
    """The score from 0 to 1 in a judge's reply, ``{"score": 0.8, "reason": "..."}``; None where it gives none."""
    found = _JUDGED.search(after_thinking(reply) or "")
    return float(found[1]) if found else None
