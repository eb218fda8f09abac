"""The client against a router with faults: dialects, retries, limits, alignment, routing keys, what goes ahead."""

import asyncio

import pytest

from mem_agent import rollout_client
from mem_agent.agents.records import FailureKind, Generation, Section, StopReason, TurnFailed, TurnKind, TurnRequest
from mem_agent.hooks.host import sampling_of
from mem_agent.rollout_client import MALFORMED, Dialect, Endpoint, How, RouterClient, turn_key
from mem_agent.tests.helpers.fake_router import FakeRouter, Raw, log_probs_of, running, sglang_answer, vllm_answer

VLLM, SGLANG = Dialect.VLLM, Dialect.SGLANG
HOST = {"temperature": 0.7, "top_p": 0.9, "top_k": -1, "max_new_tokens": 4096, "stop_token_ids": [2], "seed": 11,
        "skip_special_tokens": False, "stop": None}


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr(rollout_client, "BACKOFF_S", 0.001)
    monkeypatch.setattr(rollout_client, "RETRIES", 2)


def asking(router, work, dialect=VLLM, concurrency=8, **endpoint):
    """The result of ``work(client)`` beside a running ``router``."""

    async def main():
        async with running(router):
            client = RouterClient(Endpoint(dialect, router.url, **endpoint), concurrency)
            try:
                return await work(client)
            finally:
                await client.close()

    return asyncio.run(main())


def ask(router, is_aborted=lambda: False, **options):
    how = How(sampling=sampling_of(HOST, [2]), is_aborted=is_aborted)
    return asking(router, lambda client: client.generate([5, 6, 7], 9, "group-3", how), **options)


def failure(router, **options):
    with pytest.raises(TurnFailed) as error:
        ask(router, **options)
    return error.value


# --- dialects and answers -----------------------------------------------------------------------------------------


REQUESTS = {
    VLLM: ({"token_ids": [5, 6, 7], "sampling_params": {
        "temperature": 0.7, "top_p": 0.9, "top_k": -1, "stop_token_ids": [2], "seed": 11, "max_tokens": 9,
        "logprobs": 1}}, "x-session-id"),
    SGLANG: ({"input_ids": [5, 6, 7], "return_logprob": True, "sampling_params": {
        "temperature": 0.7, "top_p": 0.9, "top_k": -1, "stop_token_ids": [2], "sampling_seed": 11, "max_new_tokens": 9,
        "skip_special_tokens": False, "no_stop_trim": True, "spaces_between_special_tokens": False}},
        "X-SMG-Routing-Key"),
}


@pytest.mark.parametrize("dialect", REQUESTS)
def test_a_request_and_its_answer(dialect):
    router = FakeRouter([[8, 9]])
    reply, (body, key) = ask(router, dialect=dialect), REQUESTS[dialect]
    assert router.requests == [body] and router.headers[0][key] == "group-3"
    assert reply == Generation([8, 9], log_probs_of([8, 9]), StopReason.STOP, "v1", 2)
    salted = Endpoint(dialect, "", salted=True).build_request([5], 9, HOST, "g")[0]
    assert salted.get("cache_salt") == ("g" if dialect is VLLM else None) and "cache_salt" not in body
    read = sampling_of({"sampling_seed": 3, "top_k": 0, "stop_token_ids": [1]}, [2, 1])  # by a host's other name
    assert (read["seed"], read["top_k"], read["stop_token_ids"]) == (3, None, [1, 2])


SPANS = [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}]
ABORTED = Generation([], [], StopReason.ABORT, "v1", 2)


@pytest.mark.parametrize("dialect,answer,expected", [
    (VLLM, vllm_answer([8, 9], finish="abort", logprobs=None), ABORTED),
    (SGLANG, sglang_answer([8], finish="abort", output_token_logprobs=None), ABORTED),
    (VLLM, vllm_answer([8], [-1.0], weight_versions=SPANS), Generation([8], [-1.0], StopReason.STOP, "3+4", 2)),
    (SGLANG, sglang_answer([8], [-1.0], weight_versions=SPANS), Generation([8], [-1.0], StopReason.STOP, "3+4", 2)),
    # A server that does not tell cached tokens is not taken to have none.
    (VLLM, vllm_answer([8], [-1.0]) | {"usage": None}, Generation([8], [-1.0], StopReason.STOP, "v1", None)),
])
def test_an_answer_says_what_was_sampled_by_which_weights(dialect, answer, expected):
    assert Endpoint(dialect, "").parse_response(answer) == expected


@pytest.mark.parametrize("dialect,answer", [
    (VLLM, vllm_answer([8, 9], logprobs=None)), (VLLM, vllm_answer([8, 9], token_ids=[8, 9, 10])),
    (VLLM, vllm_answer([])), (SGLANG, sglang_answer([8, 9]) | {"output_ids": [8]}), (SGLANG, sglang_answer([])),
])
def test_an_answer_without_one_log_prob_per_id_fails(dialect, answer):
    with pytest.raises(MALFORMED):
        Endpoint(dialect, "").parse_response(answer)


