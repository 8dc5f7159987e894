"""The cache coprocessor: latent vectors, computed from a frozen model's cache, that make the next tokens likelier."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.heads.coprocessor import Coprocessor

from .cachenet import batches, causal_mask, features, group_queries, nats
from .data import END, held_out_windows, training_stream
from .net import Net, apply_rotary

TOKENS, RANK = 8, 16
LENGTH, WINDOWS = 256, 4  # tokens a window, windows a step
PLACES, AHEAD = 4, 16  # augmentations of a window; tokens after each that count
UNSEEN = 64  # windows on which it is measured
NOISE = 0.1  # of the soft tokens at the beginning, in units of a token's own spread


class CoprocessorPart:
    """The part as cacheparts.py trains it.

    A window is read once by the frozen model, without a gradient. At each of several places the coprocessor reads the cache up
    to there, and the frozen model reads its latents and the tokens that follow. The loss is that of these tokens.
    `computes` = False uses the soft tokens themselves as latents: the baseline without a coprocessor.
    """

    lr = 1e-3

    def __init__(
        self, net: Net, seed: int, tokens: int = TOKENS, rank: int = RANK, computes: bool = True
    ) -> None:
        s = net.shape
        self.net, self.seed = net, seed
        self.computes = computes
        self.head = Coprocessor(
            d=s.width, tokens=tokens, rank=rank, n_layers=s.layers, n_heads=s.heads, n_kv_heads=s.kv_heads,
            head_dim=s.head_width, d_ff=s.inner,
        )  # fmt: skip
        draw = torch.Generator().manual_seed(seed)
        mark = net.model.embed_tokens.weight[END]
        with torch.no_grad():
            self.head.embeds.copy_(
                mark + NOISE * mark.std() * torch.randn(self.head.embeds.shape, generator=draw)
            )
            for name, x in self.head.named_parameters():
                if name.endswith("_a"):
                    x.copy_(torch.randn(x.shape, generator=draw) * x.shape[2] ** -0.5)
        self.draw = draw
        self._batches: Any = None

    @torch.no_grad()
    def remember(self, ids: Tensor) -> list[tuple[Tensor, Tensor]]:
        """By layer, the frozen model's keys, rotated, and values [B, G, T, d] of ids int64 [B, T]."""
        memory = list[tuple[Tensor, Tensor]]()

        def attend(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            memory.append((k, v))
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        features(self.net, self.net.model.embed_tokens(ids), attend)
        return memory

    def read(self, x: Tensor, places: Tensor, memory: list[tuple[Tensor, Tensor]], adapted: bool) -> Tensor:
        """The final features [R, S, D] of inputs x [R, S, D] behind the first places[r] entries of `memory`, by layer
        [R, G, T, d]. adapted: read by the coprocessor, not by the frozen model."""
        s, S = self.net.shape, x.shape[1]
        at = places[:, None] + torch.arange(S)
        turn = self.net.cosine[at][:, None], self.net.sine[at][:, None]  # [R, 1, S, d]
        old = torch.arange(memory[0][0].shape[2]) < places[:, None, None, None, None]  # [R, 1, 1, 1, T]
        seen = torch.cat(
            [old.expand(-1, -1, -1, S, -1), causal_mask(S, S, x.device)[None].expand(len(x), -1, -1, -1, -1)],
            4,
        )
        for i, layer in enumerate(self.net.layers):
            a, m = layer.self_attn, layer.mlp
            y = layer.input_layernorm(x)
            qkv = torch.cat([p(y) for p in (a.q_proj, a.k_proj, a.v_proj)], -1) + self.change(
                "qkv", i, y, adapted
            )
            heads = qkv.unflatten(2, (-1, s.head_width)).transpose(1, 2)
            q, k, v = heads.split((s.heads, s.kv_heads, s.kv_heads), 1)
            k = torch.cat([memory[i][0], apply_rotary(k, turn)], 2)[:, :, None]
            v = torch.cat([memory[i][1], v], 2)[:, :, None]
            q = group_queries(apply_rotary(q, turn), s.kv_heads)  # [R, G, g, S, d]
            scores = (q @ k.mT).float() * s.head_width**-0.5
            y = scores.masked_fill(~seen, -torch.inf).softmax(-1).to(v.dtype) @ v
            y = y.flatten(1, 2).transpose(1, 2).flatten(2).to(x.dtype)
            x = x + a.o_proj(y) + self.change("out", i, y, adapted)
            y = layer.post_attention_layernorm(x)
            both = torch.cat([m.gate_proj(y), m.up_proj(y)], -1) + self.change("gate_up", i, y, adapted)
            gate, up = both.chunk(2, -1)
            y = F.silu(gate) * up
            x = x + m.down_proj(y) + self.change("down", i, y, adapted)
        feature: Tensor = self.net.model.norm(x)
        return feature

    def change(self, name: str, layer: int, x: Tensor, adapted: bool) -> Tensor | float:
        """What the coprocessor adds to the product of a matrix with x [R, S, in]; of the frozen model nothing."""
        if not adapted:
            return 0.0
        a, b = self.head.factors(name, layer)
        return F.linear(F.linear(x, a), b)

    def loss_of(self, ids: Tensor, places: Tensor, latent: bool = True) -> Tensor:
        """Nats a token, for ids int64 [B, T] and places int64 [B, P]: of the `AHEAD` tokens behind token number places[b, p],
        which follows the latents; places + AHEAD must be below T. latent: with the latents, or without."""
        rows = torch.arange(len(ids)).repeat_interleave(places.shape[1])
        memory = [(k[rows], v[rows]) for k, v in self.remember(ids)]
        at = places.flatten()
        text = ids[rows[:, None], at[:, None] + torch.arange(AHEAD + 1)]
        x = self.net.model.embed_tokens(text[:, :-1])
        if not latent:
            return nats(self.net, self.read(x, at, memory, False), text[:, 1:])
        added = self.head.embeds.expand(len(x), -1, -1)
        if self.computes:
            added = self.read(added, at, memory, True)
        feature = self.read(torch.cat([added.to(x.dtype), x], 1), at, memory, False)
        return nats(self.net, feature[:, added.shape[1] :], text[:, 1:])

    def loss(self) -> Tensor:
        """Of a batch of its own, from all of the training text."""
        if self._batches is None:
            self._batches = batches(training_stream(self.seed), LENGTH, WINDOWS, self.seed, "cpu")
        ids = next(self._batches)
        places = torch.randint(1, ids.shape[1] - AHEAD, (len(ids), PLACES), generator=self.draw)
        # these many small products take seven times as long in bfloat16
        with torch.autocast("cpu", enabled=False):
            return self.loss_of(ids, places)

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Nats a token, of the `AHEAD` tokens behind several places of unseen windows, with the latents and without."""
        windows = held_out_windows(LENGTH + 1, UNSEEN)
        places = torch.linspace(16, LENGTH - AHEAD, PLACES).long()
        mine, plain = 0.0, 0.0
        for ids in windows.split(8):
            each = places.expand(len(ids), -1)
            mine += float(self.loss_of(ids, each)) * len(ids) / len(windows)
            plain += float(self.loss_of(ids, each, latent=False)) * len(ids) / len(windows)
        return {
            "windows": len(windows),
            "places": places.tolist(),
            "tokens": AHEAD,
            "nats": {"without": round(plain, 4), "with latents": round(mine, 4)},
        }
