"""A recipe is a list of settings: it gives what it gave when a shell read it, and runs nothing."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from mem_agent.config import Config, variable_names
from mem_agent.system.process_environment import is_secret

ROOT = Path(__file__).parents[2]
RECIPES = sorted(path.stem for path in (ROOT / "recipes").glob("*.env"))
SHELL_LINES = {  # what these lines said while a shell read them
    "arithmetic": ("[MEM_IR=knn*] MEM_IR_MODEL=hashing\n[MEM_IR=memoryr*] MEM_IR_MODEL=hashing\n",
                   'MEM_IR_MODEL=$(case "${MEM_IR:-no}" in knn* | memoryr*) echo hashing ;; esac)\n'),
    "two-hop": ("[AGENT=rememr1] MEM_MAX_MEMORY=24\nMEM_MAX_MEMORY=10\n",
                'MEM_MAX_MEMORY=$([ "$AGENT" = rememr1 ] && echo 24 || echo 10)\n'),
}
BY_A_SHELL = r"""
set -euo pipefail
while IFS= read -r line || [ -n "$line" ]; do
    case "$line" in '' | \#*) continue ;; esac
    name="${line%%=*}" value="${line#*=}"
    case "$value" in \"*\") value="${value:1:-1}" ;; esac
    value="${value//\\\"/\"}"
    [ -n "${!name:-}" ] || export "$name=$(eval $'cat <<VALUE_OF_A_RECIPE\n'"$value"$'\nVALUE_OF_A_RECIPE')"
