"""A random model of a real architecture with a real tokenizer, made in about a second, for tests that need a folder.

The tokenizer is a byte-level BPE trained on the text below, with ChatML special tokens and template, so any text
round-trips. Equal arguments give equal weights. The initialisation is wide enough for log-probs to differ visibly
between tokens and temperatures.
"""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer, Tokenizer

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = """
You are presented with a problem, a section of an article that may contain the answer, and a previous memory. Read the
section with care and update the memory with the new information that helps to answer the problem, while you keep all
relevant details from the previous memory. What is the capital of the country in which the river was first described?
The answer is written inside the box. There were one, two, three, four, five, six, seven, eight, nine or ten people.
Anna met Berta in Paris on Monday; Carl travelled from London to Berlin in 1987 and 2026. The secret number of the blue
house is 48213, the secret colour of the old town is green. Nothing else was recorded in the library that morning.
"""


HIDDEN, MAX_LEN = 64, 4096


def make_tiny_model(
    folder: str | Path, seed: int = 0, vocab: int = 512, *, architecture: str = "qwen3", tied: bool = False,
    layers: int = 2, heads: int = 2, kv_heads: int = 1,
) -> Path:
    """Write ``config.json``, ``model.safetensors`` (float32) and tokenizer into ``folder``; returns it.

    ``architecture``: ``qwen3``, ``qwen2`` or ``llama``.
    """
    # Imported here: this costs seconds.
    from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen3Config

    folder, bpe = Path(folder), ByteLevelBPETokenizer()
    bpe.train_from_iterator([TEXT], vocab, min_frequency=0, show_progress=False, special_tokens=list(SPECIAL))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(bpe.to_str()), eos_token="<|im_end|>", pad_token="<|endoftext|>",
        model_max_length=MAX_LEN,
    )
    tokenizer.chat_template = CHATML
    tokenizer.save_pretrained(folder)
    kinds = {"qwen3": Qwen3Config, "qwen2": Qwen2Config, "llama": LlamaConfig}
    own_head_dim = {} if architecture == "qwen2" else {"head_dim": HIDDEN // heads}
    config = kinds[architecture](
        vocab_size=vocab, hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=MAX_LEN,
        tie_word_embeddings=tied, initializer_range=0.1, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, **own_head_dim,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    return folder
