"""The folder of a sentence-transformers model, looked at before that library reads it.

The library takes classes, arguments and names from such a folder: ``weights_only: false`` in a file of settings makes
the weights a program, which runs. So what may be said is listed here, and all else is refused::

    modules.json                            of which modules it is made, and in which folders they lie
    config_sentence_transformers.json       what is written before each text; another kind of model than an embedding
                                            model is read as a plain Transformer, whatever modules.json says
    sentence_bert_config.json               of a Transformer; five other kinds of model have files of other names
    config.json, tokenizer.json             of a Transformer, as everywhere
    2_Dense/config.json                     an activation function of torch's
    0_Router/router_config.json             of which modules a Router is made

Weights are read as safetensors, or by torch as weights only: bge-m3 for one has no others. Those whoever finds the
folder has looked at (``checkpoints/torch_weights.py``), which needs torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...system.errors import ConfigError
from ...system.model_json import read_json, read_object
from ...system.model_requests import refuse_requests
from ...system.model_sizes import check_sizes
from ...system.tokenizer_ids import check_tokenizer
from ...system.whole_text import whole

_MODULES, _WHOLE = "modules.json", "config_sentence_transformers.json"
_MOST = 2**5
"""Modules of a model, which has up to 5."""
_LONGEST_PROMPT = 2**12
_LONGEST_NAME = 255
"""Bytes of a name, as file systems have it."""
_KIND = "SentenceTransformer"
_TYPE = re.compile(r"sentence_transformers\.(?:models|sentence_transformer\.modules|base\.modules)(?:\.\w+)?\.(\w+)")
"""Where the library's modules lie, in this version and in those before."""
_TRANSFORMERS, _ROUTERS = {"Transformer", "CLIPModel"}, {"Router", "Asym"}
_KNOWN = _TRANSFORMERS | _ROUTERS | {
    "BoW", "CNN", "Dense", "Dropout", "LSTM", "LayerNorm", "Normalize", "Pooling", "StaticEmbedding",
    "WeightedLayerPooling", "WordEmbeddings", "WordWeights",
}
_ACTIVATION = re.compile(r"torch\.nn\.(modules\.\w+\.)?\w+")
_WORDS = re.compile(
    r"sentence_transformers\.(models|sentence_transformer\.modules)\.tokenizer(\.\w+)?\.(Whitespace|Phrase)Tokenizer"
)
_METHOD = re.compile(r"forward|get_(text|image|audio|video)_features")
_DTYPES = {"auto", "float32", "float16", "bfloat16", "torch.float32", "torch.float16", "torch.bfloat16"}
_ARGUMENTS: Mapping[str, Callable[[Any], bool]] = {
    "dtype": lambda value: value in _DTYPES, "torch_dtype": lambda value: value in _DTYPES,
    "attn_implementation": lambda value: value in {"eager", "sdpa", "flash_attention_2"},
    "model_max_length": lambda value: type(value) is int and value > 0,
    "padding_side": lambda value: value in {"left", "right"},
    "truncation_side": lambda value: value in {"left", "right"},
    **{name: lambda value: type(value) is bool for name in (
        "add_pooling_layer", "do_lower_case", "is_causal", "low_cpu_mem_usage", "trust_remote_code", "unpad_inputs",
        "use_cache", "use_fast", "use_memory_efficient_attention", "use_safetensors",
    )},
}
"""Arguments of transformers' that do no harm, whatever they are given to; the library itself leaves out
``trust_remote_code``."""
_GIVEN = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")


def check_model_folder(folder: Path) -> None:
    """That reading the model in ``folder`` runs nothing of its own, reads no other model, and is bounded.

    Raises:
        ConfigError: it does not keep to what is known.
    """
    for path in folder.rglob("*"):
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise ConfigError(f"{path} is no file, and reading it might not end; remove it")
    _check_whole(folder / _WHOLE)
    for part, kind in _parts(folder):
        if kind in _TRANSFORMERS:
            for file in sorted(part.glob("sentence_*config.json")):
                _check_transformer(file)
            refuse_requests(part)
        if kind == "Dense":
            _check_name(part / "config.json", "activation_function", _ACTIVATION, also_others="torch.")
        if kind == "WordEmbeddings":
            _check_name(part / "wordembedding_config.json", "tokenizer_class", _WORDS)
        check_sizes(part)
        check_tokenizer(part)


def _parts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Each module's folder and class, those of Routers as well."""
    if not (folder / _MODULES).exists():
        yield folder, "Transformer"
        return
    left = list(_of_modules(folder))
    found = 0
    while left:
        part, kind = left.pop()
        found += 1
        if found > _MOST:
            raise ConfigError(f"{folder} is made of more than {_MOST} modules")
        yield part, kind
        if kind in _ROUTERS:
            left += _of_router(part)


