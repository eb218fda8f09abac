"""Stage 2: ``mem-agent session-ranking``. A model ranks the sessions of each history that stage 1 finds similar.

    mem-agent session-ranking --model /models/ranker                                engines are started for it
    BASE_URL=https://HOST/v1 mem-agent session-ranking --model org/ranker            tokens are counted with --model

Reads ``OUTPUT_DIR/EMBEDDING_MODEL_NAME/{data set}_{split}_embed.parquet`` and writes
``OUTPUT_DIR/MODEL_NAME/{data set}_{split}_ranking.parquet``: its columns, and

    generated_text                 the whole reply
    prefiltered_session_idx        positions in the history that the prompt showed, ascending
    haystack_session_gen_rankings  positions in the history that the reply names, best first
    ranking_error                  why the reply is no valid ranking, or empty
    rank_status                    "ok", or why there is no reply; asked again by the same command

The model is asked as it was trained (AGENT=chat): one message of at most MEM_MAX_QUESTION tokens (131072, or what its
context leaves), a reply of MEM_MAX_FINAL (16384). A model that this pack converted brings its own.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import fmean

import pyarrow as pa

from ..agents import longest_turn
from ..agents.vocabulary import Vocabulary
from ..checkpoints.hf_model import load_vocabulary, local_folder, model_positions, model_settings
from ..config import Config, ConfigError
from ..evaluation.endpoint import frame_of
from ..evaluation.jobs import model_hash
from ..hooks.chat_model import ChatSettings, Reply
from ..rewards.ranking import ndcg_at, recall_at
from ..rollout_client import RETRIES, TIMEOUT_S
from ..sessions.packing import by_score, pack
from ..sessions.ranking import BadRanking, completed, in_history, lenient_ranking, strict_ranking
from ..sessions.records import HistoryQuestion, Language, question_of
from ..sessions.wording import Wording, load_wording, render_history, render_session
from ..system.command_line_types import whole_number
from ..system.errors import MemAgentError
from ..system.logging_setup import log_to_terminal
from ..system.one_line_errors import one_line_errors
from ..system.signals import stop_on_signals
from .endpoint import (
    NOWHERE,
    AskingWorker,
    Prompt,
    base_url,
    concurrency_of,
    failures_of,
    key,
    only_model,
    own_engines,
    served_at,
    wording_digest,
)
from .files import (
    EMBED,
    FINISHED_WITH_FAILURES,
    OK,
    RANKING,
    Row,
    add_option,
    parts,
    read_rows,
    stage_config,
    stage_parser,
)
from .orders import session_tokens, similarities
from .run_stage import StageRun, cluster_of

ADDS = pa.schema([
    ("generated_text", pa.string()), ("prefiltered_session_idx", pa.list_(pa.int64())),
    ("haystack_session_gen_rankings", pa.list_(pa.int64())), ("ranking_error", pa.string()),
    ("rank_status", pa.string()),
])
_DEFAULTS = {"MEM_MAX_QUESTION": 131072, "MEM_MAX_FINAL": 16384, "MEM_CONCURRENCY": 64}
"""As published: 128k of prompt, 16k of reply (MemSifter, ``ray_vllm_infer.py``)."""
_OF_THE_MODEL = ("MEM_MAX_QUESTION", "MEM_MAX_FINAL", "MEM_THINKING")
_SHARED = ("mem_max_question", "mem_max_final", "mem_thinking", "eval_temperature", "eval_top_p", "seed")
"""Settings that two runs have in common where their rows belong together."""
_STEP = 64
"""What an engine's context is rounded up to."""
_SCORES = {"recall@1": partial(recall_at, k=1), "recall@5": partial(recall_at, k=5),
           "recall@10": partial(recall_at, k=10), "NDCG@5": partial(ndcg_at, k=5)}


