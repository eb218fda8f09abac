"""What models write, and what engines and chat servers answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from mem_agent.agents.prompts import SLOT, opens_thinking
from mem_agent.agents.recall import words as recalled_words
from mem_agent.agents.released_reply import released_memory, released_query
from mem_agent.agents.rule_recall import NONE, likest
from mem_agent.agents.tagged_reply import examples_in, read_reply
from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.client.chat_client import ChatClient
from mem_agent.client.chat_settings import ChatSettings
from mem_agent.client.engine_api import Dialect, parse_sglang, parse_vllm
from mem_agent.client.token_stream import TokenStream
from mem_agent.evaluation.endpoint import Api, EvalEndpoint, frame_of, reply_ids
from mem_agent.rewards import boxed, reply_form, text_f1
from mem_agent.rewards.answer_kinds import kind_of
from mem_agent.rewards.arithmetic import exact_value
from mem_agent.rewards.exact_match import boxed_exact_match, normalise_answer, normalise_published
from mem_agent.rewards.judge import BadVerdict, read_verdict
from mem_agent.rewards.math_answer import alone_in_its_place, gold_answer, is_right
from mem_agent.rewards.memory_state import Step, state_rewards, supporting_titles
from mem_agent.rewards.option_choice import choice_score, chosen_option
from mem_agent.rewards.plain_number import number_and_unit
from mem_agent.rewards.published_state import prompt_weight, published_state_rewards
from mem_agent.rewards.qa_metrics import score_answer
from mem_agent.rewards.ruler import METRICS, score
from mem_agent.rewards.the_answer_is import the_answer_is
from mem_agent.sessions.answer import answer_of
from mem_agent.sessions.ranking import BadRanking, lenient_ranking, strict_ranking
from mem_agent.system.bounded_json import loads
from mem_agent.tasks import TASKS, TaskRow, load_task
from mem_agent.tests.fuzz.target import Target
from mem_agent.tests.helpers.fake_router import chat_message, completion, sglang_answer, vllm_answer
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer
from mem_agent.traces.pieces import Pieces
from mem_agent.traces.word_diff import marked, shortened, word_diff

WORDS = tuple(word.encode() for word in (
    " ", "\n", "a", "0", ",", ".", "-", "{", "}", "(", ")", "[", "\\", "$", "%", "=", "/", "*", "<", ">", "中", "Ann ",
    "\\boxed{", "\\boxed ", "\\fbox{", "\\text{", "<recall>", "</recall>", "<update>", "</update>", "<thinking>", "a)",
    "</thinking>", "<think>", "</think>", "<answer>", "</answer>", "<ranking>", "</ranking>", "<reasoning>", "####",
    "the answer is ", "answer is ", "1,", "1 000 ", "\\frac{1}{2}", "\\left", "^\\circ", "{\"score\": 1}", "```json\n",
    "option ", "\u2212", "\ud7ff", "\u00a0", "é", "\u0301",
))  # fmt: skip
REPLIES = tuple(reply.encode() for reply in (
    "The capital is \\boxed{Rome}.", "\\boxed{f(\\{1, 2\\}) = {3}}", "so it is \\boxed Rome$", "\\boxed{\\text{a, b}}",
    "<thinking>t</thinking><update>Ann lives in Rome</update> <recall>Ben</recall>", "<update>a<recall>q</recall>",
    "<reasoning>\n16 - 3 = 13\n</reasoning>\n<answer>\n13\n</answer>", "<think>Lyon?</think><answer>Lyon</answer>",
    "<think>7</think>\n<ranking>7,0,3</ranking>", "Therefore, the answer is **Rome**.", "so #### 1,234.5 %", "(b)",
    '```json\n{"score": 0.6, "reason": "x"}\n```', "(5 - 3) * (8 + 2)", "\\frac{7}{20}", "2\\frac{1}{2} apples",
    "我 的 答案是 B", "option c: the third one", "",
))  # fmt: skip


def _text(data: bytes) -> str:
    """As it comes out of JSON and of tokenizers, neither of which gives halves of characters."""
    return data.decode("utf-8", "replace")


def _read_texts(data: bytes) -> None:
    """Everything that reads a reply's text by itself."""
    text = _text(data)
    for read in READERS:
        read(text)


