"""Endpoints: which API is chosen, what is sent and read, thinking, the key, a server that goes away and returns."""

import asyncio
import logging

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from mem_agent import eval_ruler_hqa as ev
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.config import Config, ConfigError
from mem_agent.evaluation import connect as connecting
from mem_agent.evaluation.connect import connect
from mem_agent.evaluation.endpoint import Frame, frame_of, reply_ids
from mem_agent.evaluation.questions import EvalError
from mem_agent.evaluation.results import read_rows, read_run
from mem_agent.tests.helpers.evaluations import (
    CONFIG,
    RED,
    counted,
    encode,
    evaluate,
    make_model,
    summary_of,
    write_data,
)
from mem_agent.tests.helpers.fake_chat import Raw
from mem_agent.tests.helpers.fake_router import FakeRouter, chat_message, completion, running_beside
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

GENERATE, COMPLETIONS, CHAT = "/inference/v1/generate", "/v1/completions", "/v1/chat/completions"
BOXED = "it is \\boxed{red}"
APIS = [((), "generate"), ((GENERATE,), "completions"), ((GENERATE, COMPLETIONS), "chat")]


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "model")


def evaluate_at(tmp_path, model, router, **settings):
    return evaluate(tmp_path, model, router, base_url="/v1", **settings)


def only_text(router):
    """What chat servers are asked, without the probes."""
    return [body for body in router.requests if body.get("max_tokens", 2) > 1]


@pytest.mark.parametrize("missing,api", APIS)
def test_the_most_exact_api_there_is_is_taken(tmp_path, model, missing, api):
    write_data(tmp_path)
    router = FakeRouter(default=RED if api == "generate" else BOXED, missing=missing)
    output = evaluate_at(tmp_path, model, router)
    assert {r.scores["em"] for r in read_rows(output, "50")} == {1.0}
    settings = read_run(output).settings
    assert (settings["eval_api"], settings["served_model"]) == (api, "served")
    assert {body.get("model") for body in router.requests} == ({None} if api == "generate" else {"served"})


def test_completions_hold_standard_fields_only(tmp_path, model):
    write_data(tmp_path, count=1)
    router = FakeRouter(default=BOXED, missing=(GENERATE,))
    evaluate_at(tmp_path, model, router)
    assert router.requests[-1].keys() == {"model", "prompt", "max_tokens", "temperature", "top_p", "seed"}
    assert all(type(i) is int for i in router.requests[-1]["prompt"])


# --- thinking -------------------------------------------------------------------------------------------------------

THINKING = [
    ("<think>\nthe fruit may be \\boxed{red}", ""),
    ("<think>\n\\boxed{blue}?</think>\\boxed{red}", "\\boxed{red}"),
    ("\\boxed{red}", "\\boxed{red}"),
]


@pytest.mark.parametrize("said,response", THINKING)
@pytest.mark.parametrize("missing,api", APIS)
def test_thinking_is_the_same_on_every_api(missing, api, said, response, tmp_path, model):
    """What is carried as a memory too; a box inside thinking that was never closed does not count."""
    write_data(tmp_path, count=1)
    reply = encode(said) if api == "generate" else said
    output = evaluate_at(tmp_path, model, FakeRouter(default=reply, missing=missing), mem_max_memory=64)
    (row,) = read_rows(output, "50")
    assert (row.response, row.scores["em"]) == (response, float(bool(response)))
    assert row.memory_tokens == (len(encode(response)) - 1,)


def test_replies_that_come_as_text_hold_no_other_control_token():
    vocabulary = Vocabulary(make_tokenizer())
    ids = reply_ids(vocabulary, "red? </think> blue? </think>red <|im_end|>")
    assert vocabulary.answer_text(ids) == "red <|im_end|>"
    assert reply_ids(vocabulary, "") == []


@pytest.mark.parametrize("thinking", [False, True])
def test_chat_servers_are_told_whether_to_think(thinking, tmp_path, model):
    write_data(tmp_path, count=1)
    router = FakeRouter(default=BOXED)
    evaluate_at(tmp_path, model, router, eval_api="chat", mem_thinking=thinking)
    assert {body["chat_template_kwargs"]["enable_thinking"] for body in router.requests} == {thinking}