class NoRoom(MemAgentError):
    """Not one session fits; the message has the figures."""


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(argv)
    log_to_terminal(logging.ERROR)
    stop_on_signals()
    stage_config(_DEFAULTS)  # bad settings end it before a model is downloaded
    model = local_folder(given.model, "--model")
    called = given.model_name or model.resolve().name
    chosen = parts(given, EMBED, given.embedding_model_name)
    sources = [part.made(given.output_dir, EMBED, given.embedding_model_name) for part in chosen]
    cluster = cluster_of(given.ray, given.workers)
    config = stage_config(_DEFAULTS | _own_settings(model)).replace(
        hf_ckpt=str(model), agent="chat", agent_args="", task="qa", task_args="", eval_mode="recurrent",
    )
    url = base_url(config.base_url) if config.base_url else ""
    served, length = _served(url, given.served_model, called) if url else ("", 0)
    vocabulary = load_vocabulary(model, config.trust_remote_code)
    config = settled(config, vocabulary, load_wording(given.prompts), model_positions(model), length)
    settings = {
        "model": model_hash(model), "rank_top_k": given.rank_top_k, "wording": wording_digest(given.prompts),
        **{name: getattr(config, name) for name in _SHARED},
    }
    runs = [
        StageRun(source, part.file(given.output_dir, RANKING, called), ADDS, RankWorker.status, settings, str(part),
                 given.limit)
        for part, source in zip(chosen, sources, strict=True)
    ]
    folder = Path(given.output_dir, called)
    failed = 0
    with nullcontext(url) if url else own_engines(model, config.engine_max_len, folder, runs) as address:
        served = served or (only_model(address, "") if address != NOWHERE else "")
        template = str(vocabulary.tokenizer.chat_template)
        chat = ChatSettings(
            url=address, model=served, key=key() if url else "", timeout_s=TIMEOUT_S, retries=RETRIES,
            concurrency=concurrency_of(config.mem_concurrency, cluster.workers), temperature=config.eval_temperature,
            top_p=config.eval_top_p, max_output_tokens=config.mem_max_final,
            thinking=config.mem_thinking if "enable_thinking" in template else None,
        )
        for part, run in zip(chosen, runs, strict=True):
            make = partial(RankWorker, chat, config, model, given.rank_top_k, given.prompts)
            said = run.run(make, cluster, chat.concurrency, f"{part} {called}")
            failed += said.total() - said[OK]
            print(f"{part}: {summary(run.output)} -> {run.output}", flush=True)
            print("".join(f"{line}\n" for line in failures_of(said)), end="", file=sys.stderr)
    if failed:
        print(f"{failed} questions have no reply; run again to ask for them", file=sys.stderr)
    return FINISHED_WITH_FAILURES if failed else 0


class RankWorker(AskingWorker):
    adds = ADDS
    nothing = {"generated_text": "", "prefiltered_session_idx": [], "haystack_session_gen_rankings": [],
               "ranking_error": ""}
    status = "rank_status"

    def __init__(self, settings: ChatSettings, config: Config, model: Path, top_k: int = 0, prompts: str = "",
                 answered_before: bool = False) -> None:
        """``config`` is ``settled``; ``top_k`` 0 shows all sessions that fit."""
        super().__init__(settings, answered_before)
        self._config, self._top_k, self._wording = config, top_k, load_wording(prompts)
        self._vocabulary = load_vocabulary(model, config.trust_remote_code)
        self._opens_thinking = frame_of(self._vocabulary, config.mem_thinking).thinking_is_open
        added = self._vocabulary.tokenizer.added_tokens_decoder.values()
        control = [token.content for token in added if token.special]
        self._control = re.compile("|".join(map(re.escape, control)) or "(?!)")

    def prepare(self, row: Row) -> Prompt:
        asked = question_of(row, "stage 1")
        text, shown = ranking_prompt(
            asked, similarities(row, asked), session_tokens(row, asked), limit=self._config.mem_max_question,
            top_k=self._top_k, wording=self._wording, count=partial(_tokens, self._vocabulary),
        )
        # The server would read <|im_end|> in a session as the end of the message.
        text = self._control.sub(lambda token: f"{token[0][0]} {token[0][1:]}", text)
        return Prompt(text, self._config.seed_for(f"{asked.id}/rank"), {"prefiltered_session_idx": list(shown)}, shown)

    def read(self, reply: Reply, shown: tuple[int, ...]) -> Row:
        said = reply.text
        if self._opens_thinking and reply.cut and "</think>" not in said:
            said = f"<think>{said}"  # the template wrote it, and it never ended
        error = ""
        try:
            strict_ranking(said, len(shown))
        except BadRanking as bad:
            error = f"the reply was cut at {self._config.mem_max_final} tokens: {bad}" if reply.cut else str(bad)
        named = in_history(lenient_ranking(said, len(shown)), shown)
        return {"generated_text": reply.text, "haystack_session_gen_rankings": list(named), "ranking_error": error}


