"""A GGUF file of a Llama becomes a Hugging Face folder with the same weights and tokens. The file is made here."""

import gguf
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from mem_agent.pocket import smollm2

HEADS, GROUPS, WIDTH = 4, 2, 32
CONTROL, BYTES = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], [chr(code) for code in range(33, 127)]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def write_model(path):
    """A model, and its file as llama.cpp's converter writes it: of each head the two halves of a rotary pair
    alternate."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=HEADS, rms_norm_eps=1e-5,
        num_key_value_heads=GROUPS, max_position_embeddings=64, rope_theta=100000.0, tie_word_embeddings=True,
        vocab_size=len(CONTROL) + len(BYTES) + 2)
    model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    writer = gguf.GGUFWriter(path, "llama")
    tokens = [*CONTROL, *BYTES, "\u0120", "he"]
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(2)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)))
    writer.add_token_merges(["h e"])
    for add, number in ((writer.add_bos_token_id, 1), (writer.add_eos_token_id, 2), (writer.add_unk_token_id, 0),
                        (writer.add_pad_token_id, 2)):
        add(number)
    writer.add_chat_template(TEMPLATE)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, tensor in model.named_parameters():
        array = tensor.detach().float().numpy()
        if kind := next((kind for kind in ("q_proj", "k_proj") if kind in name), ""):
            heads = HEADS if kind == "q_proj" else GROUPS
            array = array.reshape(heads, 2, -1, WIDTH).swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(names.get_name(name, (".weight",)), np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def test_a_file_of_the_package_gives_the_same_model_where_the_hub_is_out_of_reach(tmp_path, monkeypatch):
    model = write_model(tmp_path / "model.gguf")
    monkeypatch.setattr(smollm2, "_from_hub", lambda output: False)
    monkeypatch.setattr(smollm2, "_package_file", lambda folder: tmp_path / "model.gguf")
    assert smollm2.main(["--output", str(tmp_path / "made")]) == 0
    made = AutoModelForCausalLM.from_pretrained(tmp_path / "made")
    ids = torch.tensor([[1, 40, 41, 98, 7]])
    assert torch.equal(made(ids).logits, model(ids).logits)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "made")
    text = tokenizer.apply_chat_template([{"role": "user", "content": "he 12"}], tokenize=False)
    pieces = tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids)
    assert pieces[0] == "<|im_start|>" and {"he", "1", "2"} <= set(pieces) and tokenizer.eos_token == "<|im_end|>"
