"""Every message of the published evaluation clients is ours too, under the settings that name their behaviour.

    REMEMR1_ROOT=... MEMAGENT_ROOT=... python -m pytest tests/evaluation/test_published_clients.py

Both clients ask one server, whose reply depends on the
question and the section alone; so a message that differs changes no later reply, and every turn is compared.
"""

import asyncio
import hashlib
import json
import random
import re

import pytest
from transformers import AutoTokenizer

from mem_agent import eval_ruler_hqa as ev
from mem_agent.agents.published import main as write_templates
from mem_agent.config import Config
from mem_agent.evaluation.results import read_rows
from mem_agent.tests.helpers import published
from mem_agent.tests.helpers.evaluations import make_model
from mem_agent.tests.helpers.fake_router import FakeRouter, running_beside
from mem_agent.tests.helpers.published import CHUNK, MEMAGENT, REMEMR1, REPLY

NAMES = "Anna Ben Cleo Dov Elif Femi Gus Hana".split()
THINGS = "red key,blue door,old mill,glass bell,Lyon,Zürich,東京,train № 7".split(",")
FORMS = (
    "<thinking>{a} may matter</thinking>\n<update>{a} has the {b}</update>\n<recall>{c} and the {d}</recall>",
    "<update>{a}\nhas the {b}</update> <recall>who saw {c}?</recall> and <recall>the {d}?</recall>",
    "<update>{a} {b}</update><recall>", "no tags at all, {a} has the {b}  ", "  <recall>{d}</recall>  ",
    "<update>{a}</update><recall> </recall>", "<update>{a} {b}</update><recall>xylophone qqq</recall>",
    "<think>not sure about {c}</think>\n\n{a} has the {b}\n", "<think>{a} has the {b}", "",
    "{{braces}} \\boxed{{{a}}} and {b} \N{GRINNING FACE}",
)
"""Thinking, updates and recalls, whole and broken; a query that matches nothing; thinking of a model that thinks."""
ANSWERS = ("Anna", "anna.", "The Anna", "Anna Ben", "Ann", "Ben", "Anna has the **red key**", "yes", "", "Anna of it")
ENDS = ("So \\boxed{{{0}}}. Therefore, the answer is {0}", "I say {0}", "\\boxed{{{0}}}",
        "<think>the answer is Cleo, \\boxed{{Cleo}}</think> The answer is **{0}**.")


def questions(count):
    """(question, document) pairs; 4 to 10 sections or so."""
    rng = random.Random(3)
    for _ in range(count):
        said = {name: [f"{name} saw {rng.choice(NAMES)} with the {rng.choice(THINGS)}." for _ in range(6)]
                for name in rng.sample(NAMES, 6)}
        asked = f"What did {rng.choice(NAMES)} see with {rng.choice(NAMES)} in {rng.randint(1, 99999)}?"
        yield asked, "\n\n".join(f"{name}\n{' '.join(each)}" for name, each in said.items())


def part(message, name):
    return re.findall(rf"<{name}> ?\n(.*?)\n</{name}>", message, re.DOTALL)


def reply_to(body):
    """To a section one of FORMS; to the last turn what is right, nearly right, wrong, or in no form at all."""
    message = body["messages"][0]["content"]
    # The section is last in the published order, and in it stands whatever the document has.
    known = part(message, "problem")[0] + part(message, "section")[-1] if "<section>" in message else message
    rng = random.Random(hashlib.sha256(known.encode()).digest())
    if "<section>" not in message:
        return rng.choice(ENDS).format(rng.choice(ANSWERS))
    names, things = rng.sample(NAMES, 2), rng.sample(THINGS, 2)
    return rng.choice(FORMS).format(a=names[0], b=things[0], c=names[1], d=things[1])


def by_question(router, asked):
    """Every question's messages in order, with what else each request asks for."""
    found = {question: [] for question in asked}
    for body in router.requests:
        if body["max_tokens"] > 1:
            message = body["messages"][0]["content"]
            asks = (message, body["temperature"], body["top_p"], body["max_tokens"])
            found[part(message, "problem")[0]].append(asks)
    return found


