"""A tiny model in one GGUF file, tokenizer and chat template included: it loads and decodes as a published one does."""

from __future__ import annotations

from pathlib import Path

import torch
from gguf_files import convert_model, write_gguf

from decodescope.engine.model.checkpoint.tokenizer import _byte_letters

TEMPLATE = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|bot|>{% endif %}"
MARKS = ("<|end|>", "<|user|>", "<|bot|>")


def write_tiny_chat(path: Path) -> Path:
    """Write the model: two layers of width 32, every byte a token, one merge, and three marks of a chat."""
    import transformers

    torch.manual_seed(11)
    vocab = 257 + len(MARKS)
    config = transformers.LlamaConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
    )
    with torch.inference_mode(False):
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
    said, tensors = convert_model(model, "llama")
    return write_gguf(
        path,
        "llama",
        said,
        tensors,
        tokenizer__ggml__model="gpt2",
        tokenizer__ggml__pre="gpt-2",
        tokenizer__ggml__tokens=[*_byte_letters(), "ab", *MARKS],
        tokenizer__ggml__token_type=[1] * 257 + [3] * len(MARKS),
        tokenizer__ggml__merges=["a b"],
        tokenizer__ggml__eos_token_id=257,
        tokenizer__chat_template=TEMPLATE,
    )
