"""The prompts of ReMemR1's published training loop, token for token, all turns of a document.

    REMEMR1_ROOT=... python -m pytest tests/agents/test_published_training.py

It carries and recalls as its evaluation does, but asks before it adds, and encodes what it carries again.
"""

import asyncio
import copy
import logging
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mem_agent.agents import build_agent
from mem_agent.agents.documents import split_chunks
from mem_agent.agents.interface import Reading
from mem_agent.agents.published import main
from mem_agent.agents.records import Generation, StopReason
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config
from mem_agent.rollout import run_trajectory
from mem_agent.tests.helpers import published
from mem_agent.tests.helpers.published import REMEMR1
from mem_agent.tests.helpers.scripted import by_turn
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

CHUNK, REPLY, TURNS = 30, 160, 6
REPLIES = (
    "<thinking>so</thinking><update>Anna has the red key</update>\n<recall>who saw Anna?</recall>",
    "<update>Ben saw Anna\nby the mill</update><recall>the key and the door</recall> <recall>Lyon</recall>",
    "<update>Cleo in Lyon</update><recall>qqq\nzzz</recall>",
    "no tags, the key of Ben",
    "  <recall>blue</recall> <update>the door is blue </update> ",
    "<recall>nothing that matches: 東京</recall>",
)


TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}assistant:\n"


def their_prompts(agent, question, document, replies):
    """The prompts of all turns, of two equal readings: it reads none alone. ``replies`` are token ids by turn."""
    questions = np.empty(2, object)
    questions[:] = [question] * 2
    agent.start(SimpleNamespace(
        batch={"context_length": torch.tensor([len(document)] * 2), "context_ids": torch.tensor([document] * 2)},
        non_tensor_batch={"prompt_ids": questions},
    ), {})
    found = []
    while not agent.done():
        (message, _), _ = agent.action()
        agent.update(SimpleNamespace(batch={"responses": torch.tensor([replies[len(found)]] * 2)}))
        found.append(message.tolist())
    return found


def our_prompts(agent, question, document, replies):
    found = []

    async def sample(request, number):
        found.append(list(request.prompt_ids))
        return Generation(replies[number], [0.0] * len(replies[number]), StopReason.STOP)

    asyncio.run(run_trajectory(agent, Reading(question, split_chunks(document, CHUNK, TURNS)), by_turn(sample)))
    return found


@pytest.mark.parametrize("order,same", [("ask_first", True), ("add_first", False)])
def test_every_turn_of_its_training(order, same, tmp_path):
    absent = ("verl", "tensordict", "omegaconf", "openai")
    module = published.load(published.checkout(REMEMR1), "recurrent.impls.memory_revisit", *absent)
    logging.getLogger(module.logger.name).setLevel(logging.ERROR)
    tokenizer = copy.deepcopy(make_tokenizer(thinking_tokens=False))
    tokenizer.chat_template = TEMPLATE
    vocabulary = Vocabulary(tokenizer)
    sizes = {"context_key": "", "max_prompt_length": 50, "chunk_size": CHUNK, "max_chunks": TURNS,
             "max_memorization_length": REPLY, "max_final_response_length": REPLY}
    theirs = published.settle_ties(module).MemoryAgent(tokenizer, module.MemoryConfig(**sizes))
    texts = str(tmp_path / "texts.yaml")
    assert main(["--checkout", str(published.checkout(REMEMR1)), "--of", "rememr1-train", "--output", texts]) == 0
    agent = build_agent(
        Config(agent="rememr1", mem_prompts=texts, mem_max_memory=REPLY, mem_max_final=REPLY,
               agent_args=f"carry=reply recall=tfidf_tokens recall_order={order}"), vocabulary, {},
    )
    rng, question, equal = random.Random(4), vocabulary.encode_text("Who has the red key?"), []
    for _ in range(40):
        letters = rng.choices("abcdefgh", k=CHUNK * TURNS - rng.randint(0, 9))
        document = [vocabulary.encode_text(letter)[0] for letter in letters]
        replies = [[*vocabulary.encode_text(rng.choice(REPLIES)), tokenizer.eos_token_id] for _ in range(TURNS + 1)]
        wanted, given = (prompts(one, question, document, replies)
                         for prompts, one in ((their_prompts, theirs), (our_prompts, agent)))
        equal += [w == g for w, g in zip(wanted, given, strict=True)]
    assert len(equal) == 40 * (TURNS + 1) and all(equal) == same
