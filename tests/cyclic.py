"""Nets that trainings are tested on: one that anybody can foretell, and a random one."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "assets" / "training"))
from net import Net, Shape

V, D = 13, 32
NEXT = [5, 0, 7, 1, 9, 3, 11, 4, 12, 2, 6, 8, 10]  # one cycle through all ids


@cache
def cyclic(*swapped: int) -> Net:
    """A net that continues every token by its NEXT, but the `swapped` ones by the NEXT of the one after them in that list;
    a feed-forward block looks it up, all else does nothing."""
    follows = list(NEXT)
    for x, y in zip(swapped, swapped[1:] + swapped[:1], strict=True):
        follows[x] = NEXT[y]
    torch.manual_seed(0)
    net = Net(Shape(3, D, 2, 1, 16, 64, V, 256))
    last = net.model.layers[2].mlp
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.zero_()
        net.model.embed_tokens.weight.copy_(torch.eye(V, D))
        last.gate_proj.weight.zero_()[:V, :V] = torch.eye(V)
        last.up_proj.weight.zero_()[:V, :V] = torch.eye(V)
        for x, y in enumerate(follows):
            last.down_proj.weight[y, x] = 1.0
        net.model.norm.weight.fill_(2.0)
    return net.requires_grad_(False)


@cache
def sharp() -> Net:
    """A random net whose attention works, sharp enough to have an opinion."""
    torch.manual_seed(3)
    made = Net(Shape(2, 32, 4, 2, 8, 48, 13, 128))
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim == 2:
                weight.mul_(12)
    return made.requires_grad_(False)
