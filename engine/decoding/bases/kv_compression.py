"""KV compression: how the committed entries of a cache are stored."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, cast

from torch import Tensor

from decodescope.engine.core.activity import Activity
from decodescope.engine.core.component import Component
from decodescope.engine.core.method_view import MethodView
from decodescope.engine.core.note import Note
from decodescope.engine.core.spec import ModelSpec
from decodescope.engine.model.stores.cache import KVCache, LayerStore
from decodescope.engine.model.stores.packed_store import BLOCK, PackedStore, Parts, Side
from decodescope.engine.trace.records.events import Packed


class KVCompression(Component):
    """Base of every KV compression; this one stores entries as they are.

    It acts where a cache policy does, after a commit. So the prompt is read exactly, and pending entries are never packed.

    does: what happens to entries, in a policy's words ("pack": stored in fewer bits); empty: they stay as they are
    """

    kind = "kv_compression"
    does: ClassVar[frozenset[str]] = frozenset()

    @property
    def lossless(self) -> bool:
        """True if the target's distribution is unchanged."""
        return not self.does

    def describe(self) -> dict[str, Any]:
        return {"does": sorted(self.does)}

    def sizes(self, spec: ModelSpec, bits: int) -> dict[str, Any]:
        """Further entries of a trace's header, for a model of shape `spec` with numbers of `bits` bits."""
        return {}

    def room(self, spec: ModelSpec, bits: int, prompt: int, entries: int) -> int:
        """Entries of numbers of `bits` bits that take as much memory as `entries` of a run do at most, stored its way; `prompt`
        of them are there before it acts for the first time."""
        return entries

    def store(self, spec: ModelSpec, layer: int, **options: Any) -> LayerStore:
        """The store for the entries of a layer; options: those of LayerStore."""
        return LayerStore(spec, layer, **options)

    def pack(self, cache: KVCache) -> None:
        """Called after each commit after the prompt, when the policy has acted: may store committed entries in another form."""

    def take_packed(self, cache: KVCache) -> Packed | None:
        """What was packed since the last call, for the trace; None: nothing."""
        return None

    def packed_entries(self, cache: KVCache) -> int:
        """Entries of the layer with most in fewer bits."""
        return 0

    def kept_bytes(self, cache: KVCache) -> int | None:
        """Bytes of the entries that are held, without free room in pages; None if their number is enough to know."""
        return None


