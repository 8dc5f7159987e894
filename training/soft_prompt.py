"""Compress, then prompt: soft tokens trained while older entries of the cache are in two bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from decodescope.engine.methods.kv_compression.kivi import Kivi
from decodescope.engine.model.heads.soft_prompt import SoftPrompt
from decodescope.engine.model.stores.packed_store import SIDES, Side

from .cachenet import Attend, batches, causal_mask, features, group_queries, nats
from .data import END, held_out_windows, training_stream
from .net import Net

TOKENS = 16
LENGTH, WINDOWS = 256, 2  # tokens a window, windows a step
UNSEEN = 48  # windows on which it is measured
NOISE = 0.1  # of the soft tokens at the beginning, in units of a token's own spread


class SoftPromptPart:
    """The part as cacheparts.py trains it.

    A row sees what it sees when the text is written token by token: the soft tokens and the newest entries as they are, the
    older ones packed in blocks, as the KV compression does it. Gradients go through the rounding as if it were none
    (straight-through).
    """

    lr = 1e-2

    def __init__(self, net: Net, seed: int, tokens: int = TOKENS, codec: Kivi | None = None) -> None:
        self.net = net
        self.codec = codec or Kivi()
        self.seed = seed
        self.head = SoftPrompt(d=net.shape.width, tokens=tokens)
        mark = net.model.embed_tokens.weight[END]  # texts begin behind it
        noise = torch.randn(self.head.embeds.shape, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            self.head.embeds.copy_(mark + NOISE * mark.std() * noise)
        self._batches: Any = None

    def quantize(self, x: Tensor, side: Side) -> Tensor:
        """x float [B, G, T, d] as the KV compression returns it, whole blocks only; its gradient is that of x."""
        whole = x.shape[2] // self.codec.pack_size * self.codec.pack_size
        with torch.no_grad():
            coded = self.codec.decode(self.codec.encode(x[:, :, :whole], side), side)
        return torch.cat([x[:, :, :whole] + (coded - x[:, :, :whole]).detach(), x[:, :, whole:]], 2)

    def attend(self, soft: int, packs: bool = True) -> Attend:
        """Attention of a causal text behind `soft` tokens that are never packed; packs: whether anything is."""
        kv_heads = self.net.shape.kv_heads
        scale = self.net.shape.head_width**-0.5
        block = self.codec.pack_size

        def attend(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            # [B, G, g or 1, T, d]
            q = group_queries(q.float(), kv_heads)
            k = k.float()[:, :, None]
            v = v.float()[:, :, None]
            T = q.shape[3]
            scores = q @ k.mT
            old, coded = None, list[Tensor]()
            if packs:
                at = torch.arange(T) - soft
                old = (at >= 0) & (at < at[:, None] // block * block)  # [T, T]: packed when the row reads
                coded = [torch.cat([x[:, :, 0, :soft], self.quantize(x[:, :, 0, soft:], side)], 2)[:, :, None]
                         for x, side in zip((k, v), SIDES, strict=True)]  # fmt: skip
                scores = torch.where(old, q @ coded[0].mT, scores)
            weights = (scores * scale).masked_fill(~causal_mask(T, T, q.device), -torch.inf).softmax(-1)
            if old is None:
                return (weights @ v).flatten(1, 2)
            return ((weights * ~old) @ v + (weights * old) @ coded[1]).flatten(1, 2)

        return attend

    def loss_of(self, ids: Tensor, prompted: bool = True, packs: bool = True) -> Tensor:
        """Nats a token of ids int64 [B, T], with the soft tokens before them or without."""
        x, soft = self.net.model.embed_tokens(ids[:, :-1]), len(self.head.embeds) if prompted else 0
        x = torch.cat([self.head.embeds[:soft].expand(len(ids), -1, -1), x], 1)
        return nats(self.net, features(self.net, x, self.attend(soft, packs))[:, soft:], ids[:, 1:])

    def loss(self) -> Tensor:
        """Of a batch of its own, from all of the training text."""
        if self._batches is None:
            self._batches = batches(training_stream(self.seed), LENGTH, WINDOWS, self.seed, "cpu")
        return self.loss_of(next(self._batches))

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Nats a token of unseen windows: the full cache and the packed one, each without the soft tokens and with them."""
        windows = held_out_windows(LENGTH + 1, UNSEEN)
        cases = [(x, y) for y in (False, True) for x in (False, True)]
        found = np.zeros(len(cases))
        for ids in windows.split(8):
            found += [
                float(self.loss_of(ids, prompted, packs)) * len(ids) / len(windows)
                for prompted, packs in cases
            ]
        names = ("full", "full, prompted", "packed", "packed, prompted")
        return {
            "under": self.codec.record(),
            "windows": len(windows),
            "nats": {name: round(float(x), 4) for name, x in zip(names, found, strict=True)},
        }
