"""Workers get what they need; tokens go by file, never by value."""

import stat
from pathlib import Path

import pytest
import yaml

from mem_agent.launch.remote_env import runtime_env_file, token_files, worker_variables
from mem_agent.system.process_environment import is_secret

SECRETS = {"HF_TOKEN": "hf_abc", "WANDB_API_KEY": "wb_abc", "NCCL_SECRET": "x", "VLLM_API_KEY": "y"}
USER = {"NCCL_DEBUG": "INFO", "HF_HOME": "/hf", "HF_CKPT": "/model", "NO_PROXY": "10.1.1.1", "LANG": "C", **SECRETS}


def variables(env):
    return worker_variables(env, python_path="/p", save_path="/run", master_addr="10.0.0.1", nvlink=True)


def test_library_settings_pass_and_secrets_and_own_settings_do_not():
    found = variables(USER)
    assert found["NCCL_DEBUG"] == "INFO" and found["HF_HOME"] == "/hf" and found["NCCL_NVLS_ENABLE"] == "1"
    assert found["no_proxy"] == found["NO_PROXY"] == "127.0.0.1,localhost,10.0.0.1,10.1.1.1"
    assert not {"HF_CKPT", "LANG", *SECRETS} & set(found)


@pytest.mark.parametrize("name,value", [
    ("NCCL_IB_PKEY", "3"), ("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", "256"),
    ("SGLANG_INIT_NEW_TOKEN_RATIO", "0.7"),
])
def test_settings_of_libraries_that_only_sound_like_secrets_pass(name, value):
    assert variables({name: value})[name] == value


def test_the_users_own_setting_wins():
    assert variables({"NCCL_NVLS_ENABLE": "0"})["NCCL_NVLS_ENABLE"] == "0"


@pytest.mark.parametrize("name,secret", [("HF_TOKEN", True), ("WANDB_API_KEY", True), ("MY_PASSWORD", True),
                                         ("HF_TOKEN_PATH", False), ("TOKENIZERS_PARALLELISM", False),
                                         ("WANDB_APIKEY", True), ("GITHUB_PAT", True), ("MYSQL_PWD", True),
                                         ("OLDPWD", False), ("NCCL_IB_PKEY", False), ("CORP_APPKEY", True)])
def test_names_that_mean_a_secret(name, secret):
    assert is_secret(name) is secret


@pytest.mark.parametrize("name", [
    "DB_PASS", "SMTP_PASS", "PGPASS", "SSHPASS", "BASIC_AUTH", "DOCKER_AUTH_CONFIG", "REGISTRY_AUTH", "AWS_CREDS",
    "SESSION_COOKIE", "TIKTOKEN_API_KEY", "HTTP_AUTHORIZATION", "MY_TOKENIZERS_SECRET",
])
def test_names_that_mean_a_secret_in_short(name):
    assert is_secret(name)


@pytest.mark.parametrize("name", [
    "TIKTOKEN_CACHE_DIR", "SSH_AUTH_SOCK", "RAY_AUTH_MODE", "XAUTHORITY", "GIT_AUTHOR_NAME",
    "VLLM_ENABLE_PREGRAD_PASSES", "BYPASS_PROXY",
])
def test_names_that_only_sound_like_it(name):
    assert not is_secret(name)


def test_tokens_are_files_only_their_owner_reads_and_gone_afterwards(tmp_path):
    with runtime_env_file(variables(USER), USER, tmp_path) as runtime_env:
        text = runtime_env.read_text()
        env = yaml.safe_load(text)["env_vars"]
        assert Path(env["HF_TOKEN_PATH"]).read_text() == "hf_abc"
        assert "machine api.wandb.ai" in Path(env["NETRC"]).read_text() and "wb_abc" in Path(env["NETRC"]).read_text()
        for path in (env["HF_TOKEN_PATH"], env["NETRC"]):
            assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(env["NETRC"]).parent.stat().st_mode) == 0o700
        assert not any(value in text for value in SECRETS.values() if len(value) > 1)
    assert not Path(env["HF_TOKEN_PATH"]).exists()


def test_files_go_away_when_the_run_fails(tmp_path):
    with pytest.raises(RuntimeError), runtime_env_file({}, USER, tmp_path):
        raise RuntimeError
    assert not (tmp_path / "tokens").exists()


def test_without_tokens_there_is_no_reference():
    assert token_files({"PATH": "/bin"}, Path("/x")) == {}


def test_a_private_wandb_server_is_named(tmp_path):
    files = token_files({"WANDB_API_KEY": "k", "WANDB_BASE_URL": "https://wandb.example.org:8443"}, tmp_path)
    ((_, content),) = files.values()
    assert content.startswith("machine wandb.example.org\n")


def test_a_blank_key_hides_no_other(tmp_path):
    """As where the run asks in its own process."""
    found = token_files({"ANSWER_KEY": " ", "API_KEY": "k"}, tmp_path, {"ANSWER_KEY_FILE": ("ANSWER_KEY", "API_KEY")})
    assert list(found.values()) == [("ANSWER_KEY_FILE", "k")]