# --- retries and limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault,kind,requests", [
    (503, FailureKind.SERVER_ERROR, 3), (429, FailureKind.SERVER_ERROR, 3), ("drop", FailureKind.CONNECTION, 3),
    (400, FailureKind.REJECTED, 1), (Raw(b'{"choices": ['), FailureKind.BAD_RESPONSE, 1),
])
def test_failures_have_a_kind_and_retries_are_bounded(fault, kind, requests):
    router = FakeRouter(default=fault)
    error = failure(router)
    assert error.kind is kind and str(router.port) in str(error) and len(router.requests) == requests
    if requests > 1:
        assert ask(FakeRouter([fault, fault, [8]])).token_ids == [8]


def test_nothing_is_sent_that_cannot_fit_or_once_the_host_aborts():
    router = FakeRouter(default=[8])
    error = failure(router, max_tokens=11)
    assert error.kind is FailureKind.LONG_PROMPT and "MEM_CHUNK_TOKENS" in str(error)
    assert ask(router, is_aborted=lambda: True).stop is StopReason.ABORT and router.requests == []
    assert ask(router, max_tokens=12).token_ids == [8]


def test_requests_in_flight_are_bounded_and_the_heaviest_waits_least():
    router = FakeRouter(default=[8], delay=0.02)

    async def work(client):
        how = (How(sampling=HOST, weight=weight) for weight in (0, 1, 5, 3))
        await asyncio.gather(*(client.generate([n], 1, "k", one) for n, one in enumerate(how)))

    asking(router, work, concurrency=1)
    assert router.peak == 1 and [one["token_ids"][0] for one in router.requests] == [0, 2, 3, 1]


# --- groups -------------------------------------------------------------------------------------------------------


def request(*ids, shared=1):
    return TurnRequest(TurnKind.MEMORY, list(ids), 4, shared)


def test_each_turn_has_its_own_seed_and_rounds_go_side_by_side():
    router = FakeRouter(default=[8], delay=0.2)

    async def work(client):
        with client.trajectory("g", 1) as session:
            return await session.sample([request(1), request(2)], 3, How(sampling=HOST))

    assert [reply.token_ids for reply in asking(router, work)] == [[8], [8]] and router.peak == 2
    first, second = (one["sampling_params"]["seed"] for one in router.requests)
    assert first != second != HOST["seed"]


@pytest.mark.parametrize("told", [1, 3])
@pytest.mark.parametrize("steps,ended", [
    ("a0 b0 c0 a1 b1", ""),  # c may still ask for chunk 0
    ("a0 b0 c0 a1 b1 c1", "0"),
    ("a0 b0 c0 a1 b! c1", "0"),  # b stopped reading
    ("a0 b0 a1 a2 b!", ""),  # c has not begun to read
])
def test_a_key_ends_when_the_last_sibling_has_left_it(steps, ended, told):
    """Whether the client is told of three siblings or, as in evaluation, of one at a time."""
    router = FakeRouter(default=[8])

    async def work(client):
        reading = {name: client.trajectory("g", told) for name in "abc"}
        sessions = {name: one.__enter__() for name, one in reading.items()}
        for name, chunk in steps.split():
            if chunk == "!":
                reading.pop(name).__exit__(None, None, None)
            else:
                await sessions[name].sample([request(int(chunk))], 0, How(sampling=HOST))
        await asyncio.sleep(0.05)
        before = list(router.finished)
        for one in reading.values():
            one.__exit__(None, None, None)
        await asyncio.sleep(0.05)
        return before

    assert asking(router, work) == [turn_key("g", request(int(chunk))) for chunk in ended]
    used = {turn_key("g", request(int(chunk))) for _, chunk in steps.split() if chunk != "!"}
    assert sorted(router.finished) == sorted(used)  # with its last trajectory the group leaves nothing


@pytest.mark.parametrize("section,same", [(Section(0, 1, 3), True), (None, False), (Section(0, 1, 6), False)])
def test_questions_behind_one_section_have_one_key(section, same):
    """Ids of the section are 2 and 3; then a question, which all siblings of a group share, and a memory."""
    keys = [turn_key("g", TurnRequest(TurnKind.MEMORY, [1, 2, 3, question, 9], 4, shared=4, section=section))
            for question in (7, 8)]
    assert (keys[0] == keys[1]) == same


SHARED = list(range(300))


@pytest.mark.parametrize("dialect,siblings,shared,ahead", [
    (SGLANG, 3, 300, 1), (VLLM, 3, 300, 0), (SGLANG, 1, 300, 0), (SGLANG, 3, 200, 0)])
def test_one_sibling_goes_ahead_where_the_engine_would_compute_the_prefix_for_each(dialect, siblings, shared, ahead):
    """The request ahead fails here, which fails nothing."""
    limit = "max_new_tokens" if dialect is SGLANG else "max_tokens"
    router = FakeRouter(default=lambda body: 400 if body["sampling_params"][limit] == 1 else [8])

    async def one(client, n):
        with client.trajectory("g", siblings) as session:
            return await session.sample([request(*SHARED, n, shared=shared)], 0, How(sampling=HOST))

    replies = asking(router, lambda client: asyncio.gather(*(one(client, n) for n in range(siblings))), dialect)
    assert [one["sampling_params"][limit] for one in router.requests] == [1] * ahead + [4] * siblings
    assert [reply.token_ids for [reply] in replies] == [[8]] * siblings