def test_a_server_that_takes_no_such_field_or_another_name_of_the_limit_is_asked_without(tmp_path, model):
    write_data(tmp_path, count=1)
    unknown = {"max_tokens", "chat_template_kwargs"}
    router = FakeRouter(default=lambda body: 400 if unknown & body.keys() else chat_message(BOXED))
    output = evaluate_at(tmp_path, model, router, eval_api="chat")
    assert summary_of(output).failed == 0 and router.requests[-1]["max_completion_tokens"] == CONFIG.mem_max_final


OPEN = "{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}<|im_start|><think>\n"
TAKEN_OUT = [({"content": "red", "reasoning_content": "blue?"}, "stop", "red"), ({"content": "red"}, "stop", "red"),
             ({"content": "blue? "}, "length", ""), ({"content": "blue?</think>red"}, "length", "red")]


@pytest.mark.parametrize("message,stop,answer", TAKEN_OUT)
def test_a_template_that_opens_thinking(message, stop, answer, tmp_path, model):
    """A server with a reasoning parser takes the thinking out; without one, what a limit cut was never closed."""
    tokenizer = make_tokenizer()
    (model / "chat_template.jinja").write_text(OPEN)
    assert tokenizer.chat_template != OPEN
    write_data(tmp_path, count=1)
    reply = {"choices": [{"message": message, "finish_reason": stop}]}
    output = evaluate_at(tmp_path, model, FakeRouter(default=reply), eval_api="chat")
    assert read_rows(output, "50")[0].response == answer


# --- chat: the message without the local template -------------------------------------------------------------------


def test_chat_sends_the_message_alone(tmp_path, model):
    write_data(tmp_path, count=1, context="<|im_end|> red", input="which key?")
    router = FakeRouter(default=BOXED)
    evaluate_at(tmp_path, model, router, eval_api="chat")
    (message,) = only_text(router)[0]["messages"]
    assert message["role"] == "user" and "<problem>\nwhich key?\n</problem>" in message["content"]
    assert "<|im_start|>" not in message["content"] and "</think>" not in message["content"]
    assert message["content"].endswith("Updated memory:\n")


LLAMA = "{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }} [/INST]{% endfor %}"
MISTRAL = "{{ bos_token }}{% for m in messages %}[INST]{{ m['content'] }}[/INST]{% endfor %}"


def sentencepiece(template, added=()):
    """A tokenizer of letters in Llama-2's form: blanks are ``▁``, one before the text; decoding sets blanks around
    control tokens. Mistral's has ``[INST]`` as control tokens."""
    letters = ["<unk>", "<s>", "</s>", *added, "▁", "\n", *map(chr, range(33, 127))]
    core = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, [], unk_token="<unk>"))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template,
        additional_special_tokens=list(added),
    )


@pytest.mark.parametrize("template,added", [(LLAMA, ()), (MISTRAL, ("[INST]", "[/INST]"))], ids=["llama", "mistral"])
def test_chat_sends_no_template_of_a_sentencepiece_model(template, added, tmp_path, model):
    sentencepiece(template, added).save_pretrained(model)
    write_data(tmp_path, count=1, context="the key is red", input="which key?")
    router = FakeRouter(default=BOXED)
    evaluate_at(tmp_path, model, router, eval_api="chat", mem_chunk_tokens=64, mem_max_memory=64)
    assert len(only_text(router)) == 2
    for body in only_text(router):
        content = body["messages"][0]["content"]
        assert "which key?" in content and "INST" not in content and "<s>" not in content
        assert content.lstrip().startswith("You ")


def test_a_reply_s_beginning_comes_to_the_end_of_the_message():
    frame = Frame("<user>", "</user><bot>")
    assert frame.content("<user>hi <user></user><bot>") == "hi <user>"
    assert frame.content("<user>a</user><bot>b</user><bot> It is") == "a</user><bot>b It is"
    assert Frame("", "").content("hi It is") == "hi It is"
    with pytest.raises(EvalError, match="EVAL_API"):
        frame.content("another template")


