"""Chat templates that do what those of known models do, in words of our own.

Each renders a conversation with the marks of its family; what differs, and matters here, is in its comment.
"""

from __future__ import annotations

import copy
from typing import Any

from mem_agent.agents.vocabulary import Vocabulary
from mem_agent.tests.helpers.tiny_tokenizer import CHATML, make_tokenizer

LOOP = "{% for m in messages %}"
REPLY = "{% if add_generation_prompt %}"
TAKES_TURNS = (
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must take turns') }}{% endif %}"
)
TEMPLATES = {
    "chatml": CHATML,
    # As Qwen2.5's: a system message of its own where the conversation has none.
    "qwen2.5": "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}" + CHATML,
    # As Llama 3.2's: texts are trimmed, and a text of its own stands before the system message's.
    "llama3": "{% set s = '' %}{% if messages[0].role == 'system' %}{% set s = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}{% endif %}[system]\nDate: today\n\n{{ s }}[end]"
    f"{LOOP}[{{{{ m.role }}}}]\n\n{{{{ m.content | trim }}}}[end]{{% endfor %}}{REPLY}[assistant]\n\n{{% endif %}}",
    # As Gemma's: no system role, the assistant is called model, roles take turns.
    "gemma": "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    f"{LOOP}{TAKES_TURNS}[turn]{{{{ 'model' if m.role == 'assistant' else m.role }}}}\n"
    f"{{{{ m.content | trim }}}}[end]\n{{% endfor %}}{REPLY}[turn]model\n{{% endif %}}",
    # As some early ones: a system message is left out without a word.
    "deaf": f"{LOOP}{{% if m.role != 'system' %}}{{{{ m.role }}}}: {{{{ m.content }}}}\n{{% endif %}}{{% endfor %}}"
    "assistant: ",
    # As Mistral's newer ones: the system message stands before the last user message.
    "late": LOOP + "{% if m.role == 'user' %}[I] {% if loop.last and messages[0].role == 'system' %}"
    "{{ messages[0].content }}\n\n{% endif %}{{ m.content }}[/I]{% elif m.role == 'assistant' %} {{ m.content }}[end]"
    "{% endif %}{% endfor %}",
    # Of no known model: it shows the last message alone.
    "last": "{{ messages[-1].content }}: ",
    # As Qwen3's with thinking: the prompt ends inside it.
    "thinking": CHATML.replace("<think>\n\n</think>\n\n", "<think>\n"),
    # A base model: none at all.
    "none": None,
}


def vocabulary(template: str | None) -> Vocabulary:
    """The small tokenizer with this chat template."""
    tokenizer: Any = copy.deepcopy(make_tokenizer())
    tokenizer.chat_template, tokenizer.bos_token = template, "<|endoftext|>"
    return Vocabulary(tokenizer)
