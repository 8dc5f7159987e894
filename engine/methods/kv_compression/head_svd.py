"""SVD of KV heads: the heads of a group store coordinates of their entries along a few shared directions."""

from __future__ import annotations

import math
from typing import Any

import torch

from decodescope.engine.core.component import component, param
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.decoding.bases.kv_compression import PackingCodec
from decodescope.engine.model.stores.cache import LayerStore
from decodescope.engine.model.stores.low_rank import LowRankCoder, LowRankStore


@component
class HeadSVD(PackingCodec):
    """Compress several KV heads into one.

    The concatenated keys of the `heads_per_group` heads of a group are a vector of `heads_per_group` * D numbers. V holds the
    right singular vectors of these vectors over many tokens. An entry is stored as its coordinates along the best of them, a
    share `direction_share`. With 2 heads and a share of one half, two heads take the memory of one. Values are stored likewise,
    with their own directions. With all directions kept, it is the model itself, up to rounding.

    Keys are unrotated before compression, because directions of rotated keys would depend on the position. For a read they are
    decompressed and rotated again, and then dropped. Values are summed in their coordinates, and the sum is decompressed once
    per query, not once per entry. At this point the authors fold V into the matrix of the output product; this code leaves that
    matrix unchanged.

    The authors find directions offline, on caches of calibration texts (SVD-a), and repair the model by training; they
    published no code. Here the directions come from the run's own first entries, mostly those of the prompt, and nothing is
    trained. So it needs no file, and a text unlike its prompt is compressed less well.
    """

    title = "SVD of KV heads"
    source = "Yu et al. 2024, arXiv:2406.07056, SVD-a; recalled"

    heads_per_group: int = param(
        2,
        low=1,
        high=64,
        unit="heads",
        help="number of KV heads in a group; the heads of a group share directions",
    )
    direction_share: float = param(
        0.5,
        low=0.01,
        high=1.0,
        step=0.05,
        help="share of a group's directions that is kept, rounded up; 1: all",
    )
    min_entries: int = param(
        64,
        low=1,
        high=65_536,
        unit="entries",
        help="minimum number of entries before the directions are computed",
    )
    buffer: int = param(
        16,
        low=1,
        high=1024,
        unit="entries",
        help="size of a block that is packed at once; until it is full it stays as it is",
    )

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if spec.n_kv_heads % self.heads_per_group:
            fits = ", ".join(str(n) for n in range(1, spec.n_kv_heads + 1) if spec.n_kv_heads % n == 0)
            heads = f"the {spec.n_kv_heads} KV heads of {spec.name}"
            return f"head_svd.heads_per_group = {self.heads_per_group} does not divide {heads}: set it to {fits}."
        return super().refuse(method, spec)

    @property
    def pack_size(self) -> int:
        return self.buffer

    def rank(self, spec: ModelSpec) -> int:
        """The number of directions that a group keeps."""
        return math.ceil(self.direction_share * self.heads_per_group * spec.head_dim)

    @property
    def min_to_pack(self) -> int:
        return self.min_entries

    def block_bits(self, spec: ModelSpec, layer: int, bits: int, length: int) -> int:
        groups = spec.kv_at(layer) // self.heads_per_group
        return length * (2 * groups * self.rank(spec) * bits + 32)  # and the position of each key

    def fixed_bits(self, spec: ModelSpec, layer: int, bits: int) -> int:
        """The directions of keys and values."""
        return 2 * spec.kv_at(layer) * spec.head_dim * self.rank(spec) * bits

    def store(self, spec: ModelSpec, layer: int, **options: Any) -> LayerStore:
        where = {"dtype": options.get("dtype", torch.float32), "device": options.get("device", "cpu")}
        directions = LowRankCoder(
            spec, layer, self.heads_per_group, self.rank(spec), self.buffer, self.min_entries, **where
        )
        return LowRankStore(directions, spec, layer, **options)
