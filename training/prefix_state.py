"""NTK-Attention: the state of an infinitely long prefix, trained on one style of text."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from decodescope.engine.model.attention.segments import eager_partial_attention, merge_partial_attention
from decodescope.engine.model.heads.prefix_state import PrefixState

from .cachenet import Attend, batches, causal_mask, features, group_queries, nats
from .data import held_out_windows, load
from .net import Net

STYLE = "docs"  # documentation in prose
LENGTH, WINDOWS = 256, 2  # tokens a window, windows a step
UNSEEN = 48  # windows on which it is measured


class PrefixPart:
    """The part as cacheparts.py trains it.

    Queries are rotated when they meet the state, as in the authors' code. So windows are put at random places of the context:
    else it would learn the places of a window's tokens.
    """

    lr = 1.5e-2

    def __init__(self, net: Net, seed: int, kind: str = STYLE) -> None:
        s = net.shape
        self.net, self.kind = net, kind
        self.head = PrefixState(d=s.width, n_layers=s.layers, n_heads=s.heads, head_dim=s.head_width)
        self.seed, self.draw = seed, torch.Generator().manual_seed(seed)
        self._batches: Any = None

    def attend(self) -> Attend:
        """Attention of a causal text, and the state."""
        kv_heads, scale = self.net.shape.kv_heads, self.net.shape.head_width**-0.5

        def attend(i: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q = group_queries(q.float(), kv_heads)
            seen = causal_mask(q.shape[3], k.shape[2], q.device)
            parts = [
                eager_partial_attention(q, k.float(), v.float(), seen, scale),
                self.head.segment(i, kv_heads).attend(q, None, scale),
            ]
            return merge_partial_attention(parts).output().flatten(1, 2)

        return attend

    def loss_of(self, ids: Tensor, first: int = 0) -> Tensor:
        """Nats a token of ids int64 [B, T]; `first`: the place of the first one."""
        x = self.net.model.embed_tokens(ids[:, :-1])
        return nats(self.net, features(self.net, x, self.attend(), first), ids[:, 1:])

    def loss(self) -> Tensor:
        """Of a batch of its own."""
        if self._batches is None:
            stream = load("train")[self.kind].ids
            self._batches = batches(stream, LENGTH, WINDOWS, self.seed, "cpu")
        ids = next(self._batches)
        return self.loss_of(
            ids, int(torch.randint(self.net.shape.context - ids.shape[1], (), generator=self.draw))
        )

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Nats a token of unseen windows of its style, with the state and without."""
        windows = held_out_windows(LENGTH + 1, UNSEEN, self.kind)
        mine, plainly = [], []
        for ids in windows.split(8):
            mine.append(float(self.loss_of(ids)) * len(ids))
            plainly.append(
                float(nats(self.net, self.net.model.norm(self.net.states(ids[:, :-1])[-1]), ids[:, 1:]))
                * len(ids)
            )
        figures = {"with it": sum(mine) / len(windows), "without": sum(plainly) / len(windows)}
        return {
            "style": self.kind,
            "windows": len(windows),
            "nats": {k: round(x, 4) for k, x in figures.items()},
        }
