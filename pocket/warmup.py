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
import math
import random
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from ..agents.gated import FINISH, SKIP, UPDATE
from ..agents.parallel import BETWEEN
from ..agents.prompts import chat_frame, compile_template, load_prompts
from ..agents.vocabulary import Vocabulary
from ..checkpoints.hf_folder import save_weights
from ..config import Config
from ..training.rows import TrainRow
from ..training.trainer import Trainer
from . import sifter, task

FOLDER = Path(__file__).parent
STARTS = {"look-up": "start", "two-hop": "two_hop_start", "sifter": "sifter_start"}
"""The folder of each task's shipped start."""

Row = tuple[list[int], list[int]]
Turn = tuple[str, str, dict[str, str]]
"""The name of a template, the reply, and the texts of its slots."""
NONE = "none"
"""What a turn replies when there is nothing to keep; the same text as the ``empty_memory`` marker."""
_FACT = re.compile(rf"\b({'|'.join(task.NAMES)}) (\w+)")
_POINTER = re.compile(rf"\b{task.POINTER} (\w+)")


def rows(tokenizer: Any, prompts: Mapping[str, str], turns: Iterator[Turn]) -> Iterator[Row]:
    """The turns in token ids, as the agents put them together."""
    vocabulary, frame = Vocabulary(tokenizer), chat_frame(tokenizer, False, {})
    template = cache(lambda name: compile_template(prompts[name], frame, vocabulary))
    for name, reply, slots in turns:
        prompt = template(name).fill({slot: vocabulary.encode_text(text) for slot, text in slots.items()})
        yield prompt, [*vocabulary.encode_text(reply), tokenizer.eos_token_id]


def _facts(text: str) -> dict[str, str]:
    """The facts in a text by their kind."""
    return {kind: task.fact(kind, thing) for kind, thing in _FACT.findall(text)}


def _thing(fact: str) -> str:
    return fact.rpartition(" ")[2]


# --- look-up --------------------------------------------------------------------------------------------------------

GOOD, DISTRACTOR = 0.55, 0.28
"""Of the mixed turns those that do right and those that keep a distractor's fact; all others keep nothing. With the
fact in the last, middle or first of three chunks a trajectory succeeds with GOOD, its square or its cube."""
FINISHES, HASTY = 0.35, 0.06
"""How often a mixed gated turn ends the reading, with the asked fact in its memory and without it."""


def look_up_ability(seed: int) -> Iterator[Turn]:
    """Turns of all agents that the start is for: ``memagent``; ``gated``, whose replies are the same memories with a
    decision in front; and the merge turn of ``parallel``, whose other turns are ``memagent``'s.

    They find the line of the asked kind in a section or in the memory, reply ``none`` when neither has it, and answer
    in a box from the memory.
    """
    rng = random.Random(f"pocket-ability:{seed}")
    while True:
        draw = rng.random()
        drill = _recital if draw < 0.15 else _answering if draw < 0.60 else _merge if draw < 0.66 else _reading
        yield drill(rng)


def _recital(rng: random.Random) -> Turn:
    """A drill: all facts of a section in random order, twice. The kinds come in no order one could learn, but the
    thing after each of them is a look-up; a dozen in one row make looking up form quickly."""
    facts = rng.randint(task.FACTS, len(task.NAMES) - 1)
    section = task.draw_section(rng, facts + 2, facts, rng.choice(task.NAMES))
    stated = list(_facts(section).values())
    reply = "\n".join(rng.sample(stated, facts) + rng.sample(stated, facts))
    return "memory", reply, {"problem": "Which each?", "section": section, "memory": NONE}


def _reading(rng: random.Random) -> Turn:
    gated, name = rng.random() < 0.5, rng.choice(task.NAMES)
    thing, case = rng.choice(task.THINGS[name]), rng.random()
    here, remembered = case < 0.45, 0.45 <= case < 0.8
    section = task.draw_section(rng, task.LINES, task.FACTS, name, (name, thing) if here else None)
    memory, right = _other_fact(rng, name) if rng.random() < 0.5 else NONE, task.fact(name, thing)
    memory = right if remembered else memory
    new = right if here or remembered else memory if gated else NONE
    return _memory_turn(name, section, memory, gated_reply(rng, name, memory, new, 0.5, 0.0) if gated else new, gated)


def _merge(rng: random.Random) -> Turn:
    """Notes of a round with the asked fact in one of them, or in the memory, or nowhere."""
    name = rng.choice(task.NAMES)
    reply = task.fact(name, rng.choice(task.THINGS[name]))
    notes = [_other_fact(rng, name) for _ in range(rng.randint(2, 4))]
    memory = _other_fact(rng, name) if rng.random() < 0.3 else NONE
    case = rng.random()
    if case < 0.7:
        notes[rng.randrange(len(notes))] = reply
    elif case < 0.85:
        memory = reply
    else:
        reply = NONE
    return "merge", reply, {"problem": task.question_for(name), "memory": memory, "notes": BETWEEN.join(notes)}


