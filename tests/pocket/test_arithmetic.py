"""The arithmetic task is honest: one way is right and no other is, the parts are apart, the right way is rare."""

import itertools
import json
import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from mem_agent.agents import build_agent
from mem_agent.agents.chunking import Chunks
from mem_agent.agents.interface import Reading
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.pocket.arithmetic import (
    HIGHEST,
    Problem,
    Way,
    arithmetic_problems,
    draw_worked,
    eval_entry,
    train_row,
)
from mem_agent.pocket.arithmetic_rows import (
    ANY,
    HABITS,
    PROMPTS,
    REPLY_TOKENS,
    config_for,
    rows_of_ways,
    save_tokenizer,
)

START = Path(__file__).parents[2] / "pocket" / "arithmetic_start"
PROBLEM = Problem((7, 3, 5, 4), ("+", "*", "-"))


def value(text):
    """Of a line of numbers and signs, by precedence: products of runs between + and -, then their sum."""
    terms = re.split(r" (?=[+-] )", f"+ {text}")
    total = Fraction(0)
    for term in terms:
        sign, factors = term[0], [int(factor) for factor in term[2:].split(" * ")]
        product = Fraction(1)
        for factor in factors:
            product *= factor
        total += product if sign == "+" else -product
    return total


def steps_of(reply):
    body = re.fullmatch(r"<reasoning>\n(.*)\n</reasoning>\n<answer>\n(\d+)\n</answer>", reply, re.DOTALL)
    way, *steps = body[1].split("\n")
    return way, steps, body[2]


@pytest.mark.parametrize("way,steps,result", [
    (Way.RIGHT, ("3 * 5 = 15", "7 + 15 = 22", "22 - 4 = 18"), 18),
    (Way.LEFT, ("7 + 3 = 10", "10 * 5 = 50", "50 - 4 = 46"), 46),
    (Way.BACKWARDS, ("5 - 4 = 1", "3 * 1 = 3", "7 + 3 = 10"), 10),
    (Way.SHORT, ("3 * 5 = 15", "7 + 15 = 22"), 22),
    (Way.LATE, ("3 * 5 = 15", "15 - 4 = 11"), 11),
    (Way.SUM, ("7 + 3 = 10", "10 + 5 = 15", "15 + 4 = 19"), 19),
    (Way.GUESS, (), 5),
])
def test_each_way_of_working(way, steps, result):
    assert PROBLEM.text == "7 + 3 * 5 - 4"
    worked = PROBLEM.work(way, guess=5)
    assert (worked.steps, worked.value) == (steps, result)
    assert steps_of(worked.reply) == (way.value, list(steps), str(result))


@pytest.mark.parametrize("signs", [("-", "+", "*"), ("+", "-", "*"), ("-", "*", "+")])
def test_the_right_way_is_right_whatever_the_signs(signs):
    problem = Problem((9, 2, 3, 4), signs)
    assert problem.work(Way.RIGHT).value == value(problem.text)


def test_gold_solutions_are_right_and_no_wrong_way_is():
    for problem in arithmetic_problems(1, 500):
        for way in Way:
            worked = draw_worked(random.Random(0), problem, way)
            for step in worked.steps:
                left, result = step.split(" = ")
                assert value(left) == int(result) and 0 <= int(result) <= HIGHEST
            if way is not Way.GUESS:
                assert (worked.value == value(problem.text)) == (way is Way.RIGHT)
        assert problem.text.count("*") == 1 and not re.match(r"\d+ \*", problem.text)


def test_a_row_says_how_it_is_answered():
    row = train_row(3, PROBLEM)
    assert row["prompt"] == PROBLEM.text and row["label"] == "18"
    about = row["metadata"]
    assert about["task"] == "gsm8k" and about["ground_truth"] == ["18"] and about["id"] == "arithmetic-3"
    assert steps_of(about["solution"])[2] == "18"
    assert eval_entry(3, PROBLEM) == {"input": PROBLEM.text, "answers": ["18"], "index": 3, "task": "gsm8k"}


def test_problems_are_a_function_of_seed_and_index_and_the_parts_do_not_overlap():
    first, again, other = (list(arithmetic_problems(seed, 300)) for seed in (1, 1, 2))
    assert first == again and first[:20] == list(arithmetic_problems(1, 20)) and first != other
    held_out = set(arithmetic_problems(1, 300, held_out=True))
    assert all(problem.held_out for problem in held_out) and not any(problem.held_out for problem in first + other)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def test_rows_are_the_prompts_the_agent_builds_and_replies_fit(tokenizer):
    vocabulary = Vocabulary(tokenizer)
    agent = build_agent(config_for(), vocabulary, {})
    for prompt, reply in itertools.islice(rows_of_ways(tokenizer, PROMPTS, 1, ANY), 200):
        question = tokenizer.decode(prompt).split("user\n")[1].split("<|im_end|>")[0]
        (request,) = agent.requests(agent.start(Reading(vocabulary.encode_text(question), Chunks((), 0))))
        assert request.prompt_ids == prompt
        assert reply[-1] == tokenizer.eos_token_id and len(reply) < REPLY_TOKENS


def test_the_mix_is_as_asked(tokenizer):
    rows = itertools.islice(rows_of_ways(tokenizer, PROMPTS, 1, HABITS), 4000)
    ways = Counter(tokenizer.decode(reply).split("\n")[1] for _, reply in rows)
    for way in Way:
        assert ways[way.value] / 4000 == pytest.approx(HABITS[way], abs=0.02), way
    assert 0 < ways[Way.RIGHT.value] < 0.04 * 4000

def test_the_shipped_start_fits_the_code_that_made_it(tokenizer, tmp_path):
    assert (START / "model.safetensors").stat().st_size < 2 * 2**20
    save_tokenizer(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (START / "tokenizer.json").read_bytes()
    assert json.loads((START / "config.json").read_text())["vocab_size"] >= len(tokenizer)


def test_the_shipped_start_can_work_in_the_right_way_and_seldom_does(tokenizer):
    """The probability of the gold reply, token by token, of 64 held-out problems: what a sample is right with, but for
    a lucky guess; and that of the steps and the answer once the right way has been begun."""
    model = AutoModelForCausalLM.from_pretrained(START, dtype=torch.float32).eval()
    vocabulary = Vocabulary(tokenizer)
    agent = build_agent(config_for(), vocabulary, {})
    chosen = len(vocabulary.encode_text(f"<reasoning>\n{Way.RIGHT.value}\n"))
    whole, rest = [], []
    for problem in arithmetic_problems(9, 64, held_out=True):
        (request,) = agent.requests(agent.start(Reading(vocabulary.encode_text(problem.text), Chunks((), 0))))
        reply = [*vocabulary.encode_text(problem.work(Way.RIGHT).reply), tokenizer.eos_token_id]
        with torch.no_grad():
            logits = model(torch.tensor([request.prompt_ids + reply])).logits[0, len(request.prompt_ids) - 1 : -1]
        probabilities = logits.softmax(-1)[range(len(reply)), reply]
        whole.append(float(probabilities.prod()))
        rest.append(float(probabilities[chosen:].prod()))
    assert 0.01 < sum(whole) / 64 < 0.04
    assert sum(rest) / 64 > 0.7
