"""Make the pocket profile's starting weights again, with the pack's own trainer.

    python -m mem_agent.pocket.warmup --output /tmp/start [--task two-hop|sifter]

From random weights of the shipped start's configuration, with its tokenizer (a byte-level BPE to which every word of
the task and its prompts is one token, at the start of a line and after a space), in two supervised stages. The
*ability* rows teach everything a perfect agent does. The *mixed* rows are turns of whole trajectories, each with a
habit drawn for it: a model trained on them for a short while can still do everything, but does the right thing only
some of the time, and siblings of one question differ. That is what the reward then selects. The figures that were
reached are in ``README.md``.

A row is ``(prompt_ids, response_ids)``; the response ends with ``<|im_end|>``, and only it carries loss. Prompts are
the agents' own, so that rows and rollouts agree to the token. All streams are endless.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from ..agents import build_agent
from ..agents.documents import Chunks, split_chunks
from ..agents.gated import FINISH, SKIP, UPDATE
from ..agents.interface import Reading
from ..agents.parallel import BETWEEN
from ..agents.prompts import chat_frame, compile_template, load_prompts
from ..agents.records import Generation, StopReason, TurnKind
from ..agents.vocabulary import Vocabulary
from ..checkpoints.hf_folder import save_weights
from ..config import Config
from ..system.logging_setup import start_logging
from ..training.rows import TrainRow
from ..training.trainer import Trainer
from . import task
from .sifter import SESSIONS, History, Way, draw_history

logger = logging.getLogger(__name__)
FOLDER = Path(__file__).parent
PROMPTS, TWO_HOP_PROMPTS = str(FOLDER / "prompts.yaml"), str(FOLDER / "two_hop.yaml")

Row = tuple[list[int], list[int]]
NONE = "none"
"""What a turn replies when there is nothing to keep; the same text as the ``empty_memory`` marker."""
RECITE = "Which each?"
"""The question of the recital drill."""

# --- look-up --------------------------------------------------------------------------------------------------------

GOOD, DISTRACTOR = 0.55, 0.28
"""Of the mixed turns those that do right and those that keep a distractor's fact; all others keep nothing. With the
fact in the last, middle or first of three chunks a trajectory succeeds with GOOD, its square or its cube."""
FINISHES, HASTY = 0.35, 0.06
"""How often a mixed gated turn ends the reading, with the asked fact in its memory and without it."""
_CHUNK_LINES = task.CHUNK_TOKENS // task.LINE_TOKENS


class LookUpRows:
    """Rows of all agents that the start is for: ``memagent``; ``gated``, whose replies are the same memories with a
    decision in front; and the merge turn of ``parallel``, whose other turns are ``memagent``'s."""

    def __init__(self, tokenizer: Any) -> None:
        self._vocabulary, self._end = Vocabulary(tokenizer), tokenizer.eos_token_id
        frame = chat_frame(tokenizer, False, {})
        self._turns = {name: compile_template(text, frame, self._vocabulary)
                       for name, text in load_prompts("section_first", PROMPTS).items()
                       if name in ("memory", "gated", "merge", "final")}

    def row(self, turn: str, reply: str, **slots: str) -> Row:
        encode = self._vocabulary.encode_text
        prompt = self._turns[turn].fill({slot: encode(text) for slot, text in slots.items()})
        return prompt, [*encode(reply), self._end]

    def memory(self, question: str, lines: Sequence[str], memory: str, reply: str, gated: bool = False) -> Row:
        section = "".join(f"{line}\n" for line in lines)
        return self.row("gated" if gated else "memory", reply, problem=question, section=section, memory=memory)

    def final(self, question: str, memory: str, answer: str) -> Row:
        return self.row("final", f"\\boxed{{{answer}}}", problem=question, memory=memory)

    def ability(self, seed: int) -> Iterator[Row]:
        """Find the line of the asked kind in a section or in the memory, reply ``none`` when neither has it, and
        answer in a box from the memory."""
        rng = random.Random(f"pocket-ability:{seed}")
        while True:
            kind = rng.random()
            if kind < 0.15:
                yield self._recital(rng)
            elif kind < 0.60:
                yield self._answering(rng)
            elif kind < 0.66:
                yield self._merge(rng)
            else:
                yield self._reading(rng, gated=rng.random() < 0.5)

    def _recital(self, rng: random.Random) -> Row:
        """A drill: all facts of a section in random order, twice. The kinds come in no order one could learn, but the
        thing after each of them is a look-up; a dozen in one row make looking up form quickly."""
        facts = rng.randint(task.FACTS, len(task.NAMES) - 1)
        lines = task.draw_section(rng, facts + 2, facts, rng.choice(task.NAMES))
        stated = list(_facts(lines).values())
        return self.memory(RECITE, lines, NONE, "\n".join(rng.sample(stated, facts) + rng.sample(stated, facts)))

    def _reading(self, rng: random.Random, gated: bool) -> Row:
        name = rng.choice(task.NAMES)
        wanted = task.fact(name, rng.choice(task.THINGS[name]))
        case = rng.random()
        here = case < 0.45  # the section has it; below 0.8 the memory has it; else neither
        lines = task.draw_section(rng, _CHUNK_LINES, task.FACTS, name, (name, _thing(wanted)) if here else None)
        memory = _some_fact(rng, name) if rng.random() < 0.5 else NONE
        if not here and case < 0.8:
            memory = reply = wanted
        elif gated and not here:
            reply = memory
        else:
            reply = wanted if here else NONE
        if gated:
            reply = gated_reply(rng, name, memory, reply, finishes=0.5, hasty=0.0)
        return self.memory(task.question_for(name), lines, memory, reply, gated)

    def _merge(self, rng: random.Random) -> Row:
        """Notes of a round with the asked fact in one of them, or in the memory, or nowhere."""
        name = rng.choice(task.NAMES)
        wanted = task.fact(name, rng.choice(task.THINGS[name]))
        notes = [_some_fact(rng, name) for _ in range(rng.randint(2, 4))]
        memory = _some_fact(rng, name) if rng.random() < 0.3 else NONE
        case = rng.random()
        if case < 0.7:
            notes[rng.randrange(len(notes))] = wanted
        elif case < 0.85:
            memory = wanted
        reply = wanted if case < 0.85 else NONE
        return self.row("merge", reply, problem=task.question_for(name), memory=memory, notes=BETWEEN.join(notes))

    def _answering(self, rng: random.Random) -> Row:
        """A memory about another kind, or an empty one, is answered ``none``."""
        name, case = rng.choice(task.NAMES), rng.random()
        value = rng.choice(task.THINGS[name])
        if case < 0.8:
            return self.final(task.question_for(name), task.fact(name, value), value)
        return self.final(task.question_for(name), _some_fact(rng, name) if case < 0.9 else NONE, NONE)

    def mixed(self, seed: int) -> Iterator[Row]:
        """Turns of trajectories, the habit of each drawn by itself. Every second trajectory is gated; one that is
        finished has no more turns but the last."""
        rng = random.Random(f"pocket-mixed:{seed}")
        for number in itertools.count():
            gated = number % 2 == 1
            rng.choice((3,))  # a draw that the stream of the shipped weights has
            example = task.draw_look_up(rng, 3)
            lines = example.context.splitlines()
            memory = NONE
            for start in range(0, len(lines), _CHUNK_LINES):
                section = lines[start : start + _CHUNK_LINES]
                new = _by_habit(rng, example.name, section, memory)
                reply = gated_reply(rng, example.name, memory, new, FINISHES, HASTY) if gated else new
                yield self.memory(example.question, section, memory, reply, gated)
                memory = new
                if gated and reply.startswith(FINISH):
                    break
            answer = _thing(memory) if _name(memory) == example.name else NONE
            yield self.final(example.question, memory, answer)