done <"$1"
env -0
"""
BY_THE_PACK = 'source "$PACK_DIR/_common.sh"; load_recipe "$1"; env -0'
USERS = [{}, {"SEED": "3"}, {"SEED": "08"}, {"AGENT": "memagent"}, {"AGENT": "rememr1", "SEED": "2"},
         {"MEM_IR": "knn"}, {"MEM_IR": "memoryr+"}, {"MEM_IR": "no"}, {"MEM_IR": "r1"},
         {"MEM_MAX_MEMORY": "5", "MEM_IR_MODEL": "x"}]


OWN = ("RECIPE", "MEM_AGENT_RECIPE_LOADED", "_", "SHLVL", "PWD", "OLDPWD")


def loaded(code: str, recipe: Path, env: dict[str, str], *more: str) -> dict[str, str]:
    env = {"PATH": os.environ["PATH"], "PACK_DIR": str(ROOT), **env}
    command = ["bash", "-c", code, "bash", str(recipe), *more]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    pairs = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    return {name: value for name, value in pairs.items() if value and name.isupper() and name not in OWN}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_gives_what_a_shell_made_of_it(name, tmp_path):
    recipe = ROOT / "recipes" / f"{name}.env"
    now, then = SHELL_LINES.get(name, ("", ""))
    text = recipe.read_text()
    assert now in text
    (tmp_path / "old.env").write_text(text.replace(now, then))
    varies = "$" in text or "[" in text
    for env in USERS if varies else USERS[:1]:
        if name == "sifter" and env.get("SEED") == "08":
            continue  # a shell takes that for an octal number
        found = loaded(BY_THE_PACK, recipe, env)
        assert found == loaded(BY_A_SHELL, tmp_path / "old.env", env) and len(found) > 3


def refusal(tmp_path, line, **env):
    recipe = tmp_path / "own.env"
    recipe.write_bytes(b"# a comment\n" + line + b"\nSEED=5\n")
    code = 'source "$0/_common.sh"; load_recipe "$1"; printf "%s" "${NAME-unset}"'
    env = {"PATH": os.environ["PATH"], "TEN": "10", **env}
    done = subprocess.run(["bash", "-c", code, str(ROOT), str(recipe)], env=env, capture_output=True, text=True,
                          cwd=tmp_path)
    return done, f"error: {recipe}:2: "


RUNS = [
    "NAME=$(touch ran)", "NAME=`touch ran`", 'NAME="$(touch ran)"', "NAME[$(touch ran)]=1", "NAME=${B:-$(touch ran)}",
    "NAME=${B:-`touch ran`}", "NAME=${B[$(touch ran)]}", "NAME=$((B[$(touch ran)]))", "NAME=$((1 + B[$(touch ran)]))",
    "NAME=${!TEN}", "NAME=${TEN//1/2}", "NAME=${TEN:=1}", "NAME=\\\\$(touch ran)", "touch ran", "export NAME=1",
    "NAME=1; touch ran; $(touch ran)", "[NAME=$(touch ran)] B=1", "[NAME[$(touch ran)]=x] B=1", "NAME = 1", "a=1",
    "1NAME=1", "NAME=$", "NAME=$'x'", "NAME=${TEN", "source other.env", "NAME+=1", "declare NAME=1",
    "VALUE_OF_A_RECIPE", "NAME=\nVALUE_OF_A_RECIPE\ntouch ran\n",
]


@pytest.mark.parametrize("line", RUNS)
def test_nothing_of_a_recipe_is_run(tmp_path, line):
    done, _ = refusal(tmp_path, line.encode())
    assert not (tmp_path / "ran").exists()
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, (done.stdout, done.stderr)
    assert done.stderr.startswith(f"error: {tmp_path}/own.env:") and "NAME=value" in done.stderr


NOT_A_RECIPES = """
LD_PRELOAD BASH_ENV PYTHONPATH PYTHONSTARTUP ENV PROMPT_COMMAND GCONV_PATH GIT_SSH_COMMAND PIP_INDEX_URL OPENSSL_CONF
CDPATH GLIBC_TUNABLES OMP_TOOL_LIBRARIES NCCL_NET_PLUGIN NODE_OPTIONS TORCH_CUSTOM_PYTHONPATH HDF5_PLUGIN_PATH
HTTPS_PROXY SSL_CERT_FILE REQUESTS_CA_BUNDLE RAY_TLS_CA_CERT GRPC_DEFAULT_SSL_ROOTS_FILE_PATH
WANDB_INSECURE_DISABLE_SSL RAY_API_SERVER_ADDRESS HOSTALIASES LOCALDOMAIN TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR
VLLM_CACHE_ROOT TORCH_EXTENSIONS_DIR XDG_CACHE_HOME HOME TMPDIR RAY_TMPDIR RAY_TEMPDIR TRITON_PTXAS_PATH TRITON_HOME
TRITON_CACHE_MANAGER CUDA_HOME CC VLLM_NCCL_SO_PATH VLLM_RUST_FRONTEND_PATH TORCHINDUCTOR_CUTLASS_DIR
HF_MODULES_CACHE FLASHINFER_WORKSPACE_BASE DG_JIT_CACHE_DIR CUDA_CACHE_PATH OMPI_MCA_pml NCCL_CONF_FILE TEMP TMP
HF_HOME HF_HUB_CACHE HUGGINGFACE_HUB_CACHE TRANSFORMERS_CACHE PYTORCH_TRANSFORMERS_CACHE TORCH_HOME HF_KERNELS_CACHE
MODELSCOPE_CACHE CFFI_TMPDIR CUDA_INC_PATH DG_JIT_NVCC_COMPILER SGL_DG_JIT_NVCC_COMPILER NVCC_PREPEND_FLAGS
NVCC_CCBIN FLASHINFER_EXTRA_CUDAFLAGS CUTE_DSL_LIBS FI_PROVIDER_PATH IBV_DRIVERS LOCAL_KERNELS DIST_EXTRA_CONFIG
MPLBACKEND MATPLOTLIBRC RAY_RUNTIME_ENV_HOOK RAY_JOB_SUBMIT_HOOK RAY_USER_SETUP_FUNCTION RAY_DATA_EXECUTION_CALLBACKS
TORCH_COMPILE_BACKEND TORCHINDUCTOR_RUN_JIT_POST_COMPILE_HOOK VLLM_LOGGING_CONFIG_PATH RAY_AUTH_MODE RAY_USE_TLS
VLLM_ALLOW_INSECURE_SERIALIZATION TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD VLLM_SERVER_DEV_MODE VLLM_RPC_BASE_PATH
VLLM_ALLOW_RUNTIME_LORA_UPDATING RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER RAY_DATA_ARROW_EXTENSION_SERIALIZATION_CLOUDPICKLE
RAY_AUTH_TOKEN RAY_DEBUG RAY_DEBUG_POST_MORTEM RAY_REDIS_ADDRESS TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE
TORCHINDUCTOR_REDIS_HOST SGLANG_EXTERNAL_MODEL_PACKAGE COVERAGE_PROCESS_START WANDB_X_EXECUTABLE
VLLM_NIXL_SIDE_CHANNEL_HOST HF_TOKEN_PATH TORCH_LOGS_OUT NCCL_DEBUG_FILE AWS_WEB_IDENTITY_TOKEN_FILE _WANDB_CORE_PATH
NCCL_TOPO_FILE IFS PS4 A
""".split()
"""Among them what says which code runs or where it lies, whose hands keys go through, which protection is left out."""


@pytest.mark.parametrize("value", ["/x", "x", "1"])
def test_what_is_not_known_is_the_users_alone_to_set(value):
    code = """source "$0/_common.sh"; set +e; value=$1; shift
        for name in "$@"; do (unset "$name"; may_set here "$name" "$value"); done"""
    done = subprocess.run(["bash", "-c", code, str(ROOT), value, *NOT_A_RECIPES], env={"PATH": os.environ["PATH"]},
                          capture_output=True, text=True)
    told = "is no setting of the pack, and none of a library that a recipe may have; set it yourself"
    assert done.stderr.splitlines() == [f"error: here: {name} {told}" for name in NOT_A_RECIPES]


def test_a_line_that_would_command_a_terminal_is_shown_without(tmp_path):
    done, where = refusal(tmp_path, b"a\x1b[2J\x07")
    assert (done.returncode, done.stderr.partition(" is no setting")[0]) == (1, f"{where}'a?[2J?'")


@pytest.mark.parametrize("value", ["\x1b]0;own\x07", "a\r", '"\x7f"', "${TEN}\x1b"])
def test_a_value_that_would_command_a_terminal_is_refused(tmp_path, value):
    """DRY_RUN=1 shows what a recipe of somebody else would run."""
    done, where = refusal(tmp_path, f"NAME={value}".encode())
    assert done.returncode == 1 and done.stderr.startswith(f"{where}'NAME=")
    assert done.stderr.rstrip("\n").isprintable() and " is no setting; " in done.stderr


def test_every_setting_of_the_pack_and_of_its_scripts_may_stand_in_a_recipe():
    own = {"MEM_AGENT_RECIPE_LOADED", "PYTHONPATH"}  # the scripts' own
    scripts = "\n".join(path.read_text() for path in [*ROOT.glob("*.sh"), *ROOT.glob("scripts/*/*.sh")])
    asked = set(re.findall(r"\$\{([A-Z][A-Z0-9_]*):?[-?+]", scripts)) - own
    names = sorted(asked.union(variable_names()) - {"TRUST_REMOTE_CODE"})
    code = 'source "$0/_common.sh"; for name in "$@"; do unset "$name"; may_set here "$name" "/a/b c"; done'
    done = subprocess.run(["bash", "-c", code, str(ROOT), *names], env={"PATH": os.environ["PATH"]},
                          capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and len(names) > 200


@pytest.mark.parametrize("name,value", [
    ("PYTHONPATH", "/mine"), ("PYTHONPATH", "/theirs"), ("NCCL_NET_PLUGIN", "none"), ("VLLM_PLUGINS", ""),
    ("NCCL_DEBUG_FILE", ""), ("NCCL_DEBUG_FILE", "/mine"),
    ("TRITON_CACHE_DIR", "/mine"), ("MPLBACKEND", "agg"), ("RAY_AUTH_MODE", "token"),
    ("PATH", os.environ["PATH"]), ("TRUST_REMOTE_CODE", "1"), ("TRUST_REMOTE_CODE", "0")])
def test_how_programs_are_run_is_as_the_user_has_said(tmp_path, name, value):
    (tmp_path / "own.env").write_text(f"{name}=/theirs\nNAME=read\n")
    held = loaded('source "$PACK_DIR/_common.sh"; load_recipe "$1"; export NAME="$NAME ${!2}."; env -0',
                  tmp_path / "own.env", {name: value}, name)
    assert held["NAME"] == f"read {value}."


@pytest.mark.parametrize("name,value", [("IFS", " \t\n"), ("PS4", "+ ")])
def test_what_the_shell_has_set_stays(tmp_path, name, value):
    (tmp_path / "own.env").write_text(f"{name}=/theirs\n")
    held = loaded('source "$PACK_DIR/_common.sh"; load_recipe "$1"; export A="${!2}."; env -0',
                  tmp_path / "own.env", {}, name)
    assert held["A"] == f"{value}."


def test_a_recipe_does_not_trust_a_models_python_for_you(tmp_path):
    for line, env in ((b"TRUST_REMOTE_CODE=1", {}), (b"TRUST_REMOTE_CODE=1", {"TRUST_REMOTE_CODE": ""}),
                      (b'TRUST_REMOTE_CODE="${TRUST:-00}"', {}), (b"TRUST_REMOTE_CODE=${TRUST:-0}", {"TRUST": "1"})):
        done, where = refusal(tmp_path, line, **env)
        assert done.returncode == 1
        assert done.stderr == f"{where}TRUST_REMOTE_CODE runs Python that comes with a model; " \
                              "look at that code, and set it yourself\n"


@pytest.mark.parametrize("text", ["", '""', "0", '"0"', "False", "no", "off", "${TRUST:-0}"])
def test_a_recipe_may_say_that_no_models_python_is_trusted(tmp_path, text):
    done, _ = refusal(tmp_path, f"TRUST_REMOTE_CODE={text}\nNAME=read $TRUST_REMOTE_CODE".encode())
    assert done.stdout in ("read ", "read 0", "read False", "read no", "read off"), done.stderr
    assert not Config.from_env({"TRUST_REMOTE_CODE": done.stdout.removeprefix("read ")}).trust_remote_code


@pytest.mark.parametrize("line,told", [
    ("[NAME=*(*(1))b] SEED=1", "'[NAME=*(*(1))b]' is no setting"),  # no end for 28 letters
    ("NAME=" + "x" * 4095, "a line of more than 4096 characters"),
    ("NAME=$X$X", "a value of more than 4096 characters"),
])
def test_a_line_that_takes_for_ever_is_refused(tmp_path, line, told):
    done, where = refusal(tmp_path, line.encode(), X="x" * 4000)
    assert done.returncode == 1 and done.stderr.startswith(where + told) and len(done.stderr.splitlines()) == 1


def test_a_recipe_has_no_end_of_lines(tmp_path):
    done, _ = refusal(tmp_path, b"#\n" * 32768)
    assert (done.returncode, done.stderr) == (1, f"error: {tmp_path}/own.env has more than 65536 characters\n")


@pytest.mark.parametrize("value", ["/x", "a=/x", "~/x", "../x", "https://x.example"])
def test_what_libraries_read_is_no_file(tmp_path, value):
    done, where = refusal(tmp_path, f"NCCL_DEBUG={value}".encode())
    told = f"NCCL_DEBUG is no setting of the pack, and '{value}' may be a file; set it yourself\n"
    assert (done.returncode, done.stderr) == (1, where + told)


@pytest.mark.parametrize("value", ["/x", "file:///x", "sqlite:///x", "https:///x", "host:80"])
def test_an_address_is_one_of_http(tmp_path, value):
    done, where = refusal(tmp_path, f"MLFLOW_TRACKING_URI={value}".encode())
    told = f"MLFLOW_TRACKING_URI is an address, and '{value}' is none; set it yourself\n"
    assert (done.returncode, done.stderr) == (1, where + told)


@pytest.mark.parametrize("name,value", [
    ("HF_ENDPOINT", "https://mirror.example/hf"), ("VLLM_ATTENTION_BACKEND", "FLASH_ATTN"), ("NCCL_DEBUG", "INFO"),
    ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:64"), ("OMP_NUM_THREADS", "2"),
    ("NCCL_SOCKET_IFNAME", "^lo,docker0"), ("WANDB_PROJECT", "my project"), ("VLLM_LOGGING_LEVEL", "DEBUG"),
    ("WANDB_BASE_URL", "http://10.0.0.1:8080"), ("CUDA_VISIBLE_DEVICES", "-1"), ("HF_ENDPOINT", ""),
    ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")])
def test_what_libraries_are_told_in_numbers_and_words_is_taken(tmp_path, name, value):
    (tmp_path / "own.env").write_text(f"{name}={value}\n")
    held = loaded(BY_THE_PACK, tmp_path / "own.env", {})
    assert held.get(name, "") == value


KEYS = ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "CI_JOB_JWT", "MY_PAT", "SENTRY_DSN", "X_PWD"]


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("line", ["TRACKER_PROJECT=${}", "HF_ENDPOINT=https://x.example/${{{}}}", "NAME=${{{}:-x}}"])
def test_a_recipe_reads_no_key(tmp_path, name, line):
    done, where = refusal(tmp_path, line.format(name).encode(), **{name: "my own"})
    assert (done.returncode, done.stderr) == (
        1, f"{where}${name} is a key, and a recipe reads none; set what is to have it yourself\n")


@pytest.mark.parametrize("name", [*KEYS, "API_KEY", "HOME", "A"])
def test_a_line_asks_for_settings_alone(tmp_path, name):
    """Lines like this one tell any text, letter by letter, by what they then set."""
    done, where = refusal(tmp_path, f"[{name}=m*] NAME=m".encode(), **{name: "my own"})
    assert (done.returncode, done.stderr) == (1, f"{where}{name} is no setting that a line may ask for\n")


def test_what_is_a_key_is_said_in_one_way():
    names = [*KEYS, "API_KEY", "AZURE_STORAGE_CONNECTION_STRING", "SLACK_WEBHOOK_URL", "PATH", "PWD", "HOME", "SEED",
             "TOKENIZERS_PARALLELISM", "TOKENIZER", "MY_TOKENIZER_KEY", "NCCL_PAT_ENABLE", "NCCL_IB_PKEY",
             "SSH_AUTH_SOCK", "RAY_AUTH_MODE", "FTP_PW", "AUTHOR", "PATTERN"]
    code = 'source "$0/_common.sh"; for name in "$@"; do if is_secret "$name"; then echo "$name"; fi; done'
    env = {"PATH": os.environ["PATH"], **{name: "x" for name in names if name not in ("PATH", "HOME", "PWD")}}
    done = subprocess.run(["bash", "-c", code, str(ROOT), *names], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [name for name in names if is_secret(name)]


def test_a_number_of_tokens_is_no_key(tmp_path):
    done, _ = refusal(tmp_path, b"MEM_CHUNK_TOKENS=512\nTOKENIZER=/m\nNAME=$MEM_CHUNK_TOKENS$TOKENIZER")
    assert done.stdout == "512/m", done.stderr


@pytest.mark.parametrize("text", ["TEN + x", "-1 + 2", "1 + 0x10", "1 + 9999999999", "1 + "])
def test_a_sum_is_one_of_two_numbers(tmp_path, text):
    done, where = refusal(tmp_path, f"NAME=$(({text}))".encode())
    assert done.returncode == 1 and done.stderr.startswith(where) and len(done.stderr.splitlines()) == 1


def test_a_variable_that_nobody_has_set_is_told(tmp_path):
    done, where = refusal(tmp_path, b"NAME=$NOBODY/x")
    assert done.stderr == f"{where}NOBODY is not set; write ${{NOBODY:-...}} for a value in its place\n"


@pytest.mark.parametrize("value,read", [
    ("plain", "plain"), ('"two words"', "two words"), ("", ""), ('""', ""), ("x=y=", "x=y="), ("$TEN", "10"),
    ("a${TEN}b", "a10b"), ("${NONE:-a b}", "a b"), ("${TEN:-a}", "10"), (r"a\$b", "a$b"), (r"a\`b", "a`b"),
    (r"a\nb", r"a\nb"), (r"\"q\"", '"q"'), ("it's", "it's"), ("# no comment", "# no comment"), ("${NONE:-}", ""),
    ("$((8 + $TEN))", "18"), ("a\tb", "a\tb"),
    ("$((8630 + ${SEED:-08}))", "8638"), ("a [b] {c} *?", "a [b] {c} *?"), ("ü €", "ü €"),
])
def test_what_a_value_may_say(tmp_path, value, read):
    done, _ = refusal(tmp_path, f"NAME={value}".encode())
    assert done.stdout == read, done.stderr


@pytest.mark.parametrize("language", ["C", "C.UTF-8"])
def test_half_a_character_takes_no_line_along(tmp_path, language):
    done, _ = refusal(tmp_path, b"# caf\xc3\nNAME=there", LC_ALL=language)
    assert done.stdout == "there"


def test_a_line_for_others_is_passed_over(tmp_path):
    done, _ = refusal(tmp_path, b"SEED=10\n[SEED=2*] NAME=no\n[SEED=1?] NAME=yes\nNAME=no")
    assert done.stdout == "yes"
