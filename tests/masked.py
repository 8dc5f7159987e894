"""A reference for cache policies: it drops nothing, an explicit mask per layer and KV head hides what a policy drops."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import AttentionSinks, Band
from decodescope.engine.model.layers.norm import single_weight

# (positions still kept, their mass by position float32 [n], tokens read) -> positions kept from now on
Keep = Callable[[list[int], Tensor, int], list[int]]


def hitters(heavy: int, recent: int) -> Keep:
    """H2O's rule: keep the newest, and of the older ones those with the most mass; on ties the lower position."""

    def keep(held: list[int], mass: Tensor, n: int) -> list[int]:
        if len(held) <= heavy + recent:
            return held
        old = sorted((p for p in held if p < n - recent), key=lambda p: (-float(mass[p]), p))
        return old[:heavy] + [p for p in held if p >= n - recent]

    return keep


class Whole:
    """Reads B texts at once and drops nothing. `seen[i]`, bool [B, H_kv, n], says which positions of layer i a query may see.

    Keys are stored before rotation: a score is the query, rotated by the distance to an entry, times the entry's key.
    sinks: None: distances are those of the text. Without a cap: distances between places in a cache that holds what the row
           sees, side by side. With a cap: the first entries are never further away than the cap, and a row sees only those of
           the others that are nearer
    band:  what a row sees of the text before it; None: all that is seen
    n:     tokens read
    kv:    per layer float [2, B, H_kv, n, D], keys before rotation and values
    given: per layer float [B, H_kv, g, T, n + T], what the rows of the last pass gave to all positions, and to one another
    asked: per layer float [B, H_kv, g, T, D], their queries before rotation
    narrow: (layer, scores float [B, H_kv, g, T, n + T], -inf where a row sees nothing) -> bool, what is read of that; None: all
    """

    narrow: Callable[[int, Tensor], Tensor] | None = None

    def __init__(
        self, decoder: Decoder, batch: int = 1, sinks: AttentionSinks | None = None, band: Band | None = None
    ):
        self.decoder, self.spec, self.sinks, self.band = decoder, decoder.spec, sinks, band
        L, H = self.spec.n_layers, self.spec.n_kv_heads
        self.n = 0
        self.kv = [torch.zeros(2, batch, H, 0, self.spec.head_dim, dtype=decoder.dtype) for _ in range(L)]
        self.seen = [torch.zeros(batch, H, 0, dtype=torch.bool) for _ in range(L)]
        self.given: list[Tensor] = [torch.empty(0)] * L
        self.asked: list[Tensor] = [torch.empty(0)] * L

    def fed(self, tokens: Tensor, visible: Tensor | None = None) -> Tensor:
        """Return the logits [B, T, V] of `tokens` int64 [B, T], which wait for a commit.

        visible: bool [T, T], the rows that a row sees, itself among them; None: all rows before it.
        """
        s, (B, T) = self.spec, tokens.shape
        self._visible = torch.ones(T, T, dtype=torch.bool).tril() if visible is None else visible
        self._depth = self._visible.sum(1) - 1  # depth of a row below the first one
        self._pending = []
        x = F.embedding(tokens, self.decoder.embed)
        for i, w in enumerate(self.decoder.layers):
            # a loaded norm's weight is stored twice
            y = F.rms_norm(x, (s.d_model,), single_weight(w.attn_norm, s.d_model), s.norm_eps)
            qkv = (y @ w.qkv.T).view(B, T, -1, s.head_dim).transpose(1, 2)  # [B, H + 2 H_kv, T, D]
            self.asked[i] = qkv[:, : s.n_heads].unflatten(1, (s.n_kv_heads, s.group))
            self._pending.append(qkv[:, s.n_heads :].unflatten(1, (2, s.n_kv_heads)).transpose(0, 1))
            k, v = torch.cat([self.kv[i], self._pending[i]], 3)
            distance, inside = self._sight(i)
            # [B, H_kv, g, T, n + T, D]
            turned = self.turned(self.asked[i][:, :, :, :, None], distance[:, :, None])
            scores = (turned * k[:, :, None, None]).sum(-1) / s.head_dim**0.5
            scores = scores.masked_fill(~inside[:, :, None], -torch.inf)
            if self.narrow is not None:
                scores = scores.masked_fill(~self.narrow(i, scores), -torch.inf)
            self.given[i] = scores.softmax(-1)
            out = self.given[i] @ v[:, :, None]  # [B, H_kv, g, T, D]
            x = x + out.flatten(1, 2).transpose(1, 2).flatten(2) @ w.out.T
            y = F.rms_norm(x, (s.d_model,), single_weight(w.mlp_norm, s.d_model), s.norm_eps)
            gate, up = (y @ w.gate_up.T).chunk(2, -1)
            x = x + (F.silu(gate) * up) @ w.down.T
        return self.decoder.unembed(self.decoder.apply_norm(x))

    def _sight(self, i: int) -> tuple[Tensor, Tensor]:
        """For layer i, return each row's distance to each position and row, int64, and whether it sees it, bool.

        Both are [B, H_kv, T, n + T] (a dimension is 1 where all are alike).
        """
        seen, T, sinks = self.seen[i], len(self._depth), self.sinks
        inside = torch.cat(
            [seen[:, :, None].expand(-1, -1, T, -1), self._visible.expand(*seen.shape[:2], T, T)], 3
        )
        rows = self.n + self._depth
        at = torch.cat([torch.arange(self.n), rows])
        distance = (rows[:, None] - at)[None, None]
        if self.band is not None:
            near = (at < self.band.first) | (distance <= self.band.newest)
            held = torch.tensor(self.band.heads[i] if self.band.heads else True)
            inside = inside & (near | ~held.view(1, -1, 1, 1))
        if (
            sinks is not None and sinks.cap is None
        ):  # side by side: the rank among what the row sees, with the row itself last
            distance = inside.sum(3, keepdim=True) - inside.cumsum(3)
        elif sinks is not None:
            first = at < sinks.first
            inside = inside & (first | (distance < sinks.cap))
            distance = torch.where(first, distance.clamp(max=sinks.cap), distance)
        window = self.spec.window(i)
        if window is not None:  # counted in the same way as distances
            inside = inside & (distance < window)
        return distance, inside

    def turned(self, x: Tensor, by: Tensor) -> Tensor:
        """Rotate x [..., D] by so many places, int64 [...]."""
        return rotated(x, by, self.decoder)

    def commit(self, rows: list[int] | None = None) -> None:
        """Keep the pending rows `rows` (None: all), which continue the texts; later rows see them."""
        rows = list(range(len(self._depth))) if rows is None else rows
        self.n += len(rows)
        self.kv = [
            torch.cat([kv, new[:, :, :, rows]], 3) for kv, new in zip(self.kv, self._pending, strict=True)
        ]
        self.seen = [F.pad(x, (0, len(rows)), value=True) for x in self.seen]

    def keys(self, i: int) -> Tensor:
        """float [B, H_kv, n, D]: the keys of layer i as a store has them, each rotated to its position in the text."""
        return self.turned(self.kv[i][0], torch.arange(self.n))

    def hold(self, i: int, k: Tensor, v: Tensor) -> None:
        """Use these keys and values [B, H_kv, n, D] in layer i from now on, given as a store has them."""
        self.kv[i] = torch.stack([self.turned(k, -torch.arange(self.n)), v])


