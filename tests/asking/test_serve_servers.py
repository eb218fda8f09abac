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
    env = os.environ | POCKET_SETTINGS | {"MEM_AGENT_API_KEY": "secret"}
    with subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        word, url, _, name, *_ = (process.stdout.readline() or "nothing - - -").split()
        assert (word, name) == ("READY", "start")
        client = openai.OpenAI(base_url=url, api_key="secret", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="other").models.list()
        a_stream_reads_the_document(client)
        a_client_that_leaves_frees_the_engine(client)
        process.send_signal(signal.SIGTERM)
        assert process.wait(HANGS_AFTER_S) == 0


def a_stream_reads_the_document(client):
    (example,) = make_examples(seed=7, count=1, chunks=3)
    messages = [{"role": "user", "content": f"{example.context}\n\nQuestion: {example.question}"}]
    chunks = list(client.chat.completions.create(model="start", messages=messages, stream=True, temperature=0))
    told = "".join(getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks)
    assert [line[:5] for line in told.splitlines()] == ["[1/3]", "[2/3]", "[3/3]"]
    assert chunks[-1].mem_agent["sections"] == 3 and chunks[-1].choices[0].finish_reason in ("stop", "length")
    whole = client.chat.completions.create(model="start", messages=messages, temperature=0)
    assert whole.choices[0].message.content == "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def a_client_that_leaves_frees_the_engine(client):
    """A document of thousands of sections would be read for minutes; after one turn nobody listens."""
    (example,) = make_examples(seed=7, count=1, chunks=3)
    stream = client.chat.completions.create(model="start", stream=True, messages=[
        {"role": "user", "content": example.question}], extra_body={"documents": [example.context] * 2000})
    for chunk in stream:
        if getattr(chunk.choices[0].delta, "reasoning_content", None):
            break
    stream.close()
    base = str(client.base_url).removesuffix("/v1/")
    wait_for(lambda: "mem_agent_reading 0.0" in client.get(f"{base}/metrics", cast_to=str))
