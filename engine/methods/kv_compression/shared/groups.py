"""Quantise groups of numbers to integers of a few bits with a scale and a zero, packed into bytes.

Keys form groups by channel, values by token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.attention.attention import upcast_half
from decodescope.engine.model.layers.levels import find_levels, fit_scale
from decodescope.engine.model.stores.packed_store import Parts, Side


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    """uint8 [..., N * bits / 8] of codes (uint8 [..., N] below 2^bits); bits divides 8, and N is a multiple of 8 / bits."""
    each = codes.unflatten(-1, (-1, 8 // bits))
    words: Tensor = each[..., 0].clone()
    for i in range(1, 8 // bits):
        words |= each[..., i] << (i * bits)
    return words


def unpack_bits(words: Tensor, bits: int) -> Tensor:
    """uint8 [..., N]: the codes in words (uint8 [..., N * bits / 8])."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=words.device)
    return ((words[..., None] >> shifts) & ((1 << bits) - 1)).flatten(-2)


def quantise(x: Tensor, group: int, bits: int) -> Parts:
    """Quantise x (float [..., N]) in groups of `group` along the last axis; the last group may be smaller.

    Returns levels uint8 [..., N] below 2^bits, and scale and zero in the type of x, [..., G], a number for each group. A group
    runs from its smallest number, the zero, to its largest in 2^bits - 1 equal steps. No number is off by more than half a
    step, before it is rounded to its type. If all numbers of a group are equal, the scale is 0 and they are restored exactly.
    """
    each, top = _split_into_groups(upcast_half(x), group), (1 << bits) - 1
    low, high = each.aminmax(dim=-1)
    scale = fit_scale(torch.zeros_like(low), high - low, 0, top, x.dtype)
    codes = find_levels(each - low[..., None], upcast_half(scale)[..., None]).clamp_(0, top)
    return {
        "levels": codes.to(torch.uint8).flatten(-2)[..., : x.shape[-1]],
        "scale": scale,
        "zero": low.to(x.dtype),
    }


def dequantise(parts: Parts, group: int) -> Tensor:
    """Restore the result of `quantise`: float [..., N], in the type of the scales."""
    codes, scale = parts["levels"], parts["scale"]
    each = _split_into_groups(codes, group)
    numbers = (each * upcast_half(scale)[..., None] + upcast_half(parts["zero"])[..., None]).flatten(-2)
    restored: Tensor = numbers[..., : codes.shape[-1]].to(scale.dtype)
    return restored


def _split_into_groups(x: Tensor, group: int) -> Tensor:
    """[..., G, group] of x [..., N]; a last group that is smaller repeats its last number, which widens no range."""
    if lacking := -x.shape[-1] % group:
        x = torch.cat([x, x[..., -1:].expand(*x.shape[:-1], lacking)], -1)
    each: Tensor = x.unflatten(-1, (-1, group))
    return each


def channels_per_group(group: int, width: int) -> int:
    """Channels of a value that share a scale: a head narrower than `group` is one group."""
    return min(group, width)


def quantise_entries(x: Tensor, side: Side, group: int, bits: int) -> Parts:
    """Quantise x (float [B, H_kv, T, D]): keys in groups of `group` tokens of a channel, values in groups of channels of a
    token.

    Returns scale and zero of each group, and words: the codes, packed into bytes. Those of keys are [B, H_kv, D, T * bits / 8].
    Those of values continue from one token to the next, so that heads of any width fill whole bytes:
    [B, H_kv, T * D * bits / 8]. T is a multiple of 8 / bits.
    """
    keys = side == "keys"
    parts = quantise(x.mT, group, bits) if keys else quantise(x, channels_per_group(group, x.shape[3]), bits)
    codes = parts.pop("levels")
    return {"words": pack_bits(codes if keys else codes.flatten(2), bits), **parts}


def dequantise_entries(parts: Parts, side: Side, group: int, bits: int) -> Tensor:
    """Unpack the result of `quantise_entries`: float [B, H_kv, T, D]."""
    codes, scale = unpack_bits(parts["words"], bits), parts["scale"]
    if side == "values":
        codes = codes.unflatten(2, (scale.shape[2], -1))
        group = channels_per_group(group, codes.shape[3])
    x = dequantise({**parts, "levels": codes}, group)
    return x.mT if side == "keys" else x


def block_bits(spec: ModelSpec, layer: int, group: int, bits: int, full: int, length: int) -> int:
    """Bits of the words, scales and zeros of a block of `length` entries in `layer`, where a scale has `full` bits."""
    width = spec.head_dim
    scales = width * -(-length // group) + length * -(-width // channels_per_group(group, width))
    return spec.kv_at(layer) * (2 * length * width * bits + 2 * full * scales)


def group_size_conflict(name: str, knob: str, together: int, group: int) -> str | None:
    """Why `together` entries (a knob) cannot be split into groups of `group` keys; None: they can."""
    if not together % group:
        return None
    fits = group * max(1, together // group)
    return f"{name} packs whole groups of keys: {knob} = {together} is no multiple of group = {group}; set it to {fits}."