def _answering(rng: random.Random) -> Turn:
    """A memory about another kind, or an empty one, is answered ``none``."""
    name, case = rng.choice(task.NAMES), rng.random()
    thing = rng.choice(task.THINGS[name])
    memory = task.fact(name, thing)
    if case >= 0.8:
        memory, thing = _other_fact(rng, name) if case < 0.9 else NONE, NONE
    return _final_turn(name, memory, thing)


def _other_fact(rng: random.Random, avoid: str) -> str:
    name = rng.choice([name for name in task.NAMES if name != avoid])
    return task.fact(name, rng.choice(task.THINGS[name]))


def gated_reply(rng: random.Random, name: str, memory: str, new: str, finishes: float, hasty: float) -> str:
    """A reply that puts ``new`` in the place of ``memory``, with the decision in front."""
    ends = rng.random() < (finishes if name in _facts(new) else hasty)
    if new == memory:
        return FINISH if ends else SKIP
    return f"{FINISH if ends else UPDATE}\n{new}"


def _memory_turn(name: str, section: str, memory: str, reply: str, gated: bool) -> Turn:
    return "gated" if gated else "memory", reply, {
        "problem": task.question_for(name), "section": section, "memory": memory}


def _final_turn(name: str, memory: str, thing: str) -> Turn:
    return "final", f"\\boxed{{{thing}}}", {"problem": task.question_for(name), "memory": memory}


def look_up_mixed(seed: int) -> Iterator[Turn]:
    """Turns of trajectories, the habit of each drawn by itself. Every second trajectory is gated; one that is finished
    has no more turns but the last."""
    rng = random.Random(f"pocket-mixed:{seed}")
    for gated in itertools.cycle((False, True)):
        rng.choice((3,))  # a draw that the stream of the shipped weights has
        example, memory = task.draw_look_up(rng, 3), NONE
        for section in example.sections:
            known, draw, new = _facts(section), rng.random(), NONE
            if draw < GOOD:
                new = (_facts(memory) | known).get(example.name, NONE)
            elif draw < GOOD + DISTRACTOR:
                new = known[rng.choice(sorted(known.keys() - {example.name}))]
            reply = gated_reply(rng, example.name, memory, new, FINISHES, HASTY) if gated else new
            yield _memory_turn(example.name, section, memory, reply, gated)
            memory = new
            if gated and reply.startswith(FINISH):
                break
        yield _final_turn(example.name, memory, _thing(_facts(memory).get(example.name, NONE)))


# --- two hops -------------------------------------------------------------------------------------------------------

TWO_HOP_GOOD = 0.6
"""The share of good turns in the mix."""
KEPT = 3
"""Facts that MemAgent's memory holds beside the pointer."""


def two_hop_turns(agent: str, seed: int, good: float) -> Iterator[Turn]:
    """Turns of trajectories, each good with probability ``good``.

    A good reply to a chunk with facts keeps them (``memagent``: the newest that fit beside older ones); to the chunk
    with the pointer it keeps the pointer too, and ``rememr1`` asks for the kind; the final one says the kind and then
    the thing in a box. So every reply is a copy or a look-up of one hop, and reinforcement learning is left with when
    to do which. A turn that is not good keeps nothing and asks for nothing.
    """
    rng, recalls = random.Random(f"two-hop-rows:{seed}"), agent == "rememr1"
    while True:
        example, memories = task.draw_two_hop(rng), [NONE]
        slots = {"problem": example.question, "recalled": NONE}
        for section in example.sections:
            right, asked = rng.random() < good, _POINTER.findall(section)
            facts = _facts(section) | ({} if recalls else _facts(memories[-1]))
            kept = [*list(facts.values())[:KEPT], *(f"{task.POINTER} {kind}" for kind in asked)]
            reply = memory = " ".join(kept) if right else NONE
            if recalls:
                reply = f"<update>{memory}</update>" + "".join(f"<recall>{kind}</recall>" for kind in asked if right)
            turn = slots | {"section": section, "memory": memories[-1]}
            yield "revisit" if recalls else "memory", reply, turn
            memories.append(memory)
        kind = ([NONE] + _POINTER.findall(memories[-1]))[-1]
        if recalls:
            slots["recalled"] = next((memory for memory in memories if kind in _facts(memory)), NONE)
        found = _facts(f"{slots['recalled']} {memories[-1]}").get(kind, NONE)
        answer = f"{kind} \\boxed{{{_thing(found)}}}"
        yield "revisit_final" if recalls else "final", answer, slots | {"memory": memories[-1]}


# --- sifter ---------------------------------------------------------------------------------------------------------

