"""Engines of ANSWER_CKPT: a chat client gets replies through their router, twice the same to one seed."""

import asyncio

import pytest

from mem_agent.client.chat_client import ChatClient
from mem_agent.client.chat_settings import ChatSettings
from mem_agent.config import Config
from mem_agent.serving.engine import SERVED_NAME
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.training.rollout_side import answering_fleet

pytestmark = pytest.mark.servers


def test_a_chat_client_is_answered_by_the_frozen_models_engine(tmp_path):
    config = Config(reward="answer_utility", answer_ckpt=str(make_tiny_model(tmp_path / "model")), answer_budget=64,
                    save_path=str(tmp_path / "run"), engine_kv_bytes=2**26)

    async def asked():
        fleet = answering_fleet(config)
        async with fleet:
            client = ChatClient(ChatSettings(url=fleet.url, model=SERVED_NAME, max_output_tokens=8, temperature=1.0))
            messages = [{"role": "user", "content": "What is the capital?"}]
            replies = await asyncio.gather(*(client.ask(messages, seed) for seed in (1, 1, 2)))
            await client.close()
            return replies

    first, again, other = asyncio.run(asked())
    assert first == again != other
