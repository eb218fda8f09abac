"""The host on one page: its arguments under the names of slime, of vime and of nobody; settings that it ignores."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from mem_agent.config import Config, ConfigError
from mem_agent.hooks.host import EMBEDDED, OF_HOSTS, HostArgs, check_evaluations, keep_policy, refuse_ignored
from mem_agent.rollout_client import Dialect, Endpoint


def of(**args):
    return HostArgs(SimpleNamespace(**args))


def test_an_args_without_attributes_is_the_environment_s_config(monkeypatch):
    monkeypatch.delenv("MEGATRON_ROOT", raising=False)
    monkeypatch.setenv("TRAIN_DATA", "/data/t.jsonl")
    monkeypatch.setenv("SAVE_PATH", "/runs/t")
    host = HostArgs(type("Args", (), {})())
    assert host.config == Config(train_data="/data/t.jsonl", save_path="/runs/t")
    assert (host.prompt_data, host.save, host.hf_checkpoint) == ("/data/t.jsonl", "/runs/t", "")
    assert (host.reward_key, host.eval_reward_key) == ("", "")
    assert (host.step_trajectories, host.row_multiple, host.chat_template_kwargs) == (0, 1, "{}")
    with pytest.raises(ConfigError, match="vllm_router_ip"):
        assert host.router


COMMON = {
    "mem_agent": {"MEM_CHUNK_TOKENS": 7}, "hf_checkpoint": "/m", "prompt_data": "/data/p.jsonl@[0:9]",
    "save": "/runs/h", "reward_key": "score", "eval_reward_key": None, "global_batch_size": 64,
    "data_parallel_size": 4, "apply_chat_template_kwargs": {"b": 1, "a": [2]}, "partial_rollout": False,
}
HOSTS = {
    "slime": ({"sglang_router_ip": "10.0.0.1", "sglang_router_port": 30000, "sglang_context_length": 9000},
              Endpoint(Dialect.SGLANG, "http://10.0.0.1:30000", 9000)),
    "vime": ({"vllm_router_ip": "10.0.0.1", "vllm_router_port": 8000, "vllm_max_model_len": 8000},
             Endpoint(Dialect.VLLM, "http://10.0.0.1:8000", 8000)),
    "vime, sized by its rollouts": (
        {"vllm_router_ip": "10.0.0.1", "vllm_router_port": 8000, "vllm_max_model_len": None,
         "rollout_max_context_len": 7000}, Endpoint(Dialect.VLLM, "http://10.0.0.1:8000", 7000)),
}


@pytest.mark.parametrize("names,endpoint", HOSTS.values(), ids=HOSTS)
def test_each_host_is_read_under_its_own_names(names, endpoint):
    host = of(**COMMON, **names)
    assert host.router == endpoint
    assert host.config == Config(mem_chunk_tokens=7) and host.chat_template_kwargs == '{"a": [2], "b": 1}'
    assert (host.hf_checkpoint, host.prompt_data, host.save) == ("/m", "/data/p.jsonl@[0:9]", "/runs/h")
    assert (host.reward_key, host.eval_reward_key) == ("score", "score")
    assert (host.step_trajectories, host.row_multiple) == (64, 4)


@pytest.mark.parametrize("args,multiple", [
    ({"data_parallel_size": 4, "use_dynamic_batch_size": False, "micro_batch_size": 3}, 12),
    ({"data_parallel_size": 4, "use_dynamic_batch_size": True, "micro_batch_size": 3}, 4),
    ({"data_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2, "pipeline_model_parallel_size": 3}, 6),
    ({"virtual_pipeline_model_parallel_size": 2, "pipeline_model_parallel_size": 3,
      "microbatch_group_size_per_vp_stage": 5}, 5),
])
def test_rows_of_a_step_are_a_multiple_of_what_the_scheduler_divides(args, multiple):
    assert of(mem_agent={}, **args).row_multiple == multiple


@pytest.mark.parametrize("dialect,asynchronous,salted", [("vllm", 1, True), ("vllm", 0, False), ("sglang", 1, False)])
def test_groups_have_caches_of_their_own_where_an_update_may_leave_old_blocks(dialect, asynchronous, salted):
    names = {f"{dialect}_router_ip": "h", f"{dialect}_router_port": 1, "mem_agent": {"FULLY_ASYNC": asynchronous}}
    assert of(**names).router.salted is salted


# --- the policy of a continued run ----------------------------------------------------------------------------------


class Actor:
    """As in the hosts: weights by tag, the model holds what was loaded or brought back last."""

    def init(self):
        keep_policy(SimpleNamespace())
        self.backups, self.model = {"actor": "policy"}, "policy"
        self.load_other_checkpoint("ref", "/reference")
        return self.model

    def load_other_checkpoint(self, tag, path):
        self.backups[tag] = self.model = path

    def _switch_model(self, tag):
        self.model = self.backups[tag]


@pytest.mark.parametrize("host", ["slime", "vime"])
def test_an_actor_holds_the_policy_after_it_has_loaded_the_reference(host, monkeypatch):
    module = ModuleType(f"{host}.backends.megatron_utils.actor")
    module.MegatronTrainRayActor = type("MegatronTrainRayActor", (Actor,), dict(vars(Actor)))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    original = module.MegatronTrainRayActor.load_other_checkpoint

    class Made(module.MegatronTrainRayActor):
        """As Ray makes one: with a wrapper of its own for each method, which calls the one it found."""

        def load_other_checkpoint(self, *args):
            return original(self, *args)

    assert Made().init() == "policy"
    assert Made().init() == "policy"  # the second actor of a process is not wrapped twice


# --- settings -------------------------------------------------------------------------------------------------------

SET = {"fully_async": True, "host_root": "/slime", "host_args": "--x 1", "engine_args": "--max-num-seqs 4",
       "train_dtype": "bfloat16"}


@pytest.mark.parametrize(("host", "name"), [
    *(("local", name) for name in OF_HOSTS), *(("slime", name) for name in EMBEDDED)])
def test_a_setting_that_the_host_does_not_read_is_refused(host, name):
    config, other = Config(**{name: SET.get(name, 2)}), "local" if host == "slime" else "slime"
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