def _of_modules(folder: Path) -> Iterator[tuple[Path, str]]:
    file = folder / _MODULES
    modules = read_json(file)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise ConfigError(f"{file} is no list of modules")
    paths = [module.get("path") for module in modules]
    for module, path in zip(modules, paths, strict=True):
        if paths.count(path) > 1:
            raise ConfigError(f"{file}: two modules lie in {path!r:.80}")
        yield (folder if path == "" else _inside(file, path)), _class(file, module.get("type"))


def _of_router(folder: Path) -> Iterator[tuple[Path, str]]:
    file = folder / "router_config.json"
    if not file.exists():
        file = folder / "config.json"
    settings = _object(file)
    types, structure = settings.get("types"), settings.get("structure")
    if not isinstance(types, dict) or not isinstance(structure, dict):
        raise ConfigError(f"{file} says no modules of a router")
    if any(not isinstance(route, list) or len(route) > _MOST for route in structure.values()):
        raise ConfigError(f"{file} has a route that is no list of up to {_MOST} modules")
    for name, kind in types.items():
        yield _inside(file, name), _class(file, kind)


def _inside(file: Path, name: Any) -> Path:
    """The folder of this name beside ``file``; one that is not there has nothing to be looked at."""
    known = isinstance(name, str) and re.fullmatch(r"[^/\\\0]+", name) and name not in {".", ".."}
    if not known or whole(name) != name or len(name.encode()) > _LONGEST_NAME:
        raise ConfigError(f"{file}: {name!r:.80} is no name of a folder beside it")
    folder = file.parent / name
    if folder.is_symlink():
        raise ConfigError(f"{folder} is a link; put the folder itself in its place")
    return folder


def _class(file: Path, name: Any) -> str:
    found = _TYPE.fullmatch(name) if isinstance(name, str) else None
    if found is None or found[1] not in _KNOWN:
        raise ConfigError(f"{file}: {name!r:.80} is no module that sentence-transformers has for embedding models; "
                          "Python of a model's own is never run")
    return found[1]


def _check_whole(file: Path) -> None:
    content = _object(file)
    if (kind := content.get("model_type", _KIND)) != _KIND:
        raise ConfigError(f"{file}: model_type is {kind!r:.80}; an embedding model is a {_KIND}")
    dims = content.get("truncate_dim")
    if dims is not None and (type(dims) is not int or dims < 1):
        raise ConfigError(f"{file}: truncate_dim is {dims!r:.40}, not a number above 0")
    prompts = content.get("prompts")
    for text in prompts.values() if isinstance(prompts, dict) else ():
        if isinstance(text, str) and len(text) > _LONGEST_PROMPT:
            raise ConfigError(f"{file}: a prompt has more than {_LONGEST_PROMPT} letters")


def _check_transformer(file: Path) -> None:
    for key, value in _object(file).items():
        if value is not None and not _is_known(key, value):
            raise ConfigError(f"{file}: {key:.40} is {value!r:.80}, which no model may say; take the entry out")


def _is_known(key: str, value: Any) -> bool:
    if key == "max_seq_length":
        return type(value) is int and value > 0
    if key in {"do_lower_case", "unpad_inputs"}:
        return type(value) is bool
    if key in {"transformer_task", "module_output_name"}:
        return isinstance(value, str)
    if key == "modality_config":
        return isinstance(value, dict) and all(
            isinstance(of, dict) and _METHOD.fullmatch(str(of.get("method"))) for of in value.values())
    if key == "processing_kwargs":
        template = value.get("chat_template") if isinstance(value, dict) and len(value) == 1 else None
        return isinstance(template, dict) and all(type(given) is bool for given in template.values())
    return key in _GIVEN and isinstance(value, dict) and all(
        given is None or (name in _ARGUMENTS and _is_scalar(given) and _ARGUMENTS[name](given))
        for name, given in value.items())


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _check_name(file: Path, key: str, known: re.Pattern[str], also_others: str = "") -> None:
    """Of a class; where ``also_others`` is said, one that does not begin so is not imported anyway."""
    name = _object(file).get(key)
    if name is None or (also_others and isinstance(name, str) and not name.startswith(also_others)):
        return
    if not isinstance(name, str) or not known.fullmatch(name):
        raise ConfigError(f"{file}: {key} is {name!r:.80}, which no model may say")


def _object(file: Path) -> dict[str, Any]:
    """Empty where there is no such file."""
    return read_object(file) if file.exists() else {}