def run_both(root, name, wording, agent, tmp_path, **settings):
    """Messages of both clients by question, and the published replies."""
    model = make_model(tmp_path / "model", positions=100_000)
    texts = list(questions(40))
    items = [{"_id": n + 1, "input": asked, "context": document, "answers": ["Anna"], "index": n}
             for n, (asked, document) in enumerate(texts)]
    with running_beside(FakeRouter(default=reply_to, models=({"id": "served"},))) as theirs:
        module = published.client(root, name, theirs.port)
        tokenizer = AutoTokenizer.from_pretrained(model)

        async def ask_all():
            return [await module.async_query_llm(item, "served", tokenizer) for item in items]

        replies = asyncio.run(ask_all())
    assert all(replies), "a published client gave up"
    prompts = str(tmp_path / "prompts.yaml")
    assert write_templates(["--checkout", str(root), "--of", wording, "--output", prompts]) == 0
    (tmp_path / "eval_1.json").write_text(json.dumps(items))
    with running_beside(FakeRouter(default=reply_to, models=({"id": "served"},))) as ours:
        common = {
            "agent": agent, "mem_prompts": prompts, "mem_layout": "memory_first",
            "mem_chunk_tokens": CHUNK, "mem_max_memory": REPLY, "mem_max_final": REPLY, "eval_api": "chat",
            "base_url": f"http://127.0.0.1:{ours.port}", "mem_concurrency": 4, "length": "1",
            "data_root": str(tmp_path),
        }
        config = Config.from_mapping({key.upper(): value for key, value in {**common, **settings}.items()})
        asyncio.run(ev.evaluate(config, model, "", tmp_path / "out", quiet=True))
    asked = [question for question, _ in texts]
    return by_question(theirs, asked), by_question(ours, asked), replies


def shown(turns):
    """A ReMemR1 that asks only empty memories is shown the word None, and the marker of a first turn here and in its
    training."""
    marker = next(iter(part(turns[0][0], "recalled_memory")), "")
    none, said = "<recalled_memory>\nNone\n", f"<recalled_memory>\n{marker}\n"
    return [(message.replace(none, said), *asked) for message, *asked in turns]


RELEASED = "carry=reply recall=tfidf_tokens recall_order=add_first"


@pytest.mark.parametrize("root,name,wording,agent,agent_args,task_args", [
    (MEMAGENT, "recurrent", "memagent-eval", "memagent", "carry=reply", "answer=the_answer_is"),
    (MEMAGENT, "recurrent_boxed", "memagent-boxed", "memagent", "carry=reply", "answer=boxed"),
    (REMEMR1, "rememr1", "rememr1-eval", "rememr1", RELEASED, "answer=boxed"),
])
def test_messages_and_scores_are_the_published_ones(root, name, wording, agent, agent_args, task_args, tmp_path):
    """All scores to two decimals, which the published script rounds each answer's to (``ruler_hqa.calc_metrics``)."""
    folder = published.checkout(root)
    settings = {"agent_args": agent_args, "task_args": task_args}
    theirs, ours, replies = run_both(folder, name, wording, agent, tmp_path, **settings)
    assert sum(map(len, theirs.values())) > 200 and ours == {asked: shown(turns) for asked, turns in theirs.items()}
    utils = published.load(folder / "taskutils" / "memory_eval", "utils")
    extract = utils.extract_answer if name == "recurrent" else utils.extract_boxed_answer
    rows = {row["_id"]: row for row in read_rows(tmp_path / "out", "1")}
    seen = set()
    for n, reply in enumerate(replies):
        thought_off, _ = utils.extract_solution(reply.strip())
        said = extract(thought_off) if thought_off else extract(reply.strip())
        expected = dict.fromkeys(("sub_em", "em", "f1", "prec", "recall", "total_num"), 0.0)
        if said:
            utils.update_answer(expected, said, "Anna")
        row = rows[str(n)]
        found = {"sub_em": row["sub_em_legacy"], "em": row["em"], "f1": row["f1"]}
        assert {key: round(value, 2) for key, value in found.items()} == {
            key: round(float(expected[key]), 2) for key in found}, (reply, said)
        seen.add(tuple(found.values()))
    assert len(seen) >= 3
