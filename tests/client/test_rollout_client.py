"""The client against a router with faults: dialects, retries, limits, alignment, routing."""

import asyncio
from types import SimpleNamespace

import pytest

from mem_agent.agents.records import FailureKind, StopReason, TurnFailed
from mem_agent.client.engine_api import Dialect, Endpoint
from mem_agent.client.rollout_client import GenerationClient, RetryPolicy
from mem_agent.config import Config, ConfigError
from mem_agent.hooks.host import HostArgs
from mem_agent.tests.helpers.fake_router import FakeRouter, log_probs_of, running, sglang_answer, vllm_answer
from mem_agent.tests.helpers.patience import HANGS_AFTER_S

SAMPLING = {"temperature": 0.7, "top_p": 0.9, "top_k": -1, "max_new_tokens": 4096, "stop_token_ids": [2], "seed": 11,
            "skip_special_tokens": False, "stop": None}


def ask(router, dialect=Dialect.VLLM, retries=2, timeout=HANGS_AFTER_S, max_tokens=0, times=1, concurrency=8,
        key="group-3", sampling=SAMPLING):
    async def main():
        async with running(router):
            endpoint = Endpoint(dialect, f"http://127.0.0.1:{router.port}", max_tokens)
            client = GenerationClient(endpoint, RetryPolicy(timeout, retries, 0.001), concurrency)
            try:
                calls = (client.generate([5, 6, 7], 9, sampling, key) for _ in range(times))
                return await asyncio.gather(*calls)
            finally:
                await client.close()

    return asyncio.run(main())[0]


def failure(router, **options):
    with pytest.raises(TurnFailed) as error:
        ask(router, **options)
    assert "\n" not in str(error.value)
    return error.value


def test_vllm_request_and_answer():
    router = FakeRouter([[8, 9]])
    generation = ask(router)
    assert router.requests == [
        {"token_ids": [5, 6, 7], "sampling_params": {"temperature": 0.7, "top_p": 0.9, "top_k": -1,
         "stop_token_ids": [2], "seed": 11, "max_tokens": 9, "logprobs": 1}}
    ]
    assert router.headers[0]["x-session-id"] == "group-3"
    assert generation.token_ids == [8, 9] and generation.log_probs == log_probs_of([8, 9])
    assert generation.stop is StopReason.STOP and generation.weight_version == "v1" and generation.cached_tokens == 2


def test_sglang_request_and_answer():
    router = FakeRouter([[8, 9]])
    generation = ask(router, dialect=Dialect.SGLANG)
    assert router.requests == [
        {"input_ids": [5, 6, 7], "return_logprob": True, "sampling_params": {"temperature": 0.7, "top_p": 0.9,
         "top_k": -1, "stop_token_ids": [2], "sampling_seed": 11, "max_new_tokens": 9, "skip_special_tokens": False,
         "no_stop_trim": True, "spaces_between_special_tokens": False}}
    ]
    assert router.headers[0]["X-SMG-Routing-Key"] == "group-3"
    assert generation.token_ids == [8, 9] and generation.log_probs == log_probs_of([8, 9])


@pytest.mark.parametrize("dialect,salt", [(Dialect.VLLM, {"cache_salt": "group-3"}), (Dialect.SGLANG, {})])
def test_a_group_of_an_asynchronous_run_has_a_cache_of_its_own(dialect, salt):
    shared, own = (Endpoint(dialect, "", salted=salted).build_request([5], 9, SAMPLING, "group-3")[0]
                   for salted in (False, True))
    assert own == shared | salt and "cache_salt" not in shared


@pytest.mark.parametrize("fault", [500, 503, 429, "drop"])
def test_passing_faults_are_retried(fault):
    router = FakeRouter([fault, fault, [8]])
    assert ask(router).token_ids == [8]
    assert len(router.requests) == 3


@pytest.mark.parametrize(
    "fault,kind", [(503, FailureKind.SERVER_ERROR), (429, FailureKind.RATE_LIMITED), ("drop", FailureKind.CONNECTION)]
)
def test_retries_are_bounded(fault, kind):
    router = FakeRouter(default=fault)
    assert failure(router, retries=2).kind is kind
    assert len(router.requests) == 3


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_client_errors_are_final_and_quote_the_server(status):
    router = FakeRouter(default=status)
    error = failure(router)
    assert error.kind is FailureKind.REJECTED and f"HTTP {status}" in str(error) and f"status {status}" in str(error)
    assert len(router.requests) == 1


def test_a_hanging_server_times_out_without_retry():
    router = FakeRouter(default="hang")
    error = failure(router, timeout=1.0)
    assert error.kind is FailureKind.TIMEOUT and "MEM_REQUEST_TIMEOUT" in str(error)
    assert len(router.requests) == 1


def test_no_server_is_a_connection_failure(silent_port):
    async def main():
        endpoint = Endpoint(Dialect.VLLM, f"http://127.0.0.1:{silent_port}")
        client = GenerationClient(endpoint, RetryPolicy(HANGS_AFTER_S, 1, 0.001), 1)
        try:
            await client.generate([1], 1, SAMPLING, "k")
        finally:
            await client.close()

    with pytest.raises(TurnFailed, match=rf"127\.0\.0\.1:{silent_port}") as error:
        asyncio.run(main())
    assert error.value.kind is FailureKind.CONNECTION


