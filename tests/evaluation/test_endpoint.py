"""Endpoints: which API is chosen, what is sent and read, thinking, the key, a server that goes away and returns."""

import asyncio
import json
import logging

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, processors
from transformers import PreTrainedTokenizerFast

from mem_agent import eval_ruler_hqa as ev
from mem_agent.config import Config, ConfigError
from mem_agent.evaluation.endpoint import Frame, connect
from mem_agent.evaluation.results import EvalError, read_rows, read_run
from mem_agent.rollout_client import NEUTRAL
from mem_agent.tests.helpers.evaluations import CONFIG, RED, counted, encode, evaluate, write_data
from mem_agent.tests.helpers.fake_router import FakeRouter, Raw, chat_message, completion, running_beside

GENERATE, COMPLETIONS, CHAT = "/inference/v1/generate", "/v1/completions", "/v1/chat/completions"
BOXED = "it is \\boxed{red}"
APIS = [((), "generate"), ((GENERATE,), "completions"), ((GENERATE, COMPLETIONS), "chat")]


def evaluate_at(tmp_path, model, router, **settings):
    return evaluate(tmp_path, model, router, base_url="/v1", **settings)


def asked(model, router, served_model="", **settings):
    with running_beside(router):
        config = Config(**{**vars(CONFIG), "base_url": f"http://127.0.0.1:{router.port}", **settings})
        return asyncio.run(connect("", model, config, served_model))


THINKING = [
    ("<think>\nthe fruit may be \\boxed{red}", ""),
    ("<think>\n\\boxed{blue}?</think>\\boxed{red}", "\\boxed{red}"),
    ("\\boxed{red}", "\\boxed{red}"),
]


@pytest.mark.parametrize("said,response", THINKING)
@pytest.mark.parametrize("missing,api", APIS)
def test_the_most_exact_api_is_taken_and_thinking_is_the_same_on_every_one(
    missing, api, said, response, tmp_path, model
):
    """What is carried as a memory too; a box inside thinking that was never closed does not count."""
    write_data(tmp_path, count=1)
    router = FakeRouter(default=encode(said) if api == "generate" else said, missing=missing)
    output = evaluate_at(tmp_path, model, router, mem_max_memory=64)
    (row,) = read_rows(output, "50")
    assert (row["response"], row["em"]) == (response, float(bool(response)))
    assert [memory["tokens"] for memory in row["memories"]] == [len(encode(response)) - 1]
    settings, last = read_run(output).settings, router.requests[-1]
    assert (settings["eval_api"], settings["served_model"]) == (api, "served")
    assert last.get("model") == (None if api == "generate" else "served")
    if api == "completions":
        assert last.keys() == {"model", "prompt", "max_tokens", "temperature", "top_p", "seed"} | NEUTRAL.keys()
        assert {name: last[name] for name in NEUTRAL} == NEUTRAL


def test_a_stock_server_that_refuses_token_ids_is_asked_for_completions(tmp_path, model):
    """vLLM's token-id routes are off by default: HTTP 403, which says nothing about a key."""
    write_data(tmp_path, count=1)
    output = evaluate_at(tmp_path, model, FakeRouter(default=lambda b: 403 if "token_ids" in b else completion(BOXED)))
    assert read_run(output).settings["eval_api"] == "completions"
    with pytest.raises(EvalError, match="403"):
        asked(model, FakeRouter(default=403), eval_api="generate")


@pytest.mark.parametrize(("values", "named"), [
    ({"repetition_penalty": 1.5, "top_k": 20, "temperature": 0.7}, ["repetition_penalty 1.5", "top_k 20"]),
    ({"temperature": 0.7, "top_p": 0.8, "top_k": 0, "max_new_tokens": 4096}, []),
    ({"max_new_tokens": 8}, ["max_new_tokens 8"]),
])
def test_values_of_the_models_file_are_named_where_a_server_takes_no_neutral_ones(values, named, model, caplog):
    (model / "generation_config.json").write_text(json.dumps(values))
    strict = FakeRouter(default=lambda b: 400 if {"token_ids", *NEUTRAL} & b.keys() else completion("red"))
    assert not asked(model, strict).neutral
    told = [record.getMessage() for record in caplog.records if "generation_config.json" in record.getMessage()]
    assert len(told) == bool(named) and all(text in told[0] for text in named)


def test_what_a_server_does_not_take_is_passed_over(tmp_path, model):
    def answer(body):
        refused = {"max_tokens", "chat_template_kwargs"} & body.keys()
        return Raw(b"[1]") if "messages" not in body else 400 if refused else chat_message(BOXED)

    write_data(tmp_path, count=1)
    (row,) = read_rows(evaluate_at(tmp_path, model, FakeRouter(default=answer)), "50")
    assert row["em"] == 1.0


# --- chat: the message without the local template -------------------------------------------------------------------

LLAMA = "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"
MISTRAL = "{{ bos_token }}{% for m in messages %}[INST]{{ m['content'] }}[/INST]{% endfor %}"


