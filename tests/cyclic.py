"""Nets for tests of training: one that is fully predictable, and a random one."""

from __future__ import annotations

from functools import cache

import torch

from decodescope.training.net import Net, NetShape

V, D = 13, 32
NEXT = [5, 0, 7, 1, 9, 3, 11, 4, 12, 2, 6, 8, 10]  # one cycle through all ids


@cache
def cyclic(*swapped: int) -> Net:
    """A net that continues every token by its NEXT, found in a feed-forward block; everything else does nothing.

    Each of the `swapped` tokens is continued by the NEXT of the token after it in that list.
    """
    follows = list(NEXT)
    for x, y in zip(swapped, swapped[1:] + swapped[:1], strict=True):
        follows[x] = NEXT[y]
    torch.manual_seed(0)
    net = Net(NetShape(3, D, 2, 1, 16, 64, V, 256))
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


def after(x: int, steps: int) -> int:
    """The token `steps` steps after x in the cycle."""
    for _ in range(steps):
        x = NEXT[x]
    return x


@cache
def looking(slots: int = 3) -> Net:
    """The cycle again, by a net that looks back: head h of its first layer reads the token h + 1 places before a row.

    So a row without a token can say what comes later. If its input has mark 2 h, it says the token h + 2 steps after the one
    that head h sees; if it has mark 2 h + 1, the token one step further.
    """
    width = 32
    shape = NetShape(2, 64, slots, 1, width, V + 2 * slots * V, V, 256, theta=10.0)
    one, marks = V * (slots + 1), V * (slots + 1) + 1  # the feature that is 1 in every row; its first mark
    assert marks + 2 * slots <= shape.width
    net, eye = Net(shape), torch.eye(V)
    first, angle = net.model.layers[0], 10.0 ** -(torch.arange(width // 2) / (width // 2))
    with torch.no_grad():
        for weight in net.parameters():
            if weight.ndim == 2:
                weight.zero_()
        net.model.embed_tokens.weight[:, :V], net.model.embed_tokens.weight[:, one] = eye, 1.0
        first.self_attn.k_proj.weight[: width // 2, one] = 1.2
        first.self_attn.v_proj.weight[:V, :V] = eye / 5
        for h in range(slots):
            back = torch.cat([(angle * (h + 1)).cos(), -(angle * (h + 1)).sin()])
            first.self_attn.q_proj.weight[h * width : (h + 1) * width, one] = 1.2 * back
            first.self_attn.o_proj.weight[V * (h + 1) : V * (h + 2), h * width : h * width + V] = eye
        first.mlp.gate_proj.weight[:V, :V] = first.mlp.up_proj.weight[:V, :V] = 2 * eye
        first.mlp.down_proj.weight[torch.tensor(NEXT), torch.arange(V)] = 1.0
        for mark in range(2 * slots):
            h, at = mark // 2, V * (mark + 1)
            first.mlp.gate_proj.weight[at : at + V, V * (h + 1) : V * (h + 2)] = 2 * eye
            first.mlp.up_proj.weight[at : at + V, marks + mark] = 1.0
            for x in range(V):
                first.mlp.down_proj.weight[after(x, h + 2 + mark % 2), at + x] = 1.0
        net.model.norm.weight.fill_(2.0)
    return net.requires_grad_(False)


@cache
def sharp() -> Net:
    """A random net with an attention that matters, sharp enough to prefer some tokens."""
    torch.manual_seed(3)
    made = Net(NetShape(2, 32, 4, 2, 8, 48, 13, 128))
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim == 2:
                weight.mul_(12)
    return made.requires_grad_(False)