class Masked(Whole):
    """Reads blocks of one text. kept[layer][head] are the positions that a query may still see; dropped ones never return.

    in_cache: keys are rotated again at each reading, by their rank among the kept ones (all heads keep the same)
    mass:     float32 [L, H_kv, n], attention received so far, summed over queries and group
    keep:     one for all, or keep[layer][head]
    """

    def __init__(self, decoder: Decoder, keep: Keep | list[list[Keep]], in_cache: bool = False):
        super().__init__(decoder, sinks=AttentionSinks(0) if in_cache else None)
        s = self.spec
        self.keep = keep if isinstance(keep, list) else [[keep] * s.n_kv_heads] * s.n_layers
        self.kept = [[[] for _ in range(s.n_kv_heads)] for _ in range(s.n_layers)]
        self.mass = torch.zeros(s.n_layers, s.n_kv_heads, 0)

    def read(self, tokens: list[int], cut: bool = True) -> Tensor:
        """Return the logits [T, V] of a block.

        Then the block's attention counts. Then entries may leave, unless the block is a prompt that continues.
        """
        for i, heads in enumerate(self.kept):
            for h, held in enumerate(heads):
                self.seen[i][0, h] = torch.zeros(self.n, dtype=torch.bool).index_fill(
                    0, torch.tensor(held, dtype=torch.long), True
                )
        logits, block = self.fed(torch.tensor([tokens])), list(range(self.n, self.n + len(tokens)))
        self.mass = F.pad(self.mass, (0, len(tokens)))
        for i, given in enumerate(self.given):
            self.mass[i] += given[0].float().sum(2).sum(1)
        self.commit()
        for i, heads in enumerate(self.kept):
            for h, old in enumerate(heads):
                heads[h] = (
                    sorted(self.keep[i][h](old + block, self.mass[i, h], self.n)) if cut else old + block
                )
        return logits[0]


def rotated(x: Tensor, at: Tensor, decoder: Decoder) -> Tensor:
    """Rotate x [..., D] to the positions `at` [...]; angles are in float32, or in float64 as x, as in the decoder's table."""
    half = x.shape[-1] // 2
    inv = decoder.spec.rope.theta ** -(torch.arange(half, dtype=torch.float64) / half)
    angle = at[..., None].double() * inv
    angle = angle if x.dtype == torch.float64 else angle.float()
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
