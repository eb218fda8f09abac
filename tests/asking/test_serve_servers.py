"""`mem-agent serve` on real engines, as a user runs it: the pocket model, OpenAI's client, a client that leaves."""

import os
import signal
import subprocess
import sys

import openai
import pytest

from mem_agent.pocket.task import make_examples
from mem_agent.tests.helpers.asking import POCKET, POCKET_SETTINGS
from mem_agent.tests.helpers.patience import HANGS_AFTER_S, wait_for

pytestmark = pytest.mark.servers


def test_the_pocket_model_is_served(tmp_path):
    command = [sys.executable, "-m", "mem_agent", "serve", str(POCKET), "--port", "0"]
    with subprocess.Popen(command, env=os.environ | POCKET_SETTINGS, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        url = process.stdout.readline().decode().split()[1]
        client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
        (example,) = make_examples(seed=7, count=1, chunks=3)
        question = {"role": "user", "content": f"{example.context}\n\nQuestion: {example.question}"}
        ask = {"model": "start", "temperature": 0, "messages": [question]}
        whole = client.chat.completions.create(stop=["zzz"], **ask)
        chunks = list(client.chat.completions.create(stream=True, **ask))
        assert whole.choices[0].message.content == "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        # Thousands of sections would be read for minutes; after one turn nobody listens.
        parts = [{"type": "text", "text": text} for text in (example.context * 999, example.question)]
        ask["messages"] = [{"role": "user", "content": parts}]
        stream = client.chat.completions.create(stream=True, **ask)
        next(chunk for chunk in stream if getattr(chunk.choices[0].delta, "reasoning_content", None))
        stream.close()
        wait_for(lambda: "mem_agent_reading 0.0" in client.get(url[:-3] + "/metrics", cast_to=str))
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_AFTER_S) == 0