def gated_reply(rng: random.Random, name: str, memory: str, new: str, finishes: float, hasty: float) -> str:
    """A reply that puts ``new`` in the place of ``memory``, with the decision in front."""
    ends = rng.random() < (finishes if _name(new) == name else hasty)
    if new == memory:
        return FINISH if ends else SKIP
    return f"{FINISH if ends else UPDATE}\n{new}"


def _by_habit(rng: random.Random, name: str, section: Sequence[str], memory: str) -> str:
    """The asked fact if section or memory has it, or a distractor of the section, or nothing."""
    known, draw = _facts(section), rng.random()
    if draw < GOOD:
        return known.get(name, memory if _name(memory) == name else NONE)
    if draw < GOOD + DISTRACTOR:
        return known[rng.choice(sorted(set(known) - {name}))]
    return NONE


def _name(text: str) -> str:
    """The kind a fact is about (the text itself where it is no fact)."""
    return text.partition(" ")[0]


def _thing(text: str) -> str:
    return text.rpartition(" ")[2]


def _facts(lines: Sequence[str]) -> dict[str, str]:
    """The facts of a chunk by their kind."""
    return {_name(line): line.rstrip(".") for line in lines if _name(line) in task.NAMES}


def _some_fact(rng: random.Random, avoid: str) -> str:
    name = rng.choice([name for name in task.NAMES if name != avoid])
    return task.fact(name, rng.choice(task.THINGS[name]))


# --- two hops -------------------------------------------------------------------------------------------------------

REPLY_TOKENS = {"memagent": 10, "rememr1": 24}
"""A memory turn's; tags take 14 of the second."""
KEPT = 3
"""Facts that MemAgent's memory holds beside the pointer."""
_FACT = re.compile(rf"\b({'|'.join(task.NAMES)}) (\w+)")
_POINTER = re.compile(rf"\b{task.POINTER} (\w+)")


