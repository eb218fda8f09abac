"""The host on one page: its arguments under the names of slime, of vime and of nobody; settings that it ignores."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.hooks.host import EMBEDDED, OF_HOSTS, HostArgs, check_evaluations, keep_policy, refuse_ignored
from mem_agent.rollout_client import Dialect, Endpoint


def of(**args):
    return HostArgs(SimpleNamespace(**args))


COMMON = {"mem_agent": {"MEM_CHUNK_TOKENS": 7, "FULLY_ASYNC": 1}, "prompt_data": "/data/p.jsonl@[0:9]",
          "reward_key": "score", "eval_reward_key": None, "apply_chat_template_kwargs": {"b": 1, "a": [2]}}
VIME = {"vllm_router_ip": "10.0.0.1", "vllm_router_port": 8000}


@pytest.mark.parametrize("names,endpoint", [
    ({"sglang_router_ip": "10.0.0.1", "sglang_router_port": 30000, "sglang_context_length": 9000},
     Endpoint(Dialect.SGLANG, "http://10.0.0.1:30000", 9000)),
    (VIME | {"vllm_max_model_len": 8000}, Endpoint(Dialect.VLLM, "http://10.0.0.1:8000", 8000, salted=True)),
    (VIME | {"vllm_max_model_len": None, "rollout_max_context_len": 7000, "mem_agent": {"MEM_CHUNK_TOKENS": 7}},
     Endpoint(Dialect.VLLM, "http://10.0.0.1:8000", 7000)),
], ids=["slime", "vime", "vime, sized by its rollouts"])
def test_each_host_is_read_under_its_own_names(names, endpoint):
    """Groups are salted in vime's asynchronous mode, where an update may leave old blocks in its prefix cache."""
    host = of(**COMMON | names)
    assert (host.router, host.config.mem_chunk_tokens) == (endpoint, 7)
    assert (host.prompt_data, host.chat_template_kwargs) == ("/data/p.jsonl@[0:9]", '{"a": [2], "b": 1}')
    assert (host.reward_key, host.eval_reward_key) == ("score", "score")


@pytest.mark.parametrize("args,multiple", [
    ({"data_parallel_size": 4, "use_dynamic_batch_size": False, "micro_batch_size": 3}, 12),
    ({"data_parallel_size": 4, "use_dynamic_batch_size": True, "micro_batch_size": 3}, 4),
    ({"data_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2, "pipeline_model_parallel_size": 3}, 6),
    ({"virtual_pipeline_model_parallel_size": 2, "pipeline_model_parallel_size": 3,
      "microbatch_group_size_per_vp_stage": 5}, 5),
])
def test_rows_of_a_step_are_a_multiple_of_what_the_scheduler_divides(args, multiple):
    assert of(mem_agent={}, **args).row_multiple == multiple


@pytest.mark.parametrize("host", ["slime", "vime"])
def test_an_actor_holds_the_policy_after_it_has_loaded_the_reference(host, monkeypatch):
    class Actor:
        """As in the hosts: the model holds what was loaded or brought back last."""

        def load_other_checkpoint(self, tag, path):
            self.model = path

        def _switch_model(self, tag):
            self.model = tag

    original = Actor.load_other_checkpoint

    class Made(Actor):
        """As Ray makes one: with a wrapper of its own for each method, which calls the one it found."""

        def load_other_checkpoint(self, *args):
            return original(self, *args)

    module = ModuleType(f"{host}.backends.megatron_utils.actor")
    module.MegatronTrainRayActor = Actor
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for _ in range(2):  # the second actor of a process is not wrapped twice
        keep_policy(SimpleNamespace())
        made = Made()
        made.load_other_checkpoint("ref", "/reference")
        assert made.model == "actor"


# --- settings -------------------------------------------------------------------------------------------------------

SET = {"fully_async": True, "host_root": "/slime", "host_args": "--x 1", "engine_args": "--max-num-seqs 4",
       "train_dtype": "bfloat16"}


@pytest.mark.parametrize(("host", "other", "name"), [
    *(("local", "slime", name) for name in OF_HOSTS), *(("slime", "local", name) for name in EMBEDDED)])
def test_a_setting_that_the_host_does_not_read_is_refused(host, other, name):
    config = Config(**{name: SET.get(name, 2)})
    with pytest.raises(ConfigError, match=f"^{name.upper()}=.*HOST={host}"):
        refuse_ignored(config, host)
    refuse_ignored(config, other)


@pytest.mark.parametrize(("settings", "named"), [
    ({"eval_interval": 5}, "EVAL_INTERVAL"), ({"eval_data": "dev.jsonl"}, "EVAL_DATA"),
    ({"eval_interval": 5, "eval_data": "/nowhere/dev.jsonl"}, "/nowhere/dev.jsonl"),
])
def test_evaluations_that_cannot_be_are_refused(settings, named):
    with pytest.raises(ConfigError, match=named):
        check_evaluations(Config(**settings))
