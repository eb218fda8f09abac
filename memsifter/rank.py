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
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from ..agents import longest_turn
from ..checkpoints.hf_model import load_vocabulary, local_folder, model_positions, model_settings, with_engine_length
from ..config import Config, ConfigError
from ..evaluation.endpoint import frame_of
from ..evaluation.questions import model_hash
from ..hooks.chat_model import ChatSettings, Reply
from ..rewards import sessions
from ..rollout_client import RETRIES, TIMEOUT_S
from ..system.cli import one_line_errors, whole_number
from . import stages
from .answer import AskingWorker, ask_all, endpoint, models_at
from .stages import EMBED, RANKING, Row, Stage, StageParser

_DEFAULTS = {"MEM_MAX_QUESTION": 131072, "MEM_MAX_FINAL": 16384, "MEM_CONCURRENCY": 64}
"""As published: 128k of prompt, 16k of reply (MemSifter, ``ray_vllm_infer.py``)."""
_SHARED = ("mem_max_question", "mem_max_final", "mem_thinking", "eval_temperature", "eval_top_p", "seed")
"""Settings that two runs have in common where their rows belong together."""


@one_line_errors("the same command continues")
def main(argv: Sequence[str] | None = None) -> int:
    parser = StageParser("session-ranking", "Rank the sessions of histories.")
    parser.option("model_name", "", "the model's name in the files' names; default: its folder's")
    parser.option("rank_top_k", 0, "most similar sessions that are shown; 0: as many as fit", whole_number)
    parser.add_argument("--model", default=os.environ.get("MODEL_PATH", ""), help="folder or id of the ranker")
    parser.add_argument("--prompts", default="", help="YAML file with another wording, as rewards/wording.yaml")
    given = parser.parsed(argv)
    wording = sessions.load_wording(given.prompts)
    model = local_folder(given.model, "--model")
    ranker = given.model_name or model.resolve().name
    sources = stages.find_files(given, Path(given.output_dir, given.embedding_model_name), EMBED)
    converted = model_settings(model)  # of a ranker that this pack trained
    own = {name: converted[name] for name in (*_DEFAULTS, "MEM_THINKING") if name in converted}
    config = stages.stage_config(_DEFAULTS | (own if converted.get("AGENT") == "chat" else {})).replace(
        hf_ckpt=str(model), agent="chat", agent_args="", task="qa", task_args="", eval_mode="recurrent")
    listed = models_at(config.base_url) if config.base_url else {}
    served = next(iter(listed)) if len(listed) == 1 else ranker
    vocabulary = load_vocabulary(model, config.trust_remote_code)
    most = listed.get(served) or config.engine_max_len or model_positions(model)
    around = longest_turn(config.replace(mem_max_question=1), vocabulary) - 1
    room = min(config.mem_max_question, most - around) if most else config.mem_max_question
    if room <= 0:
        raise ConfigError(f"MEM_MAX_FINAL={config.mem_max_final} leaves nothing of {most} tokens for a prompt; lower "
                          "it, or raise ENGINE_MAX_LEN")
    config = config.replace(mem_max_question=room)
    config = config if config.base_url else with_engine_length(config, model, vocabulary)
    settings = {"model": model_hash(model), "rank_top_k": given.rank_top_k, "wording": wording.digest,
                **{name: getattr(config, name) for name in _SHARED}}
    files = [Stage(source, stages.stage_file(given.output_dir, data, RANKING, ranker), RankWorker.adds, settings,
                   given.limit) for data, source in sources.items()]
    with endpoint(config, model, served, Path(given.output_dir, ranker), files) as server:
        thinking = config.mem_thinking if "enable_thinking" in str(vocabulary.tokenizer.chat_template) else None
        chat = ChatSettings(**server, timeout_s=TIMEOUT_S, retries=RETRIES, concurrency=config.mem_concurrency,
                            temperature=config.eval_temperature, top_p=config.eval_top_p,
                            max_output_tokens=config.mem_max_final, thinking=thinking)
        make = partial(RankWorker, chat, config, model, given.rank_top_k, given.prompts)
        return ask_all(files, [make] * len(files), given, config.mem_concurrency)


class RankWorker(AskingWorker):
    adds = pa.schema([
        ("generated_text", pa.string()), ("prefiltered_session_idx", pa.list_(pa.int64())),
        ("haystack_session_gen_rankings", pa.list_(pa.int64())), ("ranking_error", pa.string()),
        ("rank_status", pa.string()),
    ])

    def __init__(self, settings: ChatSettings, config: Config, model: Path, top_k: int = 0, prompts: str = "") -> None:
        """A prompt has MEM_MAX_QUESTION tokens; ``top_k`` 0 shows all sessions that fit."""
        super().__init__(settings, config)
        vocabulary = load_vocabulary(model, config.trust_remote_code)
        wording, self._top_k = sessions.load_wording(prompts), top_k
        self._prompts = sessions.RankingPrompts(
            wording, lambda text: len(vocabulary.encode_text(text.strip())), config.mem_max_question)
        self._opens_thinking = frame_of(vocabulary, config.mem_thinking).thinking_is_open
        added = vocabulary.tokenizer.added_tokens_decoder.values()
        control = [token.content for token in added if token.special]
        self._control = re.compile("|".join(map(re.escape, control)) or "(?!)")

    def prepare(self, row: Row) -> tuple[str, Row]:
        asked = sessions.question_of(row, "stage 1")
        order = sessions.by_score(stages.of_sessions(row, "similarities", asked))
        text, shown, _ = self._prompts.fill(asked, order[: self._top_k or None])
        # The server would read <|im_end|> in a session as the end of the message.
        text = self._control.sub(lambda token: f"{token[0][0]} {token[0][1:]}", text)
        return text, {"prefiltered_session_idx": list(shown)}

    def read(self, reply: Reply, added: Row) -> Row:
        said, shown = reply.text, added["prefiltered_session_idx"]
        if self._opens_thinking and reply.cut and "</think>" not in said:
            said = f"<think>{said}"  # the template wrote it, and it never ended
        error = ""
        try:
            sessions.strict_ranking(said, len(shown))
        except sessions.BadRanking as bad:
            error = f"cut at {self.config.mem_max_final} tokens: {bad}" if reply.cut else str(bad)
        named = [shown[number] for number in sessions.lenient_ranking(said, len(shown))]
        return {"haystack_session_gen_rankings": named, "ranking_error": error}