def _ranking(text: str) -> None:
    lenient_ranking(text, 12)
    _or(BadRanking, lambda: strict_ranking(text, 12))


def _or(kind: type[Exception], read: Callable[[], object]) -> None:
    with suppress(kind):
        read()


def _tagged(text: str) -> None:
    found = read_reply(text, examples_in(text[:200]))
    for span in (found.update, found.recall):
        assert span is None or text[span.start : span.end].strip() == text[span.start : span.end]


def _boxes(text: str) -> None:
    for found in (boxed.last_boxed(text), boxed.published_boxed(text)):
        assert found is None or found in text
    boxed.one_box(text)


def _forms(text: str) -> None:
    for form in reply_form.Form:
        reply_form.form_shares(form, text)
    reply_form.answer_place(text), reply_form.reasoning_of(text)


READERS: tuple[Callable[[str], object], ...] = (
    _tagged, _boxes, _forms, _ranking, released_memory, released_query, boxed.after_thinking, alone_in_its_place,
    gold_answer, the_answer_is, number_and_unit, exact_value, kind_of, answer_of, recalled_words, opens_thinking,
    lambda text: _or(BadVerdict, lambda: read_verdict(text)), SLOT.findall,
    lambda text: chosen_option(text, ("(a) Rome", "(b) Lyon", "(c) Bern")),
    lambda text: chosen_option("It is Rome", (text, "Lyon")), lambda text: reply_ids(vocabulary(), text),
)


def _score(data: bytes) -> None:
    """A reply and its golds, parted by NUL, through the metrics and rewards."""
    said, *golds = _text(data).split("\0")
    golds = list(filter(None, golds)) or ["Rome", "the Rome"]
    for style in ("answer", "published", "published_f1"):
        boxed_exact_match(said, golds, style)
    normalise_answer(said), normalise_published(said)
    score_answer(said, golds)
    for unit in ("word", "character"):
        text_f1.answer_f1(said, golds, unit), text_f1.answer_em(said, golds, unit)
    for metric in METRICS:
        score(metric, said, golds)
    steps = [Step(True, golds[0], said, said, lambda: [said], lambda: said, lambda: said)]
    state_rewards(steps, said, golds, golds), published_state_rewards(steps, said, golds)
    prompt_weight(said, golds), choice_score(said, golds, golds), likest(said, NONE, golds[0], (1,))
    for mode in ("medium", "exact"):
        is_right(mode, said, [gold for gold in golds if number_and_unit(gold)])


def _diff(data: bytes) -> None:
    before, _, after = _text(data).partition("\0")
    pieces = word_diff(before, after)
    assert "".join(piece.text for piece in pieces if piece.change != "added") == before
    assert "".join(piece.text for piece in pieces if piece.change != "removed") == after
    marked(shortened(pieces))


def _pieces(data: bytes) -> None:
    ids = [byte % len(make_tokenizer()) for byte in data]
    text = vocabulary().decode(ids)
    assert "".join(Pieces(vocabulary().decode).of(ids, text)) == text or not ids


def _task(data: bytes) -> None:
    """``{"task", "reply", "golds", "metadata"}`` through a task."""
    try:
        found = loads(data)  # as rows are read
    except ValueError:
        return
    if not isinstance(found, dict) or str(found.get("task")) not in _OWN_CHECKED:
        return
    golds, metadata, reply = found.get("golds"), found.get("metadata"), str(found.get("reply"))
    if not isinstance(golds, list) or not isinstance(metadata, dict):
        return
    named = tuple(filter(None, map(str, golds))) or ("Rome",)  # readers of rows refuse those without
    row, task = TaskRow("Which?", named, metadata), load_task(str(found["task"]))
    supporting_titles(metadata)
    for read in (task.reward, task.metrics, task.malformed):
        read(reply, row)
    task.read_answer(reply), task.reasoning(reply), task.solution(row)


_OWN_CHECKED = tuple(name for name in TASKS if name not in ("math", "gsm8k"))
"""The others ask a process of their own, which is not what is looked for here."""


