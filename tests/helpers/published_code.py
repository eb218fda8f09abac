"""Runs MemAgent's and ReMemR1's own data scripts, in a process where what they import and do not need is absent.

    MEMAGENT_ROOT=... REMEMR1_ROOT=... python -m pytest tests/data/test_published_code.py

Tests skip where no checkout is named. Their worker processes become a plain loop: what they draw at random differs
from run to run otherwise.
"""

import subprocess
import sys

from mem_agent.tests.helpers.patience import HANGS_AFTER_S
from mem_agent.tests.helpers.published import checkout

_ABSENT = """
import sys, types
def absent(name, **members):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)
class Loop:
    def __init__(self, **options): pass
    def run(self, work, items, **options): return [work(item, **options) for item in items]
class Tokenizer:
    def from_pretrained(*names, **options): return lambda texts: {"input_ids": [[0]] * len(texts)}
absent("transformers", AutoTokenizer=Tokenizer)
absent("utils", TqdmExecutor=Loop, extract_solution=None, update_answer=None)
absent("utils.envs", DATAROOT="")
absent("tiktoken")
absent("torch")
absent("torch.multiprocessing")
absent("datasets", load_dataset=lambda *names: given, concatenate_datasets=None)
"""


def run_published(variable, folders, code, cwd):
    """Run ``code``, which can import what is in ``folders`` of the checkout that ``variable`` names."""
    paths = [str(checkout(variable) / folder) for folder in folders]
    done = subprocess.run([sys.executable, "-c", f"{_ABSENT}sys.path[:0] = {paths!r}\n{code}"], cwd=cwd,
                          capture_output=True, text=True, timeout=HANGS_AFTER_S)
    assert done.returncode == 0, done.stderr
