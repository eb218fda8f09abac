"""A byte-level BPE tokenizer with a ChatML template, trained in a moment on a few sentences."""

from __future__ import annotations

from functools import lru_cache

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
SENTENCES = [
    "The key of Anna is red and the key of Ben is blue.",
    "Read the section, keep what the problem needs, rewrite your memory. Nothing yet.",
    "You have read a long document and kept a memory of it. Answer inside \\boxed{}.",
]


@lru_cache
def make_tokenizer(thinking_tokens: bool = True, vocab: int = 400) -> PreTrainedTokenizerFast:
    """``thinking_tokens``: whether ``<think>`` and ``</think>`` are single added tokens, as in Qwen3."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    core.train_from_iterator(SENTENCES * 4, trainer)
    core.add_special_tokens([AddedToken(t, special=True) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    if thinking_tokens:
        core.add_tokens([AddedToken(t, special=False) for t in ("<think>", "</think>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHATML
    )


def encode(text: str) -> list[int]:
    """A reply that ends its turn."""
    tokenizer = make_tokenizer()
    return [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
