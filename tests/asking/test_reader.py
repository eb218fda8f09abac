"""Reading step by step against a router that plays a script: every agent, failures, limits, cancellation."""

import asyncio
from string import ascii_lowercase

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from mem_agent.agents.documents import split_chunks
from mem_agent.agents.records import TurnFailed
from mem_agent.asking.reader import sections_of
from mem_agent.asking.steps import Answered, Delta, Section, Started, TurnDone
from mem_agent.rollout_client import close_clients
from mem_agent.tests.helpers.asking import DOCUMENT, VOCABULARY, model_folder, prompt_of, reader_of, reply, router_of
from mem_agent.tests.helpers.fake_router import running
from mem_agent.tests.helpers.tiny_tokenizer import CHATML

__all__ = ["model_folder"]
ASKED = [{"role": "user", "content": "Who, then?"}]


def read(folder, replies, messages=ASKED, document=DOCUMENT, config=None, streams=False, **options):
    """The steps, how it ended, and what the router was asked; ``replies`` are texts or the router's faults."""
    router, steps = router_of(replies, streams), []

    async def main():
        async with running(router):
            reader = reader_of(folder, router, **config or {})
            try:
                return await reader.read(messages, document, steps.append, **options)
            except TurnFailed as error:
                return error
            finally:
                await close_clients()

    return steps, asyncio.run(main()), router.requests


def params_of(requests):
    return [body["sampling_params"] for body in requests]


def test_every_turn_is_told_then_the_answer_with_its_sources(model_folder):
    steps, answered, requests = read(model_folder, ["red", "red key", "red key", "so \\boxed{key}"])
    started, *turns, delta, final = steps
    assert started == Started((Section(0, 2), Section(2, 4), Section(4, 6)), 6)
    assert [(t.round, t.kind, t.sections, t.memory) for t in turns] == [
        (0, "memory", (0,), "red"), (1, "memory", (1,), "red key"), (2, "memory", (2,), "red key")]
    assert delta == Delta("so \\boxed{key}") and final.kind == "final" and final.sections == ()
    assert answered == Answered(delta.text, "key", (1,), "stop")
    assert "QW" in prompt_of(requests[0]) and "Who, then?" in prompt_of(requests[3])


def test_an_answer_is_told_as_it_comes_without_its_thinking(model_folder):
    replies = ["red", "red", "red", VOCABULARY.encode_markup("<think>hm</think>") + reply("so é \\boxed{red}")]
    streamed, answered, requests = read(model_folder, replies, streams=True, config={"mem_thinking": True})
    deltas = [step.text for step in streamed if isinstance(step, Delta)]
    assert len(deltas) > 5 and "".join(deltas) == answered.text == "so é \\boxed{red}"
    assert [bool(body.get("stream")) for body in requests] == [False, False, False, True]


