"""What reads files in the pack runs nothing that they ask for: no call that could, in any of its sources."""

import ast
import functools
import pickle

import pytest
import torch

from mem_agent.agents.embedding import Embedding
from mem_agent.checkpoints.hf_folder import HfTensors, UnsupportedModel
from mem_agent.rewards.intrinsic.encoder import SentenceEncoder
from mem_agent.system.errors import ConfigError
from mem_agent.tests.helpers.attack import Attack
from mem_agent.tests.helpers.sources import ROOT, SOURCES
from mem_agent.tests.helpers.tiny_model import make_tiny_model
from mem_agent.tests.helpers.tiny_tokenizer import make_tokenizer

RUNS = {"eval", "exec", "compile", "pickle.load", "pickle.loads", "np.load", "numpy.load", "np.lib.format.read_array",
        "pd.read_pickle", "yaml.load", "yaml.full_load", "yaml.unsafe_load", "yaml.load_all", "joblib.load"}
MODULES = {"marshal", "shelve", "dill", "cloudpickle", "joblib"}
ALLOWED = {
    "checkpoints/bounded_pickle.py": ["pickle"],  # its reader looks names up in a table of its own
    "checkpoints/whole.py": ["pickle"],  # the name of an error
    "system/plain_yaml.py": ["yaml.load"],  # with a SafeLoader that refuses more
}


def running(source: str) -> list[str]:
    """What in ``source`` may run code that a file holds."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            weights_only = any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords)
            found += [called] if called in RUNS or (called == "torch.load" and not weights_only) else []
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [name for name in names if name.split(".")[0] in {*MODULES, "pickle"}]
    return found


@pytest.mark.parametrize("source", ["torch.load(f)", "torch.load(f, weights_only=False)", "pickle.loads(x)", "eval(x)",
                                    "import marshal", "from pickle import loads", "yaml.load(x, Loader=L)"])
def test_the_search_finds(source):
    assert running(source)


def test_no_source_runs_what_a_file_holds():
    assert len(SOURCES) > 300
    found = {path.relative_to(ROOT).as_posix(): names for path in SOURCES if (names := running(path.read_text()))}
    assert found == ALLOWED


@pytest.mark.parametrize(("save", "load"), [(torch.save, functools.partial(torch.load, weights_only=False)),
                                            (pickle.dump, pickle.load)])
def test_weights_in_the_old_format_of_a_model_folder_do_not_run(tmp_path, save, load):
    """What the pack reads a model with, where the folder has ``pytorch_model.bin`` alone."""
    folder, victim = make_tiny_model(tmp_path / "model", tied=True), tmp_path / "victim"
    make_tokenizer().save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    with (folder / "pytorch_model.bin").open("wb") as file:
        save(Attack(victim), file)
    with pytest.raises(UnsupportedModel, match=r"no \*\.safetensors weights"):
        HfTensors(folder)
    with pytest.raises(Exception, match=r"(?i)weights.only"):
        Embedding(folder)
    with pytest.raises(ConfigError, match=r"(?i)cannot be loaded from.*weights.only"):
        SentenceEncoder("mine", folder).encode(["a"])
    assert not victim.exists()
    with (folder / "pytorch_model.bin").open("rb") as file:
        load(file)
    assert victim.exists(), "the attack itself works"
