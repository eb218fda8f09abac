"""A Ray of this machine that is started for one run: on loopback alone, with a token, and without the user's secrets.

What brings it to listen there is in ``system/ray_on_loopback.py``; which address it took is looked at before anything
else.

Its processes inherit the environment, and so no key. The token, the keys that workers ask with, and Ray's own sockets
and logs are in a folder that this user alone can open, and that goes when the run ends. All users could read the token
in ``~/.ray/auth_token``, and put other sockets into ``/tmp/ray``.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...system.atomic_file import write_for_owner
from ...system.errors import ConfigError
from ...system.own_folder import own_folder
from ...system.process_environment import without_secrets
from ...system.ray_on_loopback import RAY_ON_LOOPBACK
from ...system.server_url import is_loopback

_LONGEST_PARENT = 15
"""A socket's name has 107 characters, of which this folder and Ray's take 92."""
_MODE, _TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"


@contextmanager
def own_ray(ray: Any, keys: Sequence[str], **options: Any) -> Iterator[Path]:
    """Ray for as long as the block lasts; the file with the values of ``keys``, for ``take_keys`` of its workers.

    Raises:
        ConfigError: this Ray would listen where other machines reach it.
    """
    named = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    folder = own_folder(Path(named if len(named) <= _LONGEST_PARENT else "/tmp"), "mem_agent-ray-")
    try:
        token, held = folder.path / "token", folder.path / "keys.json"
        write_for_owner(token, secrets.token_hex(32).encode())
        write_for_owner(held, json.dumps({name: os.environ[name] for name in keys if os.environ.get(name)}).encode())
        _start(ray, token, {"_temp_dir": str(folder.path), **options})
        try:
            yield held
        finally:
            ray.shutdown()
    finally:
        folder.remove()


def take_keys(held: Path) -> None:
    """In a worker: set the variables that the run was given."""
    os.environ.update(json.loads(held.read_bytes()))


def _start(ray: Any, token: Path, options: Mapping[str, Any]) -> None:
    inherited = without_secrets(os.environ)
    changes: dict[str, str | None] = dict.fromkeys(set(os.environ) - set(inherited))
    changes |= {**RAY_ON_LOOPBACK, _TOKEN_FILE: str(token), _MODE: os.environ.get(_MODE)}  # Ray sets the mode itself
    constants = ray._private.ray_constants  # what it read when it was imported
    clusters, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    kept = {name: os.environ.get(name) for name in changes}
    try:
        _set(changes)
        _forget_token(ray)
        ray.init(address="local", include_dashboard=False, **options)
    finally:
        _set(kept)
        constants.ENABLE_RAY_CLUSTER = clusters
    address = ray.util.get_node_ip_address()
    if not is_loopback(address):
        ray.shutdown()
        raise ConfigError(f"Ray {ray.__version__} listens on {address}, where other machines reach it; leave "
                          "RAY_ADDRESS=local and --ray out, or join a Ray of your own by its address")


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _forget_token(ray: Any) -> None:
    """That of a Ray which this process had before."""
    if loader := getattr(ray._raylet, "AuthenticationTokenLoader", None):  # an older Ray has no tokens
        loader.instance().reset_cache()