def test_bytes_that_change_those_before_them_begin_nothing_anew(tmp_path):
    """As SentencePiece models decode: while a second character is not whole, neither is the first."""
    core = Tokenizer(models.BPE({"<unk>": 0} | {f"<0x{byte:02X}>": 1 + byte for byte in range(256)}
                                | {letter: 257 + n for n, letter in enumerate(ascii_lowercase)}, [],
                                unk_token="<unk>", byte_fallback=True))
    core.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    core.add_special_tokens([AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", chat_template=CHATML)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_bytes(orjson.dumps({"max_position_embeddings": 4096}))
    final = tokenizer.encode("so 中文 it", add_special_tokens=False) + [tokenizer.eos_token_id]
    steps, answered, _ = read(tmp_path, [final], document="", streams=True)
    deltas = [step.text for step in steps if isinstance(step, Delta)]
    assert len(deltas) > 2 and "".join(deltas) == answered.text == "so 中文 it"


def test_a_stream_that_breaks_off_is_a_failure_and_not_sent_again(model_folder):
    _, failed, requests = read(model_folder, ["x", "x", "x", [*reply("so")[:1], -1]], streams=True)
    assert failed.kind in ("connection", "bad_response") and len(requests) == 4


def test_requests_are_those_of_evaluation_where_nothing_else_is_asked(model_folder):
    _, _, requests = read(model_folder, [], seed=7)
    assert params_of(requests)[0] | {"temperature": 0.7, "top_p": 0.95} == params_of(requests)[0]
    assert len({one["seed"] for one in params_of(requests)}) == 4
    assert [one["max_tokens"] for one in params_of(requests)] == [32, 32, 32, 16]
    assert read(model_folder, [], seed=7)[2] == requests
    other = params_of(read(model_folder, [], sampling={"temperature": 0.0}, answer_tokens=3)[2])
    assert {one["temperature"] for one in other} == {0.0} and [one["max_tokens"] for one in other] == [32, 32, 32, 3]
    assert "seed" not in other[0]


def test_turns_side_by_side_and_recalled_memories_are_told(model_folder):
    config = {"agent": "parallel", "agent_args": "width=2"}
    steps, answered, _ = read(model_folder, ["red", "blue", "red, blue", "nothing", "\\boxed{blue}"], config=config)
    turns = [step for step in steps if isinstance(step, TurnDone)]
    assert [(t.round, t.sections) for t in turns] == [(0, (0,)), (0, (1,)), (1, ()), (2, (2,)), (3, ())]
    assert [t.memory for t in turns] == ["", "", "red, blue", "red, blue", "red, blue"] and answered.sources == (1,)
    replies = ["<update>red key</update>", "<update>blue</update><recall>red</recall>", "<update>blue</update>", "x"]
    steps, _, _ = read(model_folder, replies, config={"agent": "rememr1", "mem_max_memory": 64})
    assert [step.recalled for step in steps if isinstance(step, TurnDone)] == ["", "", "red key", ""]


def test_an_agent_without_documents_is_shown_it_before_the_question(model_folder):
    messages = [{"role": "system", "content": "Be brief."}, *ASKED]
    _, answered, requests = read(model_folder, ["red"], messages, config={"agent": "chat"})
    assert answered.text == "red" and f"{DOCUMENT}\n\nWho, then?" in prompt_of(requests[0])
    assert "Be brief." in prompt_of(requests[0])


@pytest.mark.parametrize("options,kind,asked", [
    ({"messages": [{"role": "user", "content": " "}]}, "no_question", 0),
    ({"messages": [{"role": "user", "content": "who? " * 50}], "config": {"mem_max_question": 9}}, "long_question", 0),
    ({"document_tokens": 5}, "long_prompt", 0),
    ({"replies": ["red", 400]}, "rejected", 2),
    ({"replies": ["red", "abort"]}, "server_error", 2),
])  # fmt: skip
def test_what_cannot_be_answered_is_a_failure_of_its_kind(model_folder, options, kind, asked):
    _, failed, requests = read(model_folder, **{"replies": [], **options})
    assert failed.kind == kind and str(failed) and len(requests) == asked


# --- sections of a document: in order, without gaps, and where the chunks were cut -----------------------------------


def cut(text, size, decode=VOCABULARY.decode):
    chunks = split_chunks(VOCABULARY.encode_text(text), size, None).chunks
    return [text[s.start : s.end] for s in sections_of(text, chunks, decode)], chunks


@given(st.text(min_size=1), st.integers(1, 9))
def test_sections_joined_are_the_document(text, size):
    texts, chunks = cut(text, size)
    assert "".join(texts) == text and len(texts) == len(chunks)


def test_a_character_that_a_border_cuts_is_in_one_section():
    text = "日本語の文書です。a🙂b🙂🙂c" * 5
    texts, _ = cut(text, 4)
    assert "".join(texts) == text and "�" not in "".join(texts)


CHANGES = {"lower case": str.lower, "no blanks at the ends": str.strip, "quotes": lambda text: text.replace("a", "“")}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_tokenizer_that_changes_texts_shifts_no_border_far(change):
    text = "Anna has the red key. Ben has a blue one, and CARL has none at all; nobody knows why. " * 30
    exact, _ = cut(text, 20)
    found, _ = cut(text, 20, lambda ids: change(VOCABULARY.decode(ids)))
    drift = [abs(len("".join(exact[:i])) - len("".join(found[:i]))) for i in range(len(exact))]
    assert max(drift) <= 2 and "".join(found) == text
