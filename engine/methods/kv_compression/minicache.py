"""MiniCache: two neighbouring layers share one direction per entry, and each stores its own norm."""

from __future__ import annotations

import math
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.kv_compression import PackingCodec
from decodescope.engine.model.attention.attention import upcast_half
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.model.stores.cross_layer import CrossLayerStore, MergedParts
from decodescope.engine.model.stores.packed_store import Parts, Side


@component
class MiniCache(PackingCodec):
    """Merge the cache in depth: from layer `start_layer` on, layers form pairs (l-1, l).

    For an entry's keys, and for its values, in one KV head, let u and v be the unit vectors of both layers, and Omega the angle
    between them. Both layers share the direction e = sin((1-t) Omega) / sin(Omega) u + sin(t Omega) / sin(Omega) v, on the arc
    from u to v. Each keeps the length of its own vector, and reads |x| e. In each block, a share of the entries is also
    retained unchanged: those with the directions furthest apart. Layers that point the same way are restored exactly, up to the
    rounding of stored numbers; so are lengths.

    A pair takes 1/2 + 1/D + `retention` of the memory of its two layers, and 16 bits for the place of each retained entry. A
    pass reads the direction in both layers, so it saves memory and reads a little more. Keys are merged after their rotation.
    The rotation is the same in both layers, so the order of merging and rotation changes nothing.

    An entry can only be merged when the upper layer has it, one step late. So merging follows a commit, as for every KV
    compression, `buffer` entries at a time; until then they stay whole. A last layer without a partner always stays whole. The
    authors published no code (AkideLiu/MiniCache is a page). From memory of the paper, it retains entries that are further
    apart than a threshold between the smallest and the largest distance. Zefan-Cai/KVCache-Factory (pyramidkv/minicache.py)
    retains a share, as this code does, so the size is known beforehand. From memory, too: the paper's merging begins in the
    middle.
    """

    title = "MiniCache"
    source = "Liu et al. 2024, arXiv:2405.14366, sections 3 and 4; start and retention recalled"

    start_layer: int = param(
        -1, low=-1, high=511, help="first layer that is merged with the layer after it; -1: the middle layer"
    )
    interpolation: float = param(
        0.6,
        low=0.0,
        high=1.0,
        step=0.05,
        help="where the merged direction lies (t): 0 in the lower layer, 1 in the upper layer",
    )
    retention: float = param(
        0.05,
        low=0.0,
        high=1.0,
        step=0.01,
        unit="of the entries",
        help="share of each block that stays unmerged, rounded up",
    )
    buffer: int = param(
        64,
        low=1,
        high=1024,
        unit="entries",
        help="size of a block that is merged at once; until it is full it stays as it is",
    )

    tells: ClassVar[dict[str, Note]] = {
        **PackingCodec.tells,
        "distance": Note(
            "grid",
            "distance of layers",
            "of half a turn",
            "the mean angle between the layers of a pair",
            rows=["pair"],
        ),
    }

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not self.pairs(spec):
            most = spec.n_layers - 2
            way = "choose kv_compression unpacked" if most < 0 else f"choose 0 to {most}"
            left = f"no two of {spec.name}'s {spec.n_layers} layers are left to be merged"
            return f"minicache.start_layer = {self.start_layer}: {left}; {way}."
        return super().refuse(method, spec)

    def pairs(self, spec: ModelSpec) -> list[tuple[int, int]]:
        """The layers that are merged with each other, the lower first."""
        first = (
            self.start_layer if self.start_layer >= 0 else min(spec.n_layers // 2, max(spec.n_layers - 2, 0))
        )
        return [(layer, layer + 1) for layer in range(first, spec.n_layers - 1, 2)]

    @property
    def pack_size(self) -> int:
        return self.buffer

    def packs_layer(self, spec: ModelSpec, layer: int) -> bool:
        return any(layer in pair for pair in self.pairs(spec))

    def block_bits(self, spec: ModelSpec, layer: int, bits: int, length: int) -> int:
        """What both layers of a pair share counts in the lower one."""
        own, shared = self._pair_bits(spec, layer, bits, length)
        return own + (shared if any(layer == lower for lower, _ in self.pairs(spec)) else 0)

    def mean_read_bits(self, spec: ModelSpec, bits: int) -> float:
        layers = range(spec.n_layers)
        read = sum(sum(self._pair_bits(spec, i, bits, self.pack_size)) for i in layers)
        return read / max(1, spec.kv_bytes(self.pack_size, 1))

    def _pair_bits(self, spec: ModelSpec, layer: int, bits: int, length: int) -> tuple[int, int]:
        """Bits of a block of `length` entries that are the layer's own, and those that it shares with the other of its pair."""
        vectors, width = 2 * spec.kv_at(layer), spec.head_dim
        kept = self._unmerged_count(length)
        if not self.packs_layer(spec, layer):
            return vectors * length * width * bits, 0
        return vectors * (length + kept * width) * bits, vectors * (length * width * bits + 16 * kept)

    def _unmerged_count(self, length: int) -> int:
        """Entries of a block of `length` that stay unmerged."""
        return math.ceil(self.retention * length - 1e-9)  # 0.07 of 100 is 7, despite float rounding

    def store(self, spec: ModelSpec, layer: int, **options: Any) -> LayerStore:
        return CrossLayerStore(self, spec, layer, **options)

    def pack(self, cache: KVCache) -> None:
        stores = cast(list[CrossLayerStore], cache.layers)
        for lower, upper in self.pairs(cache.spec):
            stores[upper].pack_with(stores[lower])

    def packing_notes(self, cache: KVCache) -> dict[str, Any] | None:
        stores = cast(list[CrossLayerStore], cache.layers)
        distance = {}
        for lower, upper in self.pairs(cache.spec):
            weighed = [
                ((x.distance or 0.0) * (x.stop - x.first), x.stop - x.first) for x in stores[upper].packings
            ]
            distance[f"{lower}+{upper}"] = sum(x for x, _ in weighed) / sum(n for _, n in weighed)
        return {"distance": distance}

    def merge(self, lower: Tensor, upper: Tensor, side: Side) -> MergedParts:
        """Merge lower and upper, float [B, H_kv, T, D]: keys or values of the same T entries in two layers."""
        e, angle = slerp(
            F.normalize(upcast_half(lower), dim=-1),
            F.normalize(upcast_half(upper), dim=-1),
            self.interpolation,
        )
        furthest = angle.sort(dim=2, descending=True, stable=True).indices  # of equal ones the oldest
        at = furthest[:, :, : self._unmerged_count(angle.shape[2])].contiguous()  # int64 [B, H_kv, R]
        shared = {"direction": e.to(lower.dtype), "at": at.to(torch.int16)}

        def own(x: Tensor) -> Parts:
            kept = x.gather(2, at[..., None].expand(-1, -1, -1, x.shape[3]))  # [B, H_kv, R, D]
            return shared | {"length": upcast_half(x).norm(dim=-1).to(x.dtype), "kept": kept}

        return MergedParts(own(lower), own(upper), frozenset(shared), angle.mean())

    def decode(self, parts: Parts, side: Side) -> Tensor:
        e, at = parts["direction"], parts["at"].long()
        x = (upcast_half(e) * upcast_half(parts["length"])[..., None]).to(e.dtype)
        return x.scatter_(2, at[..., None].expand(-1, -1, -1, e.shape[3]), parts["kept"])


def slerp(u: Tensor, v: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """The unit vectors float [..., D] at `t` on the arc from u to v, and the angles float [...] between u and v.

    u and v are unit vectors. If they are parallel or opposite, there is no unique arc, and the straight line is used.
    """
    # exact for small angles, where acos is not
    angle = 2 * torch.atan2((u - v).norm(dim=-1), (u + v).norm(dim=-1))
    sine = angle.sin()[..., None]
    line = sine.abs() < 16 * torch.finfo(u.dtype).eps
    safe = sine.masked_fill(line, 1)
    arc = (((1 - t) * angle).sin()[..., None] * u + (t * angle).sin()[..., None] * v) / safe
    return torch.where(line, F.normalize(torch.lerp(u, v, t), dim=-1), arc), angle
