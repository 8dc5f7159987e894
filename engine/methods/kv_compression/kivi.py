"""KIVI: keys are quantised by channel and values by token to a few bits; the newest entries stay in full precision."""

from __future__ import annotations

import torch
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.kv_compression import PackingCodec
from decodescope.engine.model.stores.packed_store import Parts, Side

from .shared.groups import block_bits, dequantise_entries, group_size_conflict, quantise_entries


@component
class Kivi(PackingCodec):
    """Quantise keys per channel and values per token.

    Keys form groups of `group` tokens of one channel, because some channels are large for all tokens. Values form groups of
    `group` channels of one token; in heads of any other width the last group of a token is smaller. A group runs from its
    minimum to its maximum in 2^bits - 1 steps. So an entry is at most half a step off, before it is rounded to its type. Keys
    are packed after their rotation.

    Whenever there are `buffer` entries in full precision, they are packed at once, so n mod `buffer` are left. The prompt
    is read exactly, and packed when its last token is committed. A packed number takes bits / 8 bytes, and each group a scale
    and a minimum in the model's type.

    The authors' code (jy-yuan/KIVI, models/llama_kivi.py) packs its keys in the same way. It packs values one by one, and keeps
    the newest `buffer` whole. Here values are packed with their keys, so about half as many are whole. Their code packs into
    words of 32 bits; this code packs into bytes. Their own kernels multiply with packed integers; this code unpacks at most 512
    entries of a layer at a time and drops them again.
    """

    title = "KIVI"
    source = "Liu et al. 2024, arXiv:2402.02750, section 3 and algorithm 1; jy-yuan/KIVI"

    bits: str = param(
        "2",
        choices=("2", "4"),
        unit="bits",
        help="precision of a quantised number; scales and minima are stored in addition",
    )
    group: int = param(
        32,
        low=4,
        high=128,
        step=4,
        unit="numbers",
        help="numbers that share a scale: along tokens for keys, along channels for values",
    )
    buffer: int = param(
        32,
        low=4,
        high=1024,
        step=4,
        unit="entries",
        help="size of a block that is packed at once; until it is full it stays as it is",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        return group_size_conflict(self.name, "buffer", self.buffer, self.group) or super().refuse(
            method, spec
        )

    @property
    def pack_size(self) -> int:
        return self.buffer

    def block_bits(self, spec: ModelSpec, layer: int, bits: int, length: int) -> int:
        return block_bits(spec, layer, self.group, int(self.bits), bits, length)

    def encode(self, x: Tensor, side: Side) -> Parts:
        return quantise_entries(x, side, self.group, int(self.bits))

    def decode(self, parts: Parts, side: Side) -> Tensor:
        return dequantise_entries(parts, side, self.group, int(self.bits))

    def concat_parts(self, a: Parts, b: Parts, side: Side) -> Parts | None:
        axis = 3 if side == "keys" else 2  # that of the tokens, or of their words
        return {name: torch.cat([x, b[name]], axis) for name, x in a.items()}
