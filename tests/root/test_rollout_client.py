"""The client against a router with faults: dialects, retries, limits, alignment, routing keys, what goes ahead."""

import asyncio

import pytest

from mem_agent import rollout_client
from mem_agent.agents.records import FailureKind, StopReason, TurnFailed, TurnKind, TurnRequest
from mem_agent.hooks.host import sampling_of
from mem_agent.rollout_client import Dialect, Endpoint, How, RouterClient, turn_key
from mem_agent.tests.helpers.fake_router import FakeRouter, log_probs_of, running, sglang_answer, vllm_answer

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
            client = RouterClient(Endpoint(dialect, f"http://127.0.0.1:{router.port}", **endpoint), concurrency)
            try:
                return await work(client)
            finally:
                await client.close()

    return asyncio.run(main())


def ask(router, sampling=HOST, **options):
    how = How(sampling=sampling_of(sampling, [2]))
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
    assert (reply.token_ids, reply.log_probs, reply.stop) == ([8, 9], log_probs_of([8, 9]), StopReason.STOP)
    assert (reply.weight_version, reply.cached_tokens) == ("v1", 2)
    salted = Endpoint(dialect, "", salted=True).build_request([5], 9, HOST, "g")[0]
    assert salted.get("cache_salt") == ("g" if dialect is VLLM else None) and "cache_salt" not in body


def test_host_parameters_are_read_under_both_names():
    read = sampling_of({"sampling_seed": 3, "top_k": 0, "stop_token_ids": [1]}, [2, 1])
    assert (read["seed"], read["top_k"], read["stop_token_ids"]) == (3, None, [1, 2])


CHOICE = vllm_answer([8, 9])["choices"][0]


@pytest.mark.parametrize("dialect,answer", [
    (VLLM, {"choices": [CHOICE | {"logprobs": None}]}), (VLLM, {"choices": [CHOICE | {"token_ids": [8, 9, 10]}]}),
    (VLLM, vllm_answer([8], [None])), (VLLM, vllm_answer([])), (VLLM, vllm_answer([8], finish=None)),
    (VLLM, "garbage"), (SGLANG, sglang_answer([8, 9]) | {"output_ids": [8]}),
    (SGLANG, sglang_answer([8], [None])), (SGLANG, sglang_answer([])), (SGLANG, {"meta_info": {}}),
])
def test_an_answer_without_one_log_prob_per_id_fails(dialect, answer):
    router = FakeRouter(default=answer)
    assert failure(router, dialect=dialect).kind is FailureKind.BAD_RESPONSE
    assert len(router.requests) == 1


@pytest.mark.parametrize("dialect,answer", [
    (VLLM, vllm_answer([8, 9], finish="abort", logprobs=None)), (VLLM, vllm_answer([8], finish={"type": "cancelled"})),
    (SGLANG, sglang_answer([8], finish="abort", output_token_logprobs=None)),
])
def test_an_abort_is_an_answer_without_tokens(dialect, answer):
    reply = ask(FakeRouter(default=answer), dialect=dialect)
    assert reply.stop is StopReason.ABORT and reply.token_ids == []


@pytest.mark.parametrize("dialect,answer", [(VLLM, vllm_answer), (SGLANG, sglang_answer)])
def test_a_turn_that_spans_a_weight_update_names_both_versions(dialect, answer):
    spans = [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}]
    router = FakeRouter(default=answer([8, 9], version="4", weight_versions=spans))
    assert ask(router, dialect=dialect).weight_version == "3+4"


@pytest.mark.parametrize("details,cached", [({"cached_tokens": 0}, 0), ({"cached_tokens": 5}, 5), (None, None)])
def test_a_server_that_does_not_tell_cached_tokens_is_not_taken_to_have_none(details, cached):
    choice = {"token_ids": [8], "logprobs": {"content": [{"logprob": -0.1}]}, "finish_reason": "stop"}
    answer = {"choices": [choice], "usage": {"prompt_tokens": 9, "prompt_tokens_details": details}}
    assert Endpoint(VLLM, "").parse_response(answer).cached_tokens == cached
    meta = {"finish_reason": {"type": "stop"}, "output_token_logprobs": [[-0.1, 8, None]], **(details or {})}
    assert Endpoint(SGLANG, "").parse_response({"meta_info": meta}).cached_tokens == cached