def ranking_prompt(
    asked: HistoryQuestion, similarities: Sequence[float | None], tokens: Sequence[int], *, limit: int, top_k: int,
    wording: Wording, count: Callable[[str], int],
) -> tuple[str, tuple[int, ...]]:
    """A prompt of at most ``limit`` tokens by ``count``, and the positions that it shows: session n is ``shown[n]``.

    The most similar sessions that fit, in the order of time; ``top_k`` 0 for any number. Stage 1 counted tokens with a
    tokenizer that need not be the ranker's, so the whole prompt is counted again. Where it is too long, so are the
    sessions that it shows, and less is shown until it fits::

        limit 100, prompt without history 20; sessions of 30, 25, 20 tokens by stage 1, most similar first
        budget 80 -> all three, and the prompt has 110; counted again they are 36, 30, 24 -> the first two, 86: it fits

    Raises NoRoom.
    """
    def text_of(shown: Sequence[int]) -> str:
        history = render_history([asked.sessions[position] for position in shown])
        return wording.ranking_prompt(asked.question, history, len(shown), asked.language, asked.date)

    order = by_score(similarities)[: top_k or None]
    sizes, counted = list(tokens), set[int]()
    budget = limit - count(text_of(()))
    while (packed := pack(order, sizes, budget)).shown:
        text = text_of(packed.shown)
        over = count(text) - limit
        if over <= 0:
            return text, packed.shown
        if unsure := set(packed.shown) - counted:
            counted |= unsure
            for position in unsure:
                sizes[position] = count(f"{render_session(asked.sessions[position], position)}\n")
        else:
            budget = packed.tokens - over
    raise NoRoom(f"no session fits: the smallest of {len(sizes)} has {min(sizes, default=0)} tokens, and a prompt of "
                 f"{limit} has room for {max(0, budget)}")


def settled(config: Config, vocabulary: Vocabulary, wording: Wording, positions: int, length: int) -> Config:
    """The config of a single message and its reply within ``length`` tokens, or, where that is 0, within
    ENGINE_MAX_LEN or the model's ``positions``: MEM_MAX_QUESTION as large as fits, and the engine's length for it.

    Raises ConfigError where no prompt fits beside a reply.
    """
    most = length or config.engine_max_len or positions
    around = longest_turn(config.replace(mem_max_question=1), vocabulary) - 1
    room = most - around if most else config.mem_max_question
    question = min(config.mem_max_question, room)
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


def _own_settings(model: Path) -> Row:
    """Of a ranker that this pack converted."""
    own = model_settings(model)
    return {name: own[name] for name in _OF_THE_MODEL if name in own} if own.get("AGENT") == "chat" else {}


def _served(url: str, named: str, called: str) -> tuple[str, int]:
    """The model's name at ``url``, and the tokens of its context, or 0."""
    listed = served_at(url, key())
    name = named or (next(iter(listed)) if len(listed) == 1 else called)
    return name, listed.get(name, 0)


# --- the line of a split --------------------------------------------------------------------------------------------


def summary(file: Path) -> str:
    """Replies, and in percent how far up the gold sessions are before and after; a row without a ranking has the order
    of similarity, as in the table."""
    columns = ["similarities", *ADDS.names[1:], "haystack_session_ids", "answer_session_ids"]
    rows = [row for batch in read_rows(file, columns, 1000) for row in batch]
    ranked = [row for row in rows if row["rank_status"] == OK]
    valid = sum(not row["ranking_error"] for row in ranked)
    named = sum(bool(row["haystack_session_gen_rankings"]) for row in rows)
    scores: dict[str, list[float]] = {}
    for row in rows:
        wanted = {str(id) for id in row.get("answer_session_ids") or ()}
        gold = [place for place, id in enumerate(row.get("haystack_session_ids") or ()) if str(id) in wanted]
        if gold:
            similar = by_score(row["similarities"] or ())
            kept = set(gold) & set(row["prefiltered_session_idx"])
            if kept or row["rank_status"] == OK:
                scores.setdefault("gold shown to the ranker", []).append(len(kept) / len(gold))
            orders = {"by similarity": similar, "ranked": completed(row["haystack_session_gen_rankings"], similar)}
            for score, of in _SCORES.items():
                for order, positions in orders.items():
                    scores.setdefault(f"{score} {order}", []).append(of(positions, gold))
    told = ", ".join(f"{name} {100 * fmean(values):.1f}" for name, values in scores.items())
    counts = (f"{len(ranked)} of {len(rows)} questions ranked, {valid} validly, {named} usably, "
              f"{len(rows) - len(ranked)} failed")
    return counts + (f"; in percent: {told}" if told else "; no row says which sessions are gold")


def _parser() -> argparse.ArgumentParser:
    parser = stage_parser("session-ranking", "Rank the sessions of histories.")
    parser.add_argument("--model", default=os.environ.get("MODEL_PATH", ""),
                        help="Hugging Face folder or id of the ranker; it is served here unless BASE_URL is set")
    parser.add_argument("--served-model", default="", help="its name at BASE_URL (default: that of the only model "
                        "there, else --model-name)")
    add_option(parser, "model_name", "", "the model's name in the files' names; default: its folder's")
    add_option(parser, "rank_top_k", 0, "most similar sessions that the ranker is shown; 0: as many as fit its prompt",
               whole_number)
    parser.add_argument("--prompts", default="", metavar="YAML",
                        help="file with another wording, in the shape of sessions/wording.yaml")
    return parser


if __name__ == "__main__":
    from . import rank  # workers import its classes by this name

    sys.exit(rank.main())
