"""A model folder to the Hugging Face hub, by one flag: ``--push-to-hub ORG/NAME``.

The token is asked about before any work is done. A repository that is there gets a new commit; nothing of it is
removed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import HFValidationError, HTTPError, LocalTokenNotFoundError
from huggingface_hub.utils import validate_repo_id

from ..system.errors import MemAgentError
from ..system.text import one_line

_REFUSED = (HTTPError, OSError, ValueError)
"""No connection and no answer, what the hub says, and a token that no header can hold."""


class HubError(MemAgentError):
    """The hub does not take the model; names why."""


def add_push_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--push-to-hub", metavar="ORG/NAME", type=_repo, help="upload the folder, weights and card")
    parser.add_argument("--private", action="store_true", help="--push-to-hub: a repository that is made is private")


def _repo(name: str) -> str:
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise argparse.ArgumentTypeError(f"{name!r}: {error}") from None
    if name.count("/") != 1:
        raise argparse.ArgumentTypeError(f"{name!r}: expected ORG/NAME")
    return name


def check_token() -> None:
    """Raises HubError where nobody is logged in, or the hub cannot be asked."""
    try:
        HfApi().whoami()
    except LocalTokenNotFoundError:
        raise HubError("--push-to-hub: not logged in to the hub; set HF_TOKEN, or run `hf auth login`") from None
    except _REFUSED as error:
        raise HubError(f"--push-to-hub: {_line(error)}; check HF_TOKEN and HF_ENDPOINT") from None


def push(folder: Path, repo: str, *, private: bool) -> str:
    """The address of the repository that has ``folder`` now. Raises HubError; the folder stays as it is."""
    api = HfApi()
    try:
        url = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message=f"{folder.name}, from mem_agent")
    except _REFUSED as error:
        raise HubError(f"{repo}: not pushed ({_line(error)}); {folder} is whole, push it again with mem-agent card "
                       f"{folder} --push-to-hub {repo}") from None
    return str(url)


def _line(error: BaseException) -> str:
    """Without the token, which the error of a header that cannot be sent holds."""
    return one_line(str(error).partition("Bearer ")[0], 200)