# --- retries and limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault,kind,requests", [
    (503, FailureKind.SERVER_ERROR, 3), (429, FailureKind.RATE_LIMITED, 3), ("drop", FailureKind.CONNECTION, 3),
    (400, FailureKind.REJECTED, 1), (404, FailureKind.REJECTED, 1),
])
def test_failures_have_a_kind_and_retries_are_bounded(fault, kind, requests):
    router = FakeRouter(default=fault)
    error = failure(router)
    assert error.kind is kind and str(router.port) in str(error) and len(router.requests) == requests
    if requests > 1:
        assert ask(FakeRouter([fault, fault, [8]])).token_ids == [8]


def test_a_hanging_server_times_out_without_retry(monkeypatch):
    monkeypatch.setattr(rollout_client, "TIMEOUT_S", 1.0)
    router = FakeRouter(default="hang")
    assert failure(router).kind is FailureKind.TIMEOUT and len(router.requests) == 1


def test_prompts_that_cannot_fit_are_never_sent():
    router = FakeRouter(default=[8])
    error = failure(router, max_tokens=11)
    assert error.kind is FailureKind.LONG_PROMPT and "MEM_CHUNK_TOKENS" in str(error) and router.requests == []
    assert ask(router, max_tokens=12).token_ids == [8]


def test_requests_in_flight_are_bounded_and_the_heaviest_waits_least():
    router = FakeRouter(default=[8], delay=0.02)

    async def work(client):
        how = (How(sampling=HOST, weight=weight) for weight in (0, 1, 5, 3))
        await asyncio.gather(*(client.generate([n], 1, "k", one) for n, one in enumerate(how)))

    asking(router, work, concurrency=1)
    assert router.peak == 1 and [one["token_ids"][0] for one in router.requests] == [0, 2, 3, 1]


def test_nothing_is_sent_once_the_host_aborts():
    router = FakeRouter(default=[8])
    how = How(sampling=HOST, is_aborted=lambda: True)
    reply = asking(router, lambda client: client.generate([5], 1, "k", how))
    assert reply.stop is StopReason.ABORT and router.requests == []


# --- groups -------------------------------------------------------------------------------------------------------


def request(*ids, shared=1):
    return TurnRequest(TurnKind.MEMORY, list(ids), 4, shared)


def test_a_key_is_that_of_the_group_and_of_what_is_shared():
    keys = [turn_key("g", request(*ids, shared=n)) for ids, n in (
        ((1, 2, 3), 2), ((1, 2, 9), 2), ((1, 7, 3), 2), ((1, 2, 3), 3))]
    assert keys[0] == keys[1] and len(set(keys)) == 3 and turn_key("h", request(1, 2, 3, shared=2)) != keys[0]
    assert turn_key("g", request(1, 2, 3, shared=0)) == "g"  # an agent that does not say


def test_each_turn_has_its_own_seed_and_rounds_go_side_by_side():
    router = FakeRouter(default=[8], together=2)

    async def work(client):
        with client.trajectory("g", 1) as session:
            return await session.sample([request(1), request(2)], 3, How(sampling=HOST))

    assert [reply.token_ids for reply in asking(router, work)] == [[8], [8]]
    first, second = (one["sampling_params"]["seed"] for one in router.requests)
    assert first != second != HOST["seed"]


@pytest.mark.parametrize("reads,ended", [
    ({"a": [0, 1], "b": [0, 1], "c": [0]}, []),  # c may still ask for chunk 0
    ({"a": [0, 1], "b": [0, 1], "c": [0, 1]}, [0]),
    ({"a": [0, 1], "b": [0, "end"], "c": [0, 1]}, [0]),  # b stopped reading
    ({"a": [0, 1, 2], "b": [0, "end"], "c": []}, []),  # c has not begun to read
])
def test_a_key_ends_when_the_last_sibling_has_left_it(reads, ended):
    router = FakeRouter(default=[8])

    async def work(client):
        open_ = {name: client.trajectory("g", 3) for name in reads}
        sessions = {name: one.__enter__() for name, one in open_.items()}
        for name, steps in reads.items():
            for step in steps:
                if step == "end":
                    open_.pop(name).__exit__(None, None, None)
                else:
                    await sessions[name].sample([request(step)], 0, How(sampling=HOST))
        await asyncio.sleep(0.05)
        before = list(router.finished)
        for one in open_.values():
            one.__exit__(None, None, None)
        await asyncio.sleep(0.05)
        return before

    assert asking(router, work) == [turn_key("g", request(step)) for step in ended]
    used = {turn_key("g", request(step)) for steps in reads.values() for step in steps if step != "end"}
    assert sorted(router.finished) == sorted(used)  # with its last trajectory the group leaves nothing


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