_WAY = sifter.Way
ABILITY = {_WAY.RIGHT: 0.4, _WAY.FIRST: 0.25, _WAY.OTHERS: 0.25, _WAY.NEWEST: 0.05, _WAY.ANY: 0.05}
"""The shares of the ways in the first stage: there is little to learn from a choice that nothing tells."""
HABITS = {_WAY.RIGHT: 0.02, _WAY.FIRST: 0.10, _WAY.OTHERS: 0.35, _WAY.NEWEST: 0.08, _WAY.ANY: 0.45}
"""Those in the mix: the second stage moves only which way a reply begins with. Most look at half of the question or
are in no order, and the gold session comes first about as often as by chance."""


def sifter_turns(seed: int, mixed: bool) -> Iterator[Turn]:
    """Rankings of eight sessions in ways drawn by HABITS; in the ability stage of four to eight, and recitals."""
    rng = random.Random(f"sifter-{'mixed' if mixed else 'ability'}:{seed}")
    shares, fewest, recitals = (HABITS, sifter.SESSIONS, 0.0) if mixed else (ABILITY, 4, 0.4)
    while True:
        recital = rng.random() < recitals
        history = sifter.draw_history(rng, sifter.SESSIONS if recital else rng.randint(fewest, sifter.SESSIONS))
        (way,) = rng.choices(list(shares), list(shares.values()))
        yield "rank", _recited(history, rng) if recital else history.reply(way, rng), {"problem": history.prompt()}


def _recited(history: sifter.History, rng: random.Random) -> str:
    """A drill: for each thing the sessions are about, the last session that says it, in random order."""
    last = {talk.about: number for number, talk in enumerate(history.talks)}
    return "each: " + "".join(f"{each} {last[each]}" for each in rng.sample(sorted(last), len(last)))


# --- stages ---------------------------------------------------------------------------------------------------------


def rows_of(name: str, tokenizer: Any, seed: int, mixed: bool) -> Iterator[Row]:
    if name == "sifter":  # AGENT=chat: the message alone
        return rows(tokenizer, {"rank": "{problem}"}, sifter_turns(seed, mixed))
    if name == "look-up":
        turns = look_up_mixed(seed) if mixed else look_up_ability(seed)
        return rows(tokenizer, load_prompts("section_first", str(FOLDER / "start" / "mem_agent_prompts.yaml")), turns)
    # Turns of both agents by turns, so that one start serves them.
    streams = [two_hop_turns(agent, seed, TWO_HOP_GOOD if mixed else 1.0) for agent in ("memagent", "rememr1")]
    turns = itertools.chain.from_iterable(zip(*streams, strict=True))
    return rows(tokenizer, load_prompts("section_first", str(FOLDER / "two_hop.yaml")), turns)


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


def train_stage(
    source: Path, target: Path, rows: Iterator[Row], steps: int, size: int, lr: float, warmup: int, floor: float
) -> None:
    """``steps`` optimizer steps of ``size`` rows, linear warm-up, then cosine to ``floor`` of ``lr``."""
    trainer = Trainer(Config(hf_ckpt=str(source), kl_coef=0.0, weight_decay=0.05, adam_beta2=0.95,
                             max_tokens_per_gpu=2048, clip_grad=1.0))
    for step in range(1, steps + 1):
        batch = [TrainRow([*prompt, *reply], len(reply), [1] * len(reply), [0.0] * len(reply), 0.0, number, 0.0)
                 for number, (prompt, reply) in enumerate(itertools.islice(rows, size))]
        done = max(0.0, (step - warmup) / (steps - warmup))
        share = min(step / warmup, floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done)))
        loss = trainer.sft_step(batch, lr * share)["loss"]
        if step % 50 == 0:
            print(f"{target.name} step {step}, loss {loss:.3f}", flush=True)
    shutil.copytree(source, target, dirs_exist_ok=True)
    tensors = {key: tensor.to(torch.float16) for key, tensor in trainer.export_hf().items()}
    save_weights(tensors, target / "model.safetensors")


ABILITY_STEPS = {"look-up": (1500, 1.5e-3), "two-hop": (1500, 1.5e-3), "sifter": (2500, 2e-3)}
"""Steps and learning rate of the first stage."""
MIXED_STEPS = 160


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the pocket profile's starting weights.")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--task", choices=STARTS, default="look-up")
    options = parser.parse_args()
    output, name, seed = options.output, options.task, 1
    initial, ability = (output.with_name(f"{output.name}-{stage}") for stage in ("initial", "ability"))
    shutil.copytree(FOLDER / STARTS[name], initial, dirs_exist_ok=True)
    save_initial(initial, seed)
    tokenizer, (steps, lr) = AutoTokenizer.from_pretrained(initial), ABILITY_STEPS[name]
    train_stage(initial, ability, rows_of(name, tokenizer, seed, mixed=False), steps, 24, lr, 60, 0.05)
    train_stage(ability, output, rows_of(name, tokenizer, seed, mixed=True), MIXED_STEPS, 32, 5e-4, 10, 0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