class TwoHopRows:
    """A good reply to a chunk with facts keeps them (``memagent``: the newest that fit beside older ones); to the
    chunk with the pointer it keeps the pointer too, and ``rememr1`` asks for the kind; the final one says the kind and
    then the thing in a box. So every reply is a copy or a look-up of one hop, and reinforcement learning is left with
    when to do which. A turn that is not good keeps nothing and asks for nothing."""

    def __init__(self, name: str, tokenizer: Any) -> None:
        config = Config(agent=name, mem_prompts=TWO_HOP_PROMPTS, mem_chunk_tokens=task.TWO_HOP_CHUNK_TOKENS,
                        mem_max_memory=REPLY_TOKENS[name], mem_max_final=12)
        self._name, self._vocabulary, self._end = name, Vocabulary(tokenizer), tokenizer.eos_token_id
        self._agent = build_agent(config, self._vocabulary, {})

    def stream(self, seed: int, good: float) -> Iterator[Row]:
        """Turns of trajectories, each good with probability ``good``."""
        rng = random.Random(f"two-hop-rows:{seed}")
        while True:
            yield from self.trajectory(task.draw_two_hop(rng), rng, good)

    def trajectory(self, example: task.PocketExample, rng: random.Random, good: float) -> Iterator[Row]:
        encode, decode = self._vocabulary.encode_text, self._vocabulary.decode
        document = split_chunks(encode(example.context), task.TWO_HOP_CHUNK_TOKENS, 99)
        state = self._agent.start(Reading(encode(example.question), document))
        sections = iter(document.chunks)
        while requests := self._agent.requests(state):
            (request,) = requests
            if request.kind is TurnKind.MEMORY:
                memory = decode(self._agent.memory(state))
                reply = self._memory_reply(decode(next(sections)), memory, right=rng.random() < good)
            else:
                reply = _answer(decode(request.prompt_ids))
            ids = [*encode(reply), self._end]
            yield request.prompt_ids, ids
            state = self._agent.advance(state, [Generation(ids, [0.0] * len(ids), StopReason.STOP)])

    def _memory_reply(self, section: str, memory: str, right: bool) -> str:
        pointer = _POINTER.search(section)
        if self._name == "rememr1":
            kept = f"{task.POINTER} {pointer[1]}" if pointer else " ".join(_stated(section))
            asks = f"<recall>{pointer[1]}</recall>" if pointer and right else ""
            return f"<update>{kept if right else NONE}</update>{asks}"
        facts = [*_stated(section), *_stated(memory)][:KEPT]
        kept = " ".join([*facts, f"{task.POINTER} {pointer[1]}"] if pointer else facts)
        return kept if right else NONE


def two_hop_rows(tokenizer: Any, seed: int, good: float) -> Iterator[Row]:
    """Turns of both agents by turns, so that one start serves them."""
    streams = [TwoHopRows(agent, tokenizer).stream(seed, good) for agent in REPLY_TOKENS]
    for stream in itertools.cycle(streams):
        yield next(stream)


def _stated(text: str) -> list[str]:
    return [task.fact(kind, thing) for kind, thing in _FACT.findall(text) if thing in task.THINGS[kind]]


def _answer(prompt: str) -> str:
    """The kind that the prompt points at, then its thing; ``none`` for what is not there."""
    kind = ([NONE] + _POINTER.findall(prompt.rpartition("Memory:")[2]))[-1]
    things = [_thing(text) for text in _stated(prompt) if _name(text) == kind]
    return f"{kind} \\boxed{{{things[-1] if things else NONE}}}"


# --- sifter ---------------------------------------------------------------------------------------------------------

ABILITY = {Way.RIGHT: 0.4, Way.FIRST: 0.25, Way.OTHERS: 0.25, Way.NEWEST: 0.05, Way.ANY: 0.05}
"""The shares of the ways in the first stage: there is little to learn from a choice that nothing tells."""
HABITS = {Way.RIGHT: 0.02, Way.FIRST: 0.10, Way.OTHERS: 0.35, Way.NEWEST: 0.08, Way.ANY: 0.45}
"""Those in the mix: the second stage moves only which way a reply begins with. Most look at half of the question or
are in no order, and the gold session comes first about as often as by chance."""
RECITALS = 0.4
SIFTER = Config(agent="chat", task="qa", mem_max_question=64, mem_max_final=24)
EACH = "each: "