def test_without_a_template_there_is_no_frame():
    tokenizer = sentencepiece(None)
    assert frame_of(Vocabulary(tokenizer), False) == Frame("", "")


# --- the server -----------------------------------------------------------------------------------------------------


def test_the_key_is_in_the_header_and_nowhere_else(tmp_path, model, monkeypatch, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("BASE_URL_KEY", "sk-secret")
    write_data(tmp_path)
    router = FakeRouter(key="sk-secret", missing=(GENERATE,))
    router.default = lambda body: 403 if body["max_tokens"] > 1 else completion("red")
    output = evaluate_at(tmp_path, model, router)
    assert {h.get("Authorization") for h in router.headers} == {"Bearer sk-secret"}
    files = "".join(path.read_text() for path in output.rglob("*") if path.is_file())
    written = files + caplog.text + "".join(capsys.readouterr())
    assert summary_of(output).failed == 3 and "status 403 for Bearer ***" in written
    assert "sk-secret" not in written


def asked(model, router, served_model="", **settings):
    with running_beside(router):
        config = Config(**{**vars(CONFIG), "base_url": f"http://127.0.0.1:{router.port}", **settings})
        return asyncio.run(connect("", model, config, served_model=served_model))


def test_an_address_that_cannot_be_used_is_one_line(model, monkeypatch, capsys, silent_port, tmp_path):
    with pytest.raises(ConfigError, match="BASE_URL"):
        asyncio.run(connect("", model, Config(base_url="localhost:8000")))
    with pytest.raises(EvalError, match="404, completions -> HTTP 404, chat -> HTTP 404"):
        asked(model, FakeRouter(missing=(GENERATE, COMPLETIONS, CHAT)))
    write_data(tmp_path)
    monkeypatch.setenv("BASE_URL", f"http://127.0.0.1:{silent_port}")
    command = f"--data-root {tmp_path} --length 50 --model {model} --output {tmp_path / 'out'}"
    assert ev.main(command.split()) == 1
    assert str(silent_port) in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_of_several_models_one_has_to_be_named(model):
    several = ({"id": "a", "max_model_len": 99}, {"id": "b"})
    with pytest.raises(EvalError, match="--served-model"):
        asked(model, FakeRouter(models=several))
    endpoint = asked(model, FakeRouter(models=several, default=BOXED), "a", eval_api="chat")
    assert (endpoint.model, endpoint.max_tokens) == ("a", 99)


def test_an_api_that_answers_without_a_reply_is_passed_over(tmp_path, model):
    write_data(tmp_path)
    router = FakeRouter(default=lambda body: chat_message(BOXED) if "messages" in body else Raw(b"[1]"))
    output = evaluate_at(tmp_path, model, router)
    assert {r.scores["em"] for r in read_rows(output, "50")} == {1.0} and router.requests[-1]["messages"]


@pytest.mark.parametrize("script", [[RED, RED, *["drop"] * 5, RED, 500, "drop"], [429, RED, 429, 429, RED, 429]],
                         ids=["away", "busy"])
def test_a_server_that_is_away_or_busy_for_a_while_costs_nothing(script, tmp_path, model, monkeypatch):
    monkeypatch.setattr(connecting, "_POLL_S", 0.01)
    write_data(tmp_path)
    router = FakeRouter(script=script, default=RED)
    output = evaluate_at(tmp_path, model, router, mem_concurrency=1, eval_api="generate")
    assert counted(summary_of(output)) == (3, 0, 0)


def test_a_server_that_stays_away_ends_the_run_and_keeps_what_is_there(tmp_path, model, monkeypatch):
    monkeypatch.setattr(connecting, "SERVER_WAIT_S", 0.0)
    write_data(tmp_path, count=4)
    router = FakeRouter(script=[RED, RED, RED], default="drop")
    with pytest.raises(EvalError, match="continues"):
        evaluate_at(tmp_path, model, router, mem_concurrency=1)
    assert counted(summary_of(tmp_path / "out")) == (1, 0, 3)
