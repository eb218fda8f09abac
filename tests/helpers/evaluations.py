"""What an evaluation needs: a model folder that only tokenises, files of questions, and a router that answers."""

import asyncio
import json

from mem_agent import eval_ruler_hqa as ev
from mem_agent.config import Config
from mem_agent.evaluation.results import read_results
from mem_agent.evaluation.summary import summary_of
from mem_agent.tests.helpers.fake_router import running_beside
from mem_agent.tests.helpers.tiny_tokenizer import encode, make_tokenizer

CONFIG = Config(mem_chunk_tokens=8, mem_max_memory=8, mem_max_final=16)


RED = encode("it is \\boxed{red}")


def make_model(folder, positions=2048):
    """What a client needs of a model: tokenizer and length."""
    make_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": positions}))
    return folder


def entry(number, **change):
    return {"context": f"doc {number}", "input": f"q{number}", "answers": ["blue", "red"], "index": number} | change


def write_data(root, length="50", count=3, **change):
    """A file of questions; ``change`` is of the last one."""
    entries = [entry(i) for i in range(count)]
    entries[-1] |= change
    (root / f"eval_{length}.json").write_text(json.dumps(entries))


def evaluate(tmp_path, model, router, lengths=("50",), out="out", **settings):
    """On the router as on engines of its own; with ``base_url="/v1"`` as a server of somebody else's."""
    common = {"length": " ".join(lengths), "data_root": str(tmp_path)}
    with running_beside(router):
        url = f"http://127.0.0.1:{router.port}"
        if "base_url" in settings:
            settings["base_url"], url = url + settings["base_url"], ""
        config = Config(**{**vars(CONFIG), **common, **settings})
        asyncio.run(ev.evaluate(config, model, url, tmp_path / out, quiet=True))
    return tmp_path / out


def turns_asked(router):
    """Requests without the one-token question whether the server answers."""
    return [r for r in router.requests if r["sampling_params"]["max_tokens"] > 1]


def numbers_of(output, length="50"):
    """The mean of every metric of a file, in percent for scores."""
    summary = summary_of(read_results([output]))
    found = summary[summary["file"] == length]
    return dict(zip(found["metric"], found["mean"], strict=True))


def counted(output):
    return [numbers_of(output)[name] for name in ("rows", "failed", "missing")]