def sifter_rows(tokenizer: Any, seed: int, mixed: bool) -> Iterator[Row]:
    """Rankings of eight sessions in ways drawn by HABITS; in the ability stage of four to eight, and recitals."""
    rng = random.Random(f"sifter-{'mixed' if mixed else 'ability'}:{seed}")
    shares, fewest, recitals = (HABITS, SESSIONS, 0.0) if mixed else (ABILITY, 4, RECITALS)
    vocabulary = Vocabulary(tokenizer)
    agent = build_agent(SIFTER, vocabulary, {})
    while True:
        recital = rng.random() < recitals
        history = draw_history(rng, SESSIONS if recital else rng.randint(fewest, SESSIONS))
        (way,) = rng.choices(list(shares), list(shares.values()))
        (request,) = agent.requests(agent.start(Reading(vocabulary.encode_text(history.prompt()), Chunks((), 0))))
        text = _recited(history, rng) if recital else history.reply(way, rng)
        yield request.prompt_ids, [*vocabulary.encode_text(text), tokenizer.eos_token_id]


def _recited(history: History, rng: random.Random) -> str:
    """A drill: for each thing the sessions are about, the last session that says it, in random order."""
    last = {talk.about: number for number, talk in enumerate(history.talks)}
    return EACH + "".join(f"{each} {last[each]}" for each in rng.sample(sorted(last), len(last)))


# --- stages ---------------------------------------------------------------------------------------------------------

TWO_HOP_GOOD = 0.6
TASKS = {"look-up": "start", "two-hop": "two_hop_start", "sifter": "sifter_start"}
"""The folder of each task's shipped start."""


@dataclass(frozen=True)
class Stage:
    """``steps`` optimizer steps of ``rows`` rows, linear warm-up, then cosine to ``floor``."""

    steps: int = 1500
    rows: int = 24
    lr: float = 1.5e-3
    warmup: int = 60
    floor: float = 0.05

    def lr_at(self, step: int) -> float:
        """Learning rate of step 0, 1, ..."""
        done = (step + 1 - self.warmup) / (self.steps - self.warmup)
        cosine = self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * max(0.0, done)))
        return self.lr * min((step + 1) / self.warmup, cosine)


MIXED = Stage(steps=160, rows=32, lr=5e-4, warmup=10, floor=0.1)


def rows_of(name: str, tokenizer: Any, seed: int, mixed: bool) -> Iterator[Row]:
    match name:
        case "look-up":
            rows = LookUpRows(tokenizer)
            return rows.mixed(seed) if mixed else rows.ability(seed)
        case "two-hop":
            return two_hop_rows(tokenizer, seed, TWO_HOP_GOOD if mixed else 1.0)
    return sifter_rows(tokenizer, seed, mixed)


def save_initial(folder: Path, seed: int) -> None:
    """Write random weights beside the configuration, alike for a seed.

    The plain initialisation (every matrix with a deviation of 0.02) suits wide models; at a width of 256 it leaves the
    token embeddings weaker than what the first block adds to them. So the embeddings start larger, and the two
    matrices of each block that write to the residual stream start smaller.
    """
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_(0.0, 0.1)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.4)
            layer.mlp.down_proj.weight.mul_(0.4)
    save_weights(dict(model.named_parameters()), folder / "model.safetensors")


def train_stage(source: Path, target: Path, stage: Stage, rows: Iterator[Row]) -> None:
    trainer = Trainer(Config(hf_ckpt=str(source), kl_coef=0.0, weight_decay=0.05, adam_beta2=0.95,
                             max_tokens_per_gpu=2048, clip_grad=1.0))
    losses = []
    for step in range(stage.steps):
        batch = [_train_row(number, *next(rows)) for number in range(stage.rows)]
        losses.append(trainer.sft_step(batch, stage.lr_at(step))["loss"])
        if (step + 1) % 50 == 0:
            logger.info("%s step %d, loss %.3f", target.name, step + 1, fmean(losses[-50:]))
    shutil.copytree(source, target, dirs_exist_ok=True)
    tensors = {key: tensor.to(torch.float16) for key, tensor in trainer.export_hf().items()}
    save_weights(tensors, target / "model.safetensors")


def _train_row(number: int, prompt: list[int], response: list[int]) -> TrainRow:
    size = len(response)
    return TrainRow([*prompt, *response], size, [1] * size, [0.0] * size, 0.0, number, float(size))


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the pocket profile's starting weights.")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--task", choices=TASKS, default="look-up")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    start_logging()
    output, name, seed = options.output, options.task, options.seed
    first = Stage(steps=2500, lr=2e-3) if name == "sifter" else Stage()
    with tempfile.TemporaryDirectory() as scratch:
        initial, ability = Path(scratch), output.with_name(f"{output.name}-ability")
        shutil.copytree(FOLDER / TASKS[name], initial, dirs_exist_ok=True)
        tokenizer = AutoTokenizer.from_pretrained(initial)
        save_initial(initial, seed)
        train_stage(initial, ability, first, rows_of(name, tokenizer, seed, mixed=False))
        train_stage(ability, output, MIXED, rows_of(name, tokenizer, seed, mixed=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
