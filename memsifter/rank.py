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

import os
import re
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..agents import longest_turn
from ..agents.vocabulary import Vocabulary
from ..checkpoints.hf_model import load_vocabulary, local_folder, model_positions, model_settings
from ..config import Config, ConfigError
from ..evaluation.endpoint import frame_of
from ..evaluation.jobs import model_hash
from ..hooks.chat_model import ChatSettings, Reply
from ..rollout_client import RETRIES, TIMEOUT_S
from ..sessions.packing import by_score, pack
from ..sessions.ranking import BadRanking, lenient_ranking, strict_ranking
from ..sessions.records import HistoryQuestion, Language, question_of
from ..sessions.wording import Wording, load_wording, render_history, render_session
from ..system.command_line_types import whole_number
from ..system.errors import MemAgentError
from ..system.one_line_errors import one_line_errors
from .files import EMBED, RANKING, Row, add_option, find_files, parsed, stage_config, stage_file, stage_parser
from .orders import of_sessions
from .run_stage import AskingWorker, Stage, ask_all, endpoint, models_at
from .table import summary

_DEFAULTS = {"MEM_MAX_QUESTION": 131072, "MEM_MAX_FINAL": 16384, "MEM_CONCURRENCY": 64}
"""As published: 128k of prompt, 16k of reply (MemSifter, ``ray_vllm_infer.py``)."""
_SHARED = ("mem_max_question", "mem_max_final", "mem_thinking", "eval_temperature", "eval_top_p", "seed")
"""Settings that two runs have in common where their rows belong together."""
_STEP = 64
"""What an engine's context is rounded up to."""
_WIDEST = 999
"""A session's number while its tokens are counted: no shown one is written longer, in histories of up to 1,000."""
_SEAMS = 50
"""A prompt of known sessions is too long by at most this part, for their numbers and what stands between them."""


class NoRoom(MemAgentError):
    """Not one session fits; the message has the figures."""


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    parser = stage_parser("session-ranking", "Rank the sessions of histories.")
    add_option(parser, "model_name", "", "the model's name in the files' names; default: its folder's")
    add_option(parser, "rank_top_k", 0, "most similar sessions that are shown; 0: as many as fit", whole_number)
    parser.add_argument("--model", default=os.environ.get("MODEL_PATH", ""), help="folder or id of the ranker")
    parser.add_argument("--served-model", default="", help="its name at BASE_URL (the only one, else --model-name)")
    parser.add_argument("--prompts", default="", help="YAML file with another wording, as sessions/wording.yaml")
    given = parsed(parser, argv)
    wording = load_wording(given.prompts)
    stage_config(_DEFAULTS)  # bad settings end it before a model is downloaded
    model = local_folder(given.model, "--model")
    ranker = given.model_name or model.resolve().name
    sources = find_files(given, Path(given.output_dir, given.embedding_model_name), EMBED)
    converted = model_settings(model)  # of a ranker that this pack trained
    own = {name: converted[name] for name in (*_DEFAULTS, "MEM_THINKING") if name in converted}
    config = stage_config(_DEFAULTS | (own if converted.get("AGENT") == "chat" else {})).replace(
        hf_ckpt=str(model), agent="chat", agent_args="", task="qa", task_args="", eval_mode="recurrent")
    listed = models_at(config.base_url) if config.base_url else {}
    served = given.served_model or (next(iter(listed)) if len(listed) == 1 else ranker)
    vocabulary = load_vocabulary(model, config.trust_remote_code)
    most = listed.get(served) or config.engine_max_len or model_positions(model)
    config = settled(config, vocabulary, wording, most)
    settings = {"model": model_hash(model), "rank_top_k": given.rank_top_k, "wording": wording.digest,
                **{name: getattr(config, name) for name in _SHARED}}
    outputs = [stage_file(given.output_dir, data, RANKING, ranker) for data in sources]
    stages = [Stage(source, output, RankWorker.adds, settings, given.limit)
              for source, output in zip(sources.values(), outputs, strict=True)]
    with endpoint(config, model, served, Path(given.output_dir, ranker), stages) as server:
        thinking = config.mem_thinking if "enable_thinking" in str(vocabulary.tokenizer.chat_template) else None
        chat = ChatSettings(**server, timeout_s=TIMEOUT_S, retries=RETRIES, concurrency=config.mem_concurrency,
                            temperature=config.eval_temperature, top_p=config.eval_top_p,
                            max_output_tokens=config.mem_max_final, thinking=thinking)
        make = partial(RankWorker, chat, config, model, given.rank_top_k, given.prompts)
        return ask_all(stages, [make] * len(stages), given, config.mem_concurrency, summary)


