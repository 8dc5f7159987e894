"""Toy models: seeded, tiny, with a vocabulary so small that everything can be counted."""

from __future__ import annotations

import torch

from decodescope.engine.decoder import Decoder, Layer
from decodescope.engine.load import Model
from decodescope.engine.spec import ModelSpec, Rope

SPEC = ModelSpec(
    "toy", n_layers=3, n_heads=4, n_kv_heads=2, head_dim=8, d_model=32, d_ff=64, vocab=13, max_positions=512, rope=Rope(dim=8)
)
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 3, 1, 4]


def decoder(spec: ModelSpec = SPEC, seed: int = 0, dtype: torch.dtype = torch.float32, sharp: float = 4.0) -> Decoder:
    """A random decoder; `sharp` scales the unembedding, so that its laws are neither flat nor certain."""
    g = torch.Generator().manual_seed(seed)

    def w(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=g, dtype=torch.float64) * shape[-1] ** -0.5).to(dtype)

    d, width = spec.d_model, spec.n_heads * spec.head_dim
    layers = [
        Layer(
            torch.ones(d, dtype=dtype),
            w((spec.n_heads + 2 * spec.n_kv_heads) * spec.head_dim, d) * 2,
            w(d, width),
            torch.ones(d, dtype=dtype),
            w(2 * spec.d_ff, d),
            w(d, spec.d_ff),
        )
        for _ in range(spec.n_layers)
    ]
    embed = w(spec.vocab, d) * d**0.5
    return Decoder(spec, embed, layers, torch.ones(d, dtype=dtype), w(spec.vocab, d) * sharp)


def noisy(base: Decoder, noise: float, seed: int = 1) -> Decoder:
    """A decoder whose weights are those of `base` and some noise: a draft model that is right now and then."""
    g = torch.Generator().manual_seed(seed)

    def blur(x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn(x.shape, generator=g, dtype=torch.float64).to(x.dtype) * noise * x.abs().mean()

    layers = [
        Layer(a.attn_norm, blur(a.qkv), blur(a.out), a.mlp_norm, blur(a.gate_up), blur(a.down)) for a in base.layers
    ]
    return Decoder(base.spec, blur(base.embed), layers, base.norm, blur(base.head))


def model(made: Decoder) -> Model:
    """A loaded model without a tokenizer."""
    return Model(made.spec.name, None, made.spec, made, None, "0" * 16, [])


def target(dtype: torch.dtype = torch.float32, seed: int = 0) -> Model:
    """The toy target."""
    return model(decoder(seed=seed, dtype=dtype))


def draft(dtype: torch.dtype = torch.float32, noise: float = 0.4) -> Model:
    """Its draft model."""
    return model(noisy(decoder(dtype=dtype), noise))
