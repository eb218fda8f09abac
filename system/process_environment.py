"""What this process and those that it starts find in their environment.

Of libraries: threads that wait passively, and no chatter. With busy neighbours, OpenMP threads that spin at barriers
train about ten times slower. Processes that are started inherit all of it; variables that the user has set stay.

Of keys and passwords: no variable whose name says that it holds one (``is_secret``), for whoever is no command of the
pack. Engines, routers and tools have no use for them, and what is not there cannot be logged, dumped or sent. Values
are not looked at: a password inside another value, such as ``HTTPS_PROXY=http://user:password@proxy``, is handed on,
as what is started may reach a hub or a package index through that proxy alone.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping

_QUIET = (UserWarning, FutureWarning, DeprecationWarning)
"""Warnings of libraries about their own internals are no news to users of the pack."""


_SECRET = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "PASSCODE", "PASSCOMMAND", "CREDENTIAL",
           "CREDS", "COOKIE", "AUTHORIZATION", "CONNECTION_STRING", "WEBHOOK")
_SECRET_WORDS = {"AUTH", "OAUTH", "PASS", "PGPASS", "SSHPASS", "PSW", "PW", "BINDPW", "PAT", "JWT", "OTP", "SAS",
                 "DSN"}
_NO_SECRET = ("TOKENIZER", "TIKTOKEN", "TOKEN_RATIO", "IB_PKEY", "NCCL_PAT", "SSH_AUTH_SOCK", "RAY_AUTH_MODE")
"""Parts of names that say nothing, as libraries have them: without its InfiniBand partition (NCCL_IB_PKEY) a machine
does not reach the others, without SSH_AUTH_SOCK git not a host's repository."""


_settled: set[str] = set()
"""Variables that ``settle_process`` has set, and not the user."""


def settle_process() -> None:
    """Call before torch, tokenizers or transformers are imported."""
    told = os.environ.get("TRAIN_PROCS", "")
    processes = int(told) if told.isdecimal() and len(told) < 10 else 1  # what is wrong with it, Config says
    for name, value in process_environment(processes).items():
        if name not in os.environ:
            os.environ[name] = value
            _settled.add(name)
    if not sys.warnoptions:
        for kind in _QUIET:
            warnings.simplefilter("ignore", kind)


def share_cores(processes: int) -> None:
    """Give this process and those that it starts their part of the cores, unless the user has set OMP_NUM_THREADS."""
    name = "OMP_NUM_THREADS"
    if name in os.environ and name not in _settled:
        return
    os.environ[name] = process_environment(processes)[name]
    if torch := sys.modules.get("torch"):  # it has read the variable already
        torch.set_num_threads(int(os.environ[name]))


def process_environment(processes: int) -> dict[str, str]:
    """Variables for ``processes`` trainer processes on this machine; set them before python starts."""
    cores = len(os.sched_getaffinity(0))
    return {
        "OMP_NUM_THREADS": str(max(1, cores // max(1, processes))),
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "0",
        "TORCHDYNAMO_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": ",".join(f"ignore::{kind.__name__}" for kind in _QUIET),
    }


def without_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """``env`` without the variables that are secrets by their names; a number of tokens is none."""
    return {name: value for name, value in env.items() if not is_secret(name) or _counts_tokens(name, value)}


def is_secret(name: str) -> bool:
    """Whether a variable's name says that its value is one; rather one too many than one too few."""
    said = name.upper()
    for part in _NO_SECRET:
        said = said.replace(part, "")
    return (not said.endswith(("_PATH", "_FILE"))
            and (said.endswith("_PWD") or any(word in said for word in _SECRET)
                 or not _SECRET_WORDS.isdisjoint(said.split("_"))))


def _counts_tokens(name: str, value: str) -> bool:
    return "TOKENS" in name.upper() and value.isdecimal()
