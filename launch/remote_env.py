"""What remote workers need that is not in their own machine's environment: Ray's ``runtime_env``.

Secrets go by reference: Ray shows environment variables to whoever opens its pages. A token is written into a file of
mode 0600 beside the run, which every machine reads through the shared file system, and the variables that
huggingface_hub, wandb and this pack have for such files name it. The files are removed when the run ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from ..config import variable_names
from ..system.atomic_file import write_atomically, write_for_owner
from ..system.process_environment import without_secrets

_PASSED = ("NCCL_", "GLOO_", "HF_", "WANDB_", "VLLM_", "SGLANG_", "SGL_", "TRANSFORMERS_", "TORCH_", "PYTORCH_")


def worker_variables(
    env: Mapping[str, str], *, python_path: str, save_path: str, master_addr: str, nvlink: bool
) -> dict[str, str]:
    """Variables for every process of the job; the user's own settings of the libraries win."""
    local = ["127.0.0.1", "localhost", master_addr, *filter(None, [env.get("no_proxy") or env.get("NO_PROXY")])]
    no_proxy = ",".join(dict.fromkeys(local))
    variables = {
        "PYTHONPATH": python_path,
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "NCCL_NVLS_ENABLE": str(int(nvlink)),
        "TENSORBOARD_DIR": str(Path(save_path) / "tensorboard"),
        "MASTER_ADDR": master_addr,
        "no_proxy": no_proxy,
        "NO_PROXY": no_proxy,
    }
    return variables | {name: value for name, value in without_secrets(env).items() if _is_passed(name)}


def _is_passed(name: str) -> bool:
    """The pack's own settings travel in its YAML instead."""
    return name.startswith(_PASSED) and name not in variable_names()


def token_files(
    env: Mapping[str, str], folder: Path, keys: Mapping[str, Sequence[str]] | None = None
) -> dict[Path, tuple[str, str]]:
    """File -> (variable that names it, content) for each token that is set.

    Args:
        keys: variable that names a file -> variables that may hold the key, of which the first that is set is taken.
    """
    files = {}
    for variable, names in (keys or {}).items():
        if key := next((env[name] for name in names if env.get(name, "").strip()), ""):
            files[folder / variable.lower().removesuffix("_file")] = (variable, key)
    token = env.get("HF_TOKEN") or env.get("HUGGING_FACE_HUB_TOKEN")
    if token:
        files[folder / "hf_token"] = ("HF_TOKEN_PATH", token)
    if env.get("WANDB_API_KEY"):
        host = urlsplit(env.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname
        content = f"machine {host}\n  login user\n  password {env['WANDB_API_KEY']}\n"
        files[folder / "netrc"] = ("NETRC", content)
    return files


@contextmanager
def runtime_env_file(
    variables: Mapping[str, str], env: Mapping[str, str], folder: Path, keys: Mapping[str, Sequence[str]] | None = None
) -> Iterator[Path]:
    """Write the runtime_env file in ``folder``, with token files beside it for as long as the block lasts."""
    secrets = folder / "tokens"
    files = token_files(env, secrets, keys)
    shutil.rmtree(secrets, ignore_errors=True)
    secrets.mkdir(parents=True, mode=0o700)
    try:
        for path, (_, content) in files.items():
            write_for_owner(path, content.encode())
        references = {variable: str(path) for path, (variable, _) in files.items()}
        runtime_env = folder / "runtime_env.yaml"
        content = yaml.safe_dump({"env_vars": {**variables, **references}}, sort_keys=False)
        write_atomically(runtime_env, content.encode())
        yield runtime_env
    finally:
        shutil.rmtree(secrets, ignore_errors=True)
