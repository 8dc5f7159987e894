"""Medusa's heads as FasterDecoding/Medusa writes them: medusa_lm_head.safetensors or .pt."""

from __future__ import annotations

from ..drafting.medusa import MedusaHeads
from .published_folder import LayerMapping, PublishedFolder

MOST = 16  # heads, and blocks of a head


def convert_medusa(stored: PublishedFolder) -> MedusaHeads:
    """Names: `k.j.linear` is block j of head k, and `k.L`, after its L blocks, its own vocabulary matrix. The numbers of heads
    and blocks are the file's: published configs claim two heads although there are five.

    Names as in FasterDecoding/Medusa, medusa/model/medusa_model.py and medusa/train/train_legacy.py.
    """
    d, vocab = stored.spec.d_model, stored.spec.vocab
    heads = next((k for k in range(MOST) if f"{k}.0.linear.weight" not in stored.shapes), MOST)
    layers = next((j for j in range(1, MOST + 1) if f"0.{j}.weight" in stored.shapes), 0)
    stored.config.agree("hidden_act", "silu")  # of its blocks, in other libraries
    stored.expect({"hidden_size": (d,), "vocab_size": (vocab,), "truncated_vocab_size": (vocab,)})
    if not heads or not layers:
        raise stored.refusal(
            "names no Medusa heads in its file of weights (0.0.linear.weight, 0.1.weight); download it again."
        )
    stored.remark_mismatch("medusa_num_heads", heads)
    stored.remark_mismatch("medusa_num_layers", layers)
    parts = []
    for k in range(heads):
        parts.append(LayerMapping(f"words.{k}", f"{k}.{layers}", (vocab, d), bias=False))
        for j, block in enumerate(stored.repeated_names([f"{k}.{j}.linear" for j in range(layers)])):
            parts.append(LayerMapping(f"blocks.{k * layers + j}", block, (d, d)))
    return MedusaHeads.from_tensors(
        dict(d=d, heads=heads, layers=layers, vocab=vocab), stored.linear_tensors(parts)
    )
