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
    """Quantise x (float [..., N]) in groups of `group` along the last axis.

    Returns words uint8 [..., N * bits / 8], and scale and zero in the type of x, [..., N / group]. A group runs from its
    smallest number, the zero, to its largest in 2^bits - 1 equal steps. No number is off by more than half a step, before it is
    rounded to its type. If all numbers of a group are equal, the scale is 0 and they are restored exactly.
    """
    each, top = upcast_half(x).unflatten(-1, (-1, group)), (1 << bits) - 1
    low, high = each.aminmax(dim=-1)
    scale = fit_scale(torch.zeros_like(low), high - low, 0, top, x.dtype)
    codes = find_levels(each - low[..., None], upcast_half(scale)[..., None]).clamp_(0, top)
    return {
        "words": pack_bits(codes.to(torch.uint8).flatten(-2), bits),
        "scale": scale,
        "zero": low.to(x.dtype),
    }


def dequantise(parts: Parts, bits: int) -> Tensor:
    """Unpack the result of `quantise`: float [..., N], in the type of the scales."""
    scale, zero = parts["scale"], parts["zero"]
    codes = unpack_bits(parts["words"], bits).unflatten(-1, (scale.shape[-1], -1))
    numbers: Tensor = (
        (codes * upcast_half(scale)[..., None] + upcast_half(zero)[..., None]).flatten(-2).to(scale.dtype)
    )
    return numbers


def channels_per_group(group: int, width: int) -> int:
    """Channels of a value that share a scale: a head narrower than `group` is one group."""
    return min(group, width)


def quantise_entries(x: Tensor, side: Side, group: int, bits: int) -> Parts:
    """Quantise x (float [B, H_kv, T, D]): keys in groups of `group` tokens of a channel, values in groups of channels of a
    token.
    """
    return (
        quantise(x.mT, group, bits)
        if side == "keys"
        else quantise(x, channels_per_group(group, x.shape[3]), bits)
    )


def dequantise_entries(parts: Parts, side: Side, bits: int) -> Tensor:
    """Unpack the result of `quantise_entries`: float [B, H_kv, T, D]."""
    x = dequantise(parts, bits)
    return x.mT if side == "keys" else x


def stored_bits(spec: ModelSpec, group: int, bits: int, full: int) -> float:
    """Average bits per number, including scales and zeros of `full` bits, for as many keys as values."""
    return bits + full / group + full / channels_per_group(group, spec.head_dim)


def group_size_conflict(
    name: str, knob: str, together: int, group: int, bits: int, spec: ModelSpec
) -> str | None:
    """Why `together` entries (a knob) or a head's channels cannot be split into groups of `group` numbers of `bits`; None: they
    can.
    """
    if together % group:
        fits = group * max(1, together // group)
        return f"{name} packs whole groups of keys: {knob} = {together} is no multiple of group = {group}; set it to {fits}."
    if spec.head_dim % channels_per_group(group, spec.head_dim):
        return (
            f"{name}.group = {group} does not divide the {spec.head_dim} channels of {spec.name}'s heads: choose a group that "
            "does, such as 16."
        )
    each = 8 // bits
    if channels_per_group(group, spec.head_dim) % each:
        way = (
            f"choose {name}.bits = 4"
            if each == 4 and not spec.head_dim % 2
            else "choose kv_compression unpacked"
        )
        return f"{name} packs {each} channels into a byte, and the heads of {spec.name} have {spec.head_dim}: {way}."
    return None
