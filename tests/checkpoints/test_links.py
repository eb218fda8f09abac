"""Links of a model's folder are followed to what only those can name who know it, and to nothing of the user's."""

import hashlib
import os
import shlex
import subprocess

import pytest

from mem_agent.checkpoints.average import average
from mem_agent.checkpoints.convert import convert
from mem_agent.checkpoints.hf_folder import UnsupportedModel
from mem_agent.checkpoints.hf_to_torch_dist import write_release
from mem_agent.checkpoints.links import leads_out
from mem_agent.system.errors import MemAgentError
from mem_agent.system.links import remedy
from mem_agent.tests.helpers.tiny_model import make_tiny_model

TOKENS = b"tokens"
SHA256 = hashlib.sha256(TOKENS).hexdigest()
GIT = hashlib.sha1(b"blob %d\0" % len(TOKENS) + TOKENS).hexdigest()

CACHE = "hub/models--a--b"
FOLLOWED = {
    "hub cache": (f"{CACHE}/snapshots/0f/tokenizer.json", f"{CACHE}/blobs/{GIT}"),
    "folder in a snapshot": (f"{CACHE}/snapshots/0f/small/tokenizer.json", f"{CACHE}/blobs/{GIT}"),
    "cache under another name": ("b/snapshots/0f/small/tokenizer.json", f"b/blobs/{GIT}"),
    "older --local-dir": ("models/b/tokenizer.json", f"{CACHE}/blobs/{GIT}"),
    "git-annex": ("annex/b/tokenizer.json", f"annex/.git/annex/objects/SHA256E-s6--{SHA256}.json"),
    "blob of large files": ("b/tokenizer.json", f"elsewhere/{SHA256}"),
    "blob of git": ("b/tokenizer.json", f"elsewhere/{GIT}"),
    "in the folder": ("b/tokenizer.json", "b/deep/other.json"),
}
REFUSED = {
    "a key": ("model/tokenizer.json", "home/.netrc"),
    "another model": ("mine/tokenizer.json", "base/tokenizer.json"),
    "a key named by another hash": ("model/tokenizer.json", f"home/.gnupg/{'0' * 40}.key"),
    "a longer number": ("model/tokenizer.json", f"home/{SHA256}0"),
    "blobs of no cache": ("model/tokenizer.json", "home/blobs/id"),
    "a blob that no hash names": (f"{CACHE}/snapshots/0f/tokenizer.json", f"{CACHE}/blobs/database.key"),
    "above blobs": ("model/tokenizer.json", f"{CACHE}/token"),
    "below blobs": ("model/tokenizer.json", f"{CACHE}/blobs/deep/token"),
}


def linked(root, link, target):
    """The link, which leads to a file of TOKENS."""
    for path in (root / link, root / target):
        path.parent.mkdir(parents=True, exist_ok=True)
    (root / target).write_bytes(TOKENS)
    (root / link).symlink_to(os.path.relpath(root / target, (root / link).parent))
    return root / link


@pytest.mark.parametrize(("link", "target"), FOLLOWED.values(), ids=FOLLOWED)
def test_links_of_tools_are_followed(tmp_path, link, target):
    file = linked(tmp_path, link, target)
    assert not leads_out(file, file.parent)
    (tmp_path / "named").symlink_to(file.parent)
    assert not leads_out(tmp_path / "named" / file.name, tmp_path / "named")


@pytest.mark.parametrize("moved", [f"{CACHE}/blobs", CACHE, "hub"])
def test_a_cache_may_lie_on_another_disk(tmp_path, moved):
    file = linked(tmp_path / "home", f"{CACHE}/snapshots/0f/tokenizer.json", f"{CACHE}/blobs/{GIT}")
    (tmp_path / "home" / moved).rename(tmp_path / "disk")
    (tmp_path / "home" / moved).symlink_to(tmp_path / "disk")
    assert file.read_bytes() == TOKENS and not leads_out(file, file.parent)