class RankWorker(AskingWorker):
    name = "rank"
    adds = pa.schema([
        ("generated_text", pa.string()), ("prefiltered_session_idx", pa.list_(pa.int64())),
        ("haystack_session_gen_rankings", pa.list_(pa.int64())), ("ranking_error", pa.string()),
        ("rank_status", pa.string()),
    ])

    def __init__(self, settings: ChatSettings, config: Config, model: Path, top_k: int = 0, prompts: str = "") -> None:
        """``config`` is ``settled``; ``top_k`` 0 shows all sessions that fit."""
        super().__init__(settings, config)
        self._top_k, self._wording = top_k, load_wording(prompts)
        self._vocabulary = load_vocabulary(model, config.trust_remote_code)
        self._opens_thinking = frame_of(self._vocabulary, config.mem_thinking).thinking_is_open
        added = self._vocabulary.tokenizer.added_tokens_decoder.values()
        control = [token.content for token in added if token.special]
        self._control = re.compile("|".join(map(re.escape, control)) or "(?!)")

    def prepare(self, row: Row) -> tuple[str, Row]:
        asked = question_of(row, "stage 1")
        similarities, tokens = (of_sessions(row, name, asked) for name in ("similarities", "session_tokens"))
        text, shown, _ = ranking_prompt(asked, by_score(similarities)[: self._top_k or None], tokens,
                                        limit=self.config.mem_max_question, wording=self._wording,
                                        count=partial(_tokens, self._vocabulary))
        # The server would read <|im_end|> in a session as the end of the message.
        text = self._control.sub(lambda token: f"{token[0][0]} {token[0][1:]}", text)
        return text, {"prefiltered_session_idx": list(shown)}

    def read(self, reply: Reply, added: Row) -> Row:
        said, shown = reply.text, added["prefiltered_session_idx"]
        if self._opens_thinking and reply.cut and "</think>" not in said:
            said = f"<think>{said}"  # the template wrote it, and it never ended
        error = ""
        try:
            strict_ranking(said, len(shown))
        except BadRanking as bad:
            error = f"cut at {self.config.mem_max_final} tokens: {bad}" if reply.cut else str(bad)
        named = [shown[number] for number in lenient_ranking(said, len(shown))]
        return {"haystack_session_gen_rankings": named, "ranking_error": error}


class Counted(dict[int, int]):
    """The tokens of each session of a question, counted when asked for: a prompt shows few of a long history."""

    def __init__(self, asked: HistoryQuestion, count: Callable[[str], int]) -> None:
        self._asked, self._count = asked, count

    def __missing__(self, position: int) -> int:
        return self.setdefault(position, self._count(render_session(self._asked.sessions[position], _WIDEST) + "\n"))


def room_for(asked: HistoryQuestion, limit: int, wording: Wording, count: Callable[[str], int]) -> int:
    """Tokens of a prompt of ``limit`` that are left for sessions."""
    return limit - count(wording.ranking_prompt(asked.question, "", len(asked.sessions), asked.language, asked.date))


def ranking_prompt(
    asked: HistoryQuestion, order: Sequence[int], tokens: Any, *, limit: int, wording: Wording,
    count: Callable[[str], int], needed: Collection[int] = (),
) -> tuple[str, tuple[int, ...], Any]:
    """A prompt of at most ``limit`` tokens by ``count``; the positions that it shows: session n is ``shown[n]``; and
    the tokens by position that they were chosen by.

    The first sessions of ``order`` that fit, in the order of time. Stage 1 counted ``tokens`` with a tokenizer that
    need not be this one, so the whole prompt is counted. Where it is too long by more than numbers and seams make,
    sessions are counted again, then less is shown until it fits::

        limit 100, prompt without history 20; sessions of 30, 25, 20 tokens by stage 1, best first
        budget 80 -> all three, and the prompt has 110; counted again they are 36, 30, 24 -> the first two, 86: it fits

    Raises NoRoom: not one fits, or not all that are ``needed``.
    """
    def filled() -> tuple[str, tuple[int, ...], int]:
        shown = pack(order, tokens, room).shown
        history = render_history([asked.sessions[position] for position in shown])
        text = wording.ranking_prompt(asked.question, history, len(shown), asked.language, asked.date)
        return text, shown, count(text) - limit if shown else 0

    room = room_for(asked, limit, wording, count)
    text, shown, over = filled()
    if over > limit // _SEAMS or not shown or not {*needed} <= {*shown}:
        tokens = Counted(asked, count)
        text, shown, over = filled()
    while over > 0:
        room -= over
        text, shown, over = filled()
    if not shown or not {*needed} <= {*shown}:
        raise NoRoom(f"no session fits: a prompt of {limit} tokens has room for {max(0, room)}")
    return text, shown, tokens


def settled(config: Config, vocabulary: Vocabulary, wording: Wording, most: int) -> Config:
    """The config of a single message and its reply within ``most`` tokens, 0 for any number: MEM_MAX_QUESTION as large
    as fits, and ENGINE_MAX_LEN for it. Raises ConfigError where no prompt fits beside a reply.
    """
    around = longest_turn(config.replace(mem_max_question=1), vocabulary) - 1
    question = min(config.mem_max_question, most - around) if most else config.mem_max_question
    least = _tokens(vocabulary, wording.ranking_prompt("", "", 1, Language.EN))
    if question <= least:
        raise ConfigError(f"MEM_MAX_FINAL={config.mem_max_final} leaves {max(0, question)} tokens for a prompt, of "
                          f"{least} without a history; lower it, or raise ENGINE_MAX_LEN")
    needed = -(-(question + around) // _STEP) * _STEP
    return config.replace(mem_max_question=question, engine_max_len=min(needed, most) if most else needed)


def _tokens(vocabulary: Vocabulary, text: str) -> int:
    return len(vocabulary.encode_text(text.strip()))


if __name__ == "__main__":
    from . import rank  # workers import its classes by this name

    sys.exit(rank.main())
