"""What policies that look at a prompt's end must keep, computed from its full attention, one number at a time."""

from __future__ import annotations

from typing import Any

import torch
import toys
from torch import Tensor

from decodescope.engine.core.component import build
from decodescope.engine.core.probe import Needs
from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.forward.decoder import Decoder
from decodescope.engine.model.forward.feed import Feed


def sharp(seed: int = 0, by: float = 2, **changes: Any) -> Decoder:
    """A toy in float64 with heads that attend to few entries, so that their votes differ.

    by: the factor by which queries and keys are longer than a toy's usual ones.
    """
    made = toys.decoder(toys.toy_spec(**{"n_layers": 2, **changes}), seed, torch.float64)
    for layer in made.layers:
        layer.qkv *= by
    return made


@torch.inference_mode()
def maps(decoder: Decoder, text: list[int]) -> list[Tensor]:
    """Per layer, what every token of `text` gives to every other: float32 [H_kv, g, n, n]."""
    lane = Lane("full", decoder, build("policy", "keep_all"), needs=Needs("rows"))
    lane.forward(Feed.causal_chain(text, 0))
    assert lane.probe is not None
    return [rows[0] for _, rows in sorted(lane.probe.rows.items())]


def votes(full: Tensor, window: int, reach: int, pool: str) -> list[list[float]]:
    """Per KV head, the worth of each entry before the window; full: one layer's map."""
    heads, group, n, _ = full.shape
    worth = []
    for h in range(heads):
        sums = full[h, :, n - window :, : n - window].double().sum(1).tolist()  # [g, n - w]
        pooled = []
        for row in sums:
            near = [
                [row[q] for q in range(p - reach, p + reach + 1) if 0 <= q < len(row)]
                for p in range(len(row))
            ]
            pooled.append([max(x) if pool == "max" else sum(x) / (2 * reach + 1) for x in near])
        worth.append([sum(column) / group for column in zip(*pooled, strict=True)])
    return worth


def best(worth: list[float], count: int) -> list[int]:
    """The positions of the `count` largest; on ties the lower positions."""
    return sorted(sorted(range(len(worth)), key=lambda p: (-worth[p], p))[:count])


def held(lane: Lane) -> list[list[list[int]]]:
    """Per layer and KV head, the positions that are held."""
    heads = lane.decoder.spec.n_kv_heads
    rows = [store.positions()[0].expand(heads, -1).tolist() for store in lane.cache.layers]
    return [[sorted(p for p in row if p >= 0) for row in layer] for layer in rows]  # -1: others hold more
