"""Makes one sample of a task at a time.

Invariant: sample (task, length, index) gets a generator of its own, seeded by ``seed/task/length/index``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import orjson

from ..agents.one_prompt import Direct
from ..agents.prompts import chat_frame, load_prompts
from ..agents.vocabulary import Vocabulary
from ..config import Config
from ..data.ruler_corpus import Corpus, read_hotpotqa, read_squad
from .document_frame import frame_of
from .length import LengthError
from .sample import Essay, Haystack, RulerError
from .tasks import TASKS
from .tokens import counter_of, load_tokenizer
from .wording import Sentences, load_wording


@dataclass(frozen=True, slots=True)
class Ingredients:
    """What every sample is made from."""

    tokenizer: Path
    haystack: tuple[Path, ...]
    squad: Path | None
    hotpotqa: Path | None
    wording: Path | None
    seed: int
    prompt_tokens: int | None = None
    """Of the prompt around a sample; None: of EVAL_MODE=direct, in the chat template of the tokenizer's model."""

    def has_data_for(self, task: str) -> bool:
        raw = TASKS[task].raw
        return raw is None or getattr(self, raw) is not None


@dataclass(frozen=True, slots=True)
class Wanted:
    task: str
    length: int
    index: int


class Maker:
    """Holds what is read once: tokenizer, essays, corpora.

    Raises:
        MemAgentError: one of the files cannot be used.
    """

    def __init__(self, plan: Ingredients) -> None:
        self._seed = plan.seed
        vocabulary = load_tokenizer(plan.tokenizer)
        self._count = counter_of(vocabulary)
        self._around = _direct_frame_tokens(vocabulary) if plan.prompt_tokens is None else plan.prompt_tokens
        wording = load_wording(plan.wording) if plan.wording else Sentences()
        self._haystack = Haystack(wording, read_essay(plan.haystack, wording))
        self._corpora = {
            raw: _in_order_of(Random(f"{plan.seed}/{raw}"), read(path))
            for raw, read, path in (("squad", read_squad, plan.squad), ("hotpotqa", read_hotpotqa, plan.hotpotqa))
            if path is not None
        }

    def make(self, wanted: Wanted) -> tuple[int, bytes]:
        """The sample's length in tokens, and the sample as JSON.

        Raises:
            RulerError: the task does not fit the length, or there are not enough questions.
        """
        task = TASKS[wanted.task]
        rng = Random(f"{self._seed}/{wanted.task}/{wanted.length}/{wanted.index}")
        haystack = self._asking(task.raw, wanted) if task.raw else self._haystack
        frame = frame_of(wanted.task, haystack.wording)
        haystack = replace(haystack, reserved=self._around + task.reply_tokens + frame.tokens(self._count))
        try:
            sample = frame.around(task.make(rng, wanted.length, self._count, haystack))
        except LengthError as error:
            where = f"{wanted.task} at {wanted.length} tokens, sample {wanted.index}"
            raise RulerError(f"{where}: {error}; choose a longer length") from None
        entry = {
            "context": sample.context,
            "input": sample.input,
            "answers": list(sample.answers),
            "index": wanted.index,
            "task": wanted.task,
            "length": wanted.length,
            "length_tokens": sample.length_tokens,
            "answer_prefix": sample.answer_prefix,
            "example": sample.example,
            "tokens_to_generate": task.reply_tokens,
            "metric": task.metric,
            "extra": {**sample.extra, "prompt_tokens": self._around, "wording": self._haystack.wording.name,
                      "seed": self._seed},
        }
        return sample.length_tokens, orjson.dumps(entry)

    def _asking(self, raw: str, wanted: Wanted) -> Haystack:
        corpus = self._corpora[raw]
        if wanted.index >= len(corpus.questions):
            raise RulerError(f"{wanted.task}: {corpus.name} has {len(corpus.questions)} questions; lower --samples")
        return replace(self._haystack, corpus=corpus, question=corpus.questions[wanted.index])


def _direct_frame_tokens(vocabulary: Vocabulary) -> int:
    """Tokens around document and question in EVAL_MODE=direct, with the pack's settings and this model's template."""
    config = Config()
    frame = chat_frame(vocabulary.tokenizer, config.mem_thinking, {})
    return Direct(config, vocabulary, load_prompts(config.mem_layout), frame).frame_tokens


def read_essay(paths: Sequence[Path], wording: Sentences) -> Essay:
    """The files' text with every run of blanks and newlines as one blank; the built-in sentences without files.

    Raises:
        RulerError: a file cannot be read, or there is no text in them.
    """
    if not paths:
        return Essay(wording.noise, "repeated sentences (built in, no --haystack given)")
    text = " ".join(" ".join(map(_essay_text, paths)).split())
    if not text:
        raise RulerError(f"--haystack {' '.join(map(str, paths))}: no text in there; name files with text")
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Essay(text, f"{'+'.join(path.name for path in paths)} sha256:{digest}")


def _essay_text(path: Path) -> str:
    try:
        return str(orjson.loads(path.read_bytes())["text"]) if path.suffix == ".json" else path.read_text("utf-8")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RulerError(f"--haystack {path}: not UTF-8 text, or JSON with a field `text` ({error})") from None


def _in_order_of(rng: Random, corpus: Corpus) -> Corpus:
    """Neighbouring questions of a file are about one article; a sample of them should not be."""
    return replace(corpus, questions=tuple(rng.sample(corpus.questions, len(corpus.questions))))