class PackingCodec(KVCompression):
    """Base of KV compressions that store older entries in fewer bits. `whole` defines when, `encode` and `decode` how
    (engine/model/stores/packed_store.py describes their arguments). Packed entries stay packed; the newest entries are in
    full precision.

    A policy that evicts, or chooses what is read, is refused: entries that leave would have to be unpacked first, because
    groups of entries share their scales.
    """

    does = frozenset({"pack"})
    tells: ClassVar[dict[str, Note]] = {
        "range": Note(
            "span", "packed now", "positions", "the first and the last position that went into fewer bits"
        ),
        "key_error": Note(
            "series", "largest key error", what="of a number of a key, against what it is unpacked to"
        ),
        "value_error": Note(
            "series", "largest value error", what="of a number of a value, against what it is unpacked to"
        ),
    }

    def refuse(self, method: MethodView, spec: ModelSpec) -> str | None:
        if not method.policy.does:
            return None
        deed = "take single ones out" if "evict" in method.policy.does else "read single ones"
        return (
            f"{self.name} packs entries together, and {method.policy.name} would {deed}: choose the policy keep_all, or the "
            "kv_compression unpacked."
        )

    def idle_reason(self, did: Activity) -> str:
        return (
            ""
            if did.packed
            else f"{self.name} packed none of the {did.held} entries: it packs {self.pack_size} at a time."
        )

    @property
    def pack_size(self) -> int:
        """Entries that are packed at a time; fewer entries stay unpacked."""
        raise NotImplementedError

    @property
    def min_to_pack(self) -> int:
        """Entries that there must be before anything is packed."""
        return 0

    def packs_layer(self, spec: ModelSpec, layer: int) -> bool:
        """True if entries of this layer are packed; the blocks of others are as large as their entries."""
        return True

    def block_bits(self, spec: ModelSpec, layer: int, bits: int, length: int) -> int:
        """Bits of a block of `length` entries of a layer, all that belongs to it included, where a number in full precision has
        `bits`. A KV compression defines this, or the mean below."""
        return round(self.mean_stored_bits(spec, bits) * 2 * length * spec.kv_at(layer) * spec.head_dim)

    def fixed_bits(self, spec: ModelSpec, layer: int, bits: int) -> int:
        """Bits that a layer holds in addition, once anything is packed, however many entries there are."""
        return 0

    def mean_stored_bits(self, spec: ModelSpec, bits: int) -> float:
        """Average bits of a number in the blocks that are packed after the prompt."""
        stored = sum(self.block_bits(spec, i, bits, self.pack_size) for i in range(spec.n_layers))
        return stored / max(1, spec.kv_bytes(self.pack_size, 1))  # as many numbers

    def mean_read_bits(self, spec: ModelSpec, bits: int) -> float:
        """Bits that a pass reads of a packed number on average: more than are stored where layers share some."""
        return self.mean_stored_bits(spec, bits)

    def sizes(self, spec: ModelSpec, bits: int) -> dict[str, Any]:
        stored, read = self.mean_stored_bits(spec, bits), self.mean_read_bits(spec, bits)
        return {
            "bits": float(stored),
            "whole": self.pack_size,
            **({} if read == stored else {"reads": float(read)}),
        }

    def block_lengths(self, prompt: int, entries: int) -> list[int]:
        """The blocks of a run with `entries` entries that come one by one after those of a prompt. Blocks that were joined to
        a longer one count as they were packed."""
        start, size = max(prompt, self.min_to_pack), self.pack_size
        if entries < start:
            return []
        first = start - start % size
        whole, rest = divmod(first, BLOCK)
        return [BLOCK] * whole + [rest] * (rest > 0) + [size] * ((entries - first) // size)

    def held_bytes(self, spec: ModelSpec, bits: int, prompt: int, entries: int) -> int:
        """Bytes of `entries` entries, `prompt` of which were there before it acted for the first time. They are those of packed
        blocks, of what belongs to these, and of the entries in full precision. Free room for further entries is not counted.
        """
        lengths = self.block_lengths(prompt, entries)
        whole = spec.kv_bytes(entries - sum(lengths), 1) * bits
        return (whole + self._packed_bits(spec, bits, lengths, range(spec.n_layers))) // 8

    def _packed_bits(self, spec: ModelSpec, bits: int, lengths: Sequence[int], layers: Sequence[int]) -> int:
        """Bits of blocks of these lengths in these layers."""
        if not lengths:
            return 0
        counts = Counter(lengths)
        blocks = sum(
            n * self.block_bits(spec, i, bits, length) for length, n in counts.items() for i in layers
        )
        return blocks + sum(self.fixed_bits(spec, i, bits) for i in layers)

    def room(self, spec: ModelSpec, bits: int, prompt: int, entries: int) -> int:
        """The first entries stay as they are until all of them are packed. After them, `pack_size` entries stay plain and are
        packed together."""
        entry = max(1, spec.kv_bytes(1, 1)) * bits
        first, lengths = max(prompt, self.min_to_pack), self.block_lengths(prompt, entries)
        if not lengths:
            return entries
        packed = [i for i in range(spec.n_layers) if self.packs_layer(spec, i)]
        before = first + self._packed_bits(spec, bits, self.block_lengths(prompt, first), packed) / entry
        whole = min(entries, entries - sum(lengths) + self.pack_size)
        at_end = whole + self._packed_bits(spec, bits, lengths, range(spec.n_layers)) / entry
        return math.ceil(max(before, at_end))

    def store(self, spec: ModelSpec, layer: int, **options: Any) -> LayerStore:
        return PackedStore(self, spec, layer, **options)

    def pack(self, cache: KVCache) -> None:
        for store in _packed_stores(cache):
            store.pack()

    def take_packed(self, cache: KVCache) -> Packed | None:
        stores = _packed_stores(cache)
        packings = [x for store in stores for x in store.packings]
        if not packings:
            return None
        layers = [i for i, store in enumerate(stores) if store.packings]
        notes = self.packing_notes(cache)
        for store in _packed_stores(cache):
            store.packings = []
        first, stop = min(x.first for x in packings), max(x.stop for x in packings)
        keys, values = (max(x.errors[side] for x in packings) for side in (0, 1))
        some = layers if len(layers) < len(stores) else None
        return Packed(first, stop, sum(x.nbytes for x in packings), keys, values, notes, some)

    def packing_notes(self, cache: KVCache) -> dict[str, Any] | None:
        """What is recorded of the stores' `packings`, in addition to the notes of every packing KV compression."""
        return None

    def packed_entries(self, cache: KVCache) -> int:
        return max(store.packed_entries for store in _packed_stores(cache))

    def kept_bytes(self, cache: KVCache) -> int | None:
        return sum(store.committed_bytes for store in _packed_stores(cache))

    def count_due(self, dense: int) -> int:
        """How many of the `dense` entries in full precision, the oldest, are to be packed now."""
        return dense - dense % self.pack_size

    def encode(self, x: Tensor, side: Side) -> Parts:
        """x: float [B, H_kv, T, D], keys or values of T entries that follow each other."""
        raise NotImplementedError

    def decode(self, parts: Parts, side: Side) -> Tensor:
        """float [B, H_kv, T, D]: about what was encoded."""
        raise NotImplementedError

    def concat_parts(self, a: Parts, b: Parts, side: Side) -> Parts | None:
        """Entries packed one after the other as if packed at once; None if that is not possible."""
        return None


def _packed_stores(cache: KVCache) -> list[PackedStore]:
    return [cast(PackedStore, store) for store in cache.layers]