@pytest.mark.parametrize(("link", "target"), REFUSED.values(), ids=REFUSED)
def test_links_that_anybody_may_make_are_refused(tmp_path, link, target):
    file = linked(tmp_path, link, target)
    assert leads_out(file, file.parent)


def test_a_strangers_folder_that_is_made_like_a_cache_takes_no_key_along(tmp_path):
    """Its ``blobs`` is a link as well."""
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "id_rsa").touch()
    snapshot = tmp_path / CACHE / "snapshots" / "0f"
    snapshot.mkdir(parents=True)
    (tmp_path / CACHE / "blobs").symlink_to(tmp_path / "keys")
    (snapshot / "tokenizer.json").symlink_to("../../blobs/id_rsa")
    assert (snapshot / "tokenizer.json").is_file() and leads_out(snapshot / "tokenizer.json", snapshot)


@pytest.mark.parametrize("target", ["tokenizer.json", "nothing", f"../{SHA256}"])
def test_links_to_nothing_are_judged_by_where_they_lead(tmp_path, target):
    (tmp_path / "model").mkdir()
    file = tmp_path / "model" / "tokenizer.json"
    file.symlink_to(target)
    assert leads_out(file, file.parent) is target.startswith("..")


def test_the_remedy_puts_the_file_in_the_place_of_the_link(tmp_path):
    file = linked(tmp_path, "my model's/tokenizer.json", "a b/tokenizer.json")
    said, _, command = remedy(file).partition(": ")
    assert said == "if it is yours, put the file itself in its place" and shlex.quote(str(file)) in command
    subprocess.run(command, shell=True, check=True)
    assert not file.is_symlink() and file.read_bytes() == TOKENS and not leads_out(file, file.parent)


@pytest.mark.parametrize("command", ["average", "convert"])
def test_a_refused_link_is_told_before_weights_are_written(tmp_path, monkeypatch, command):
    model = make_tiny_model(tmp_path / "model")
    (tmp_path / "run").mkdir()
    write_release(model, tmp_path / "run")
    other = make_tiny_model(tmp_path / "other")
    (model / "tokenizer.json").rename(tmp_path / "base.json")
    (model / "tokenizer.json").symlink_to("../base.json")
    monkeypatch.setattr(f"mem_agent.checkpoints.{command}.write_shards", None)
    with pytest.raises(UnsupportedModel) as refused:
        if command == "average":
            average([model, other], tmp_path / "out")
        else:
            convert(tmp_path / "run", model, tmp_path / "out")
    said = str(refused.value)
    assert said.startswith(f"{model / 'tokenizer.json'}: a link out") and str(tmp_path / "base.json") in said
    assert not (tmp_path / "out").exists() and len(said.splitlines()) == 1


@pytest.mark.parametrize("name", ["mem_agent.yaml", "mem_agent_prompts.yaml", "README.md"])
def test_an_average_copies_nothing_that_a_models_link_leads_to(tmp_path, monkeypatch, name):
    models = [make_tiny_model(tmp_path / "a"), make_tiny_model(tmp_path / "b")]
    (tmp_path / ".netrc").write_text("machine hub password hunter2")
    (models[1] / name).symlink_to("../.netrc")
    monkeypatch.setattr("mem_agent.checkpoints.average.write_shards", None)
    with pytest.raises(MemAgentError, match=f"/b/{name}: a link out of the model's folder, which is not copied"):
        average(models, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_average_has_no_weights_that_a_models_link_leads_to(tmp_path):
    mine, theirs, other = (make_tiny_model(tmp_path / name) for name in ("mine", "theirs", "other"))
    (theirs / "model.safetensors").unlink()
    (theirs / "model.safetensors").symlink_to(mine / "model.safetensors")
    with pytest.raises(MemAgentError, match=r"/theirs/model\.safetensors: a link out of .*, which is not averaged"):
        average([theirs, other], tmp_path / "out")