def test_prompts_that_cannot_fit_are_never_sent():
    router = FakeRouter(default=[8])
    error = failure(router, max_tokens=11)
    assert error.kind is FailureKind.LONG_PROMPT and "MEM_CHUNK_TOKENS" in str(error)
    assert router.requests == []
    assert ask(router, max_tokens=12).token_ids == [8]


MISALIGNED = [
    vllm_answer([8, 9]) | {"choices": [vllm_answer([8, 9])["choices"][0] | {"logprobs": None}]},
    vllm_answer([8, 9]) | {"choices": [vllm_answer([8, 9])["choices"][0] | {"token_ids": [8, 9, 10]}]},
    vllm_answer([8, 9]) | {"choices": [vllm_answer([8, 9])["choices"][0] | {"token_ids": [8, 10]}]},
    vllm_answer([8], [None]),
    vllm_answer([]),
    vllm_answer([8], finish=None),
    "garbage",
]


@pytest.mark.parametrize("answer", MISALIGNED)
def test_vllm_answers_without_one_log_prob_per_id_fail(answer):
    router = FakeRouter(default=answer)
    assert failure(router).kind is FailureKind.BAD_RESPONSE
    assert len(router.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        sglang_answer([8, 9]) | {"output_ids": [8]},
        sglang_answer([8], [None]),
        sglang_answer([]),
        {"meta_info": {}},
    ],
)
def test_sglang_answers_without_one_log_prob_per_id_fail(answer):
    assert failure(FakeRouter(default=answer), dialect=Dialect.SGLANG).kind is FailureKind.BAD_RESPONSE


@pytest.mark.parametrize(
    "dialect,answer",
    [
        (Dialect.VLLM, vllm_answer([8, 9], finish="abort", logprobs=None)),
        (Dialect.VLLM, vllm_answer([8], finish={"type": "cancelled"})),
        (Dialect.SGLANG, sglang_answer([8], finish="abort", output_token_logprobs=None)),
    ],
)
def test_an_abort_is_an_answer_without_tokens(dialect, answer):
    generation = ask(FakeRouter(default=answer), dialect=dialect)
    assert generation.stop is StopReason.ABORT and generation.token_ids == []


@pytest.mark.parametrize("dialect,answer", [(Dialect.VLLM, vllm_answer), (Dialect.SGLANG, sglang_answer)])
def test_a_turn_that_spans_a_weight_update_names_both_versions(dialect, answer):
    spans = [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}]
    router = FakeRouter(default=answer([8, 9], version="4", weight_versions=spans))
    assert ask(router, dialect).weight_version == "3+4"


@pytest.mark.parametrize("dialect", Dialect)
def test_a_top_k_of_0_is_not_sent(dialect):
    router = FakeRouter(default=[8])
    ask(router, dialect, sampling=SAMPLING | {"top_k": 0})
    assert "top_k" not in router.requests[0]["sampling_params"]


def test_requests_in_flight_are_bounded():
    router = FakeRouter(default=[8], delay=0.02, together=3)
    ask(router, times=12, concurrency=3)
    assert router.peak == 3


@pytest.mark.parametrize("details,cached", [
    ({"cached_tokens": 0}, 0), ({"cached_tokens": 5}, 5), (None, None),
])
def test_a_server_that_does_not_tell_cached_tokens_is_not_taken_to_have_none(details, cached):
    choice = {"token_ids": [8], "logprobs": {"content": [{"logprob": -0.1}]}, "finish_reason": "stop"}
    answer = {"choices": [choice], "usage": {"prompt_tokens": 9, "prompt_tokens_details": details}}
    assert Endpoint(Dialect.VLLM, "").parse_response(answer).cached_tokens == cached
    meta = {"finish_reason": {"type": "stop"}, "output_token_logprobs": [[-0.1, 8, None]], **(details or {})}
    assert Endpoint(Dialect.SGLANG, "").parse_response({"meta_info": meta}).cached_tokens == cached


def args(**values):
    return SimpleNamespace(**values)


@pytest.mark.parametrize(
    "host_args,expected",
    [
        (args(vllm_router_ip="10.0.0.1", vllm_router_port=3, vllm_max_model_len=99),
         Endpoint(Dialect.VLLM, "http://10.0.0.1:3", 99)),
        (args(sglang_router_ip="::1", sglang_router_port=3, sglang_context_length=None),
         Endpoint(Dialect.SGLANG, "http://[::1]:3", 0)),
    ],
)
def test_dialect_follows_what_the_host_offers(host_args, expected):
    assert HostArgs.of(host_args).router == expected


def test_own_limit_wins_and_no_router_is_an_error():
    config = Config(mem_max_prompt_tokens=50)
    host_args = args(vllm_router_ip="h", vllm_router_port=1, vllm_max_model_len=9, mem_agent=config)
    assert HostArgs.of(host_args).router.max_tokens == 50
    with pytest.raises(ConfigError, match="no router"):
        _ = HostArgs.of(args()).router
