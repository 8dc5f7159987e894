"""A reference for cache policies: nothing is ever dropped, an explicit mask per layer and KV head hides it."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.decoder import Decoder

# (positions still kept, their mass by position float32 [n], tokens read) -> positions kept from now on
Keep = Callable[[list[int], Tensor, int], list[int]]


def hitters(heavy: int, recent: int) -> Keep:
    """H2O's rule: the newest, and of the older ones those with most mass, of equal ones the lower position."""

    def keep(held: list[int], mass: Tensor, n: int) -> list[int]:
        if len(held) <= heavy + recent:
            return held
        old = sorted((p for p in held if p < n - recent), key=lambda p: (-float(mass[p]), p))
        return old[:heavy] + [p for p in held if p >= n - recent]

    return keep


class Masked:
    """Reads blocks of tokens. kept[layer][head] are the positions a query may still see; what left never returns.

    in_cache: keys are rotated anew at each reading, by their rank among the kept ones (all heads keep the same)
    mass:     float32 [L, H_kv, n], attention received so far, summed over queries and group
    keep:     one for all, or keep[layer][head]
    """

    def __init__(self, decoder: Decoder, keep: Keep | list[list[Keep]], in_cache: bool = False):
        self.decoder, self.spec, self.in_cache = decoder, decoder.spec, in_cache
        s = self.spec
        self.keep = keep if isinstance(keep, list) else [[keep] * s.n_kv_heads] * s.n_layers
        self.n = 0
        self.kept = [[[] for _ in range(s.n_kv_heads)] for _ in range(s.n_layers)]
        self.kv = [torch.zeros(2, s.n_kv_heads, 0, s.head_dim, dtype=decoder.dtype) for _ in range(s.n_layers)]
        self.mass = torch.zeros(s.n_layers, s.n_kv_heads, 0)

    def read(self, tokens: list[int], cut: bool = True) -> Tensor:
        """Logits [T, V] of a block; then its attention counts, then entries may leave, unless it is a prompt that goes on."""
        s, T = self.spec, len(tokens)
        x = F.embedding(torch.tensor(tokens), self.decoder.embed)
        self.mass = F.pad(self.mass, (0, T))
        for i, w in enumerate(self.decoder.layers):
            y = F.rms_norm(x, (s.d_model,), w.attn_norm, s.norm_eps)
            qkv = (y @ w.qkv.T).view(T, -1, s.head_dim).transpose(0, 1)  # [H + 2 H_kv, T, D]
            new = qkv[s.n_heads :].unflatten(0, (2, s.n_kv_heads))
            self.kv[i] = torch.cat([self.kv[i], new], 2)
            out = torch.stack([self._head(i, h, qkv[h], T) for h in range(s.n_heads)], 1)  # [T, H, D]
            x = x + out.flatten(1) @ w.out.T
            y = F.rms_norm(x, (s.d_model,), w.mlp_norm, s.norm_eps)
            gate, up = (y @ w.gate_up.T).chunk(2, -1)
            x = x + (F.silu(gate) * up) @ w.down.T
        block = list(range(self.n, self.n + T))
        self.n += T
        for i, heads in enumerate(self.kept):
            for h, old in enumerate(heads):
                heads[h] = sorted(self.keep[i][h](old + block, self.mass[i, h], self.n)) if cut else old + block
        return self.decoder.unembed(self.decoder.normed(x))

    def _head(self, i: int, h: int, q: Tensor, T: int) -> Tensor:
        g = h // self.spec.group
        seen = self.kept[i][g]
        visible = torch.zeros(T, self.n + T, dtype=torch.bool)
        visible[:, seen] = True
        visible[:, self.n :] = torch.ones(T, T, dtype=torch.bool).tril()
        at = torch.arange(self.n + T)
        if self.in_cache:
            at[seen] = torch.arange(len(seen))
            at[self.n :] = torch.arange(T) + len(seen)
        window = self.spec.window(i)
        if window is not None:  # counted where positions are
            visible &= at[self.n :, None] - at < window
        k, v = rotated(self.kv[i][0, g], at, self.decoder), self.kv[i][1, g]
        scores = rotated(q, at[self.n :], self.decoder) @ k.T / self.spec.head_dim**0.5
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)  # [T, n + T]
        self.mass[i, g] += weights.float().sum(0)
        return weights @ v


def rotated(x: Tensor, at: Tensor, decoder: Decoder) -> Tensor:
    """x [T, D] rotated to the positions `at`; angles in float32, or in float64 as x, as the decoder's table has them."""
    half = x.shape[-1] // 2
    inv = decoder.spec.rope.theta ** -(torch.arange(half, dtype=torch.float64) / half)
    angle = torch.outer(at.double(), inv)
    angle = angle if x.dtype == torch.float64 else angle.float()
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