@cache
def vocabulary() -> Vocabulary:
    return Vocabulary(make_tokenizer())


@cache
def _endpoint(api: Api) -> EvalEndpoint:
    frame = frame_of(lambda text: f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n<think>\n")
    return EvalEndpoint(Dialect.VLLM, "http://x", vocabulary=vocabulary(), frame=frame, api=api)


_CHAT = ChatClient(ChatSettings(url="http://127.0.0.1:1", model="m", key="k" * 12))
_JSON: tuple[type[BaseException], ...] = (ValueError, RecursionError)
_BAD_ANSWER = (LookupError, TypeError, ValueError, AttributeError)
"""What ``rollout_client`` takes for a bad response."""


def _read_json(read: Callable[[Any], object]) -> Callable[[bytes], None]:
    """For readers of what a library has decoded: what is no JSON does not reach them."""

    def run(data: bytes) -> None:
        try:
            found = json.loads(data)
        except _JSON:
            return
        read(found)

    return run


def _stream(data: bytes) -> None:
    """The lines of a streamed answer."""
    stream = TokenStream()
    for line in data.split(b"\n"):
        stream.add(line)
    stream.answer()


def _dumped(*values: Any) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


_ROWS = (
    {"task": "qa", "reply": "\\boxed{Rome}", "golds": ["Rome"], "metadata": {"supporting": ["Ann"]}},
    {"task": "ruler", "reply": "Rome", "golds": ["Rome"], "metadata": {"metric": "string_match_all"}},
    {"task": "countdown", "reply": "<answer>(5-3)*(8+2)</answer>", "golds": [],
     "metadata": {"numbers": [3, 5, 8, 2], "target": 20}},
    {"task": "rank_sessions", "reply": "<ranking>1,0,2</ranking>", "golds": [], "metadata": {"shown": 3, "gold": [1]}},
)
TARGETS = (
    Target("reply_texts", _read_texts, REPLIES, WORDS),
    Target("metrics", _score, tuple(b"\0".join((reply, b"Rome", b"1,234.5")) for reply in REPLIES),
           (*WORDS, b"\0", b"the ", b"Rome", b"yes")),
    Target("word_diff", _diff, (b"Ann: Rome\0Ann: Rome, silver", "我 的\0我的".encode(), b"\0"),
           (b"\0", b"a ", b", ")),
    Target("reply_pieces", _pieces, (b"Z\xc3\xbcrich", bytes(range(256))), (b"\xe4\xb8\xad", b" ")),
    Target("tasks", _task, _dumped(*_ROWS), WORDS),
    Target("engine_vllm", _read_json(parse_vllm), _dumped(vllm_answer([5, 6]), vllm_answer([5], finish="abort")),
           (b"stop", b"length", b"abort"), _BAD_ANSWER),
    Target("engine_stream", _stream, (
        b'data: {"choices": [{"token_ids": [8], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason":'
        b' null}]}\ndata: {"choices": [{"token_ids": [9], "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}\n'
        b'data: [DONE]\n',), (b"data: ", b"\n", b"[DONE]", b'{"error": 1}', b"null"), (ValueError,)),
    Target("engine_sglang", _read_json(parse_sglang),
           _dumped(sglang_answer([5, 6]), sglang_answer([5], finish="abort")),
           (b"stop", b"length", b"abort"), _BAD_ANSWER),
    Target("openai_completions", _read_json(lambda a: _endpoint(Api.COMPLETIONS).parse_response(a)),
           _dumped(completion("it is \\boxed{red}")), WORDS, _BAD_ANSWER),
    Target("openai_chat", _read_json(lambda a: _endpoint(Api.CHAT).parse_response(a)),
           _dumped(chat_message("</think> \\boxed{red}")), WORDS, _BAD_ANSWER),
    Target("chat_reply", _CHAT._read, _dumped(chat_message("In Lyon."), {"choices": [{"message": {"content": [
        {"type": "text", "text": "In Lyon."}]}, "finish_reason": "length"}]}), WORDS),
)  # fmt: skip