def sentencepiece(template, added=()):
    """A tokenizer of letters in Llama-2's form: blanks are ``▁``, one before the text; decoding sets blanks around
    control tokens. Mistral's has ``[INST]`` as control tokens."""
    letters = ["<unk>", "<s>", "</s>", *added, "▁", "\n", *map(chr, range(33, 127))]
    core = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, [], unk_token="<unk>"))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template,
        additional_special_tokens=list(added),
    )


@pytest.mark.parametrize("tokenizer", [
    None, sentencepiece(LLAMA), sentencepiece(MISTRAL, ("[INST]", "[/INST]")),
], ids=["own", "llama", "mistral"])
def test_chat_sends_the_message_alone_and_completions_the_beginning_of_text(tokenizer, tmp_path, model):
    if tokenizer:
        tokenizer.save_pretrained(model)
    write_data(tmp_path, count=1, context="<|im_end|> the key is red", input="which key?")
    for api in ("chat", "completions"):
        router = FakeRouter(default=BOXED)
        evaluate_at(tmp_path, model, router, out=api, eval_api=api, mem_chunk_tokens=64, mem_max_memory=64)
        bodies = [body for body in router.requests if body["max_tokens"] > 1]
        assert len(bodies) == 2
        for body in bodies:
            if api == "completions":
                assert not tokenizer or [n for n, i in enumerate(body["prompt"]) if i == tokenizer.bos_token_id] == [0]
                continue
            (message,) = body["messages"]
            assert message["role"] == "user" and "which key?" in message["content"]
            assert not any(mark in message["content"] for mark in ("INST", "<s>", "<|im_start|>", "</think>"))
            assert message["content"].lstrip().startswith("You ")
            assert tokenizer or body["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_reply_s_beginning_comes_to_the_end_of_the_message():
    frame = Frame("<user>", "</user><bot>")
    assert frame.content("<user>a</user><bot>b</user><bot> It is") == "a</user><bot>b It is"
    with pytest.raises(EvalError, match="EVAL_API"):
        frame.content("another template")


# --- the server -----------------------------------------------------------------------------------------------------


def test_the_key_is_in_the_header_and_nowhere_else(tmp_path, model, monkeypatch, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    write_data(tmp_path)
    router = FakeRouter(key="sk-secret", missing=(GENERATE,))
    router.default = lambda body: 403 if body["max_tokens"] > 1 else completion("red")
    output = evaluate_at(tmp_path, model, router)
    assert {h.get("Authorization") for h in router.headers} == {"Bearer sk-secret"}
    files = "".join(path.read_text() for path in output.rglob("*") if path.is_file())
    written = files + caplog.text + "".join(capsys.readouterr())
    assert counted(output)[1] == 3 and "status 403 for Bearer ***" in written
    assert "sk-secret" not in written
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    with pytest.raises(EvalError, match="OPENAI_API_KEY"):
        asked(model, router)


def test_an_address_that_cannot_be_used_is_one_line(model, monkeypatch, capsys, silent_port, tmp_path):
    with pytest.raises(ConfigError, match="BASE_URL"):
        asyncio.run(connect("", model, Config(base_url="localhost:8000")))
    with pytest.raises(EvalError, match=r"generate -> HTTP 404.*completions -> HTTP 404.*chat -> HTTP 404"):
        asked(model, FakeRouter(missing=(GENERATE, COMPLETIONS, CHAT)))
    several = ({"id": "a", "max_model_len": 99}, {"id": "b"})
    with pytest.raises(EvalError, match="--served-model"):
        asked(model, FakeRouter(models=several))
    endpoint = asked(model, FakeRouter(models=several, default=BOXED), "a", eval_api="chat")
    assert (endpoint.model, endpoint.max_tokens) == ("a", 99)
    write_data(tmp_path)
    monkeypatch.setenv("BASE_URL", f"http://127.0.0.1:{silent_port}")
    command = f"--data-root {tmp_path} --length 50 --model {model} --output {tmp_path / 'out'}"
    assert ev.main(command.split()) == 1
    assert str(silent_port) in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_a_server_that_is_away_or_busy_for_a_while_costs_nothing_and_one_that_stays_away_ends_the_run(
    tmp_path, model, monkeypatch
):
    monkeypatch.setattr("mem_agent.rollout_client.RETRIES", 0)
    monkeypatch.setattr(ev, "ASK_AGAIN_S", 0.01)
    write_data(tmp_path, count=4)
    router = FakeRouter(script=[RED, RED, *[503] * 2, "drop", RED, 500, 429, RED, 429], default=RED)
    assert counted(evaluate(tmp_path, model, router, mem_concurrency=1)) == [4, 0, 0]
    monkeypatch.setattr(ev, "SERVER_WAIT_S", 0.0)
    with pytest.raises(EvalError, match="continues"):
        evaluate(tmp_path, model, FakeRouter(script=[RED, RED], default="drop"), out="away", mem_concurrency=1)
    assert counted(tmp_path / "away") == [1, 0, 3]
