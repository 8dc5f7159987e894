"""Cache: the message fields on the caches of a step, and the two maps of the target's that are drawn over its entries."""

from __future__ import annotations

import base64
from typing import Any, TypeGuard

import numpy as np

from decodescope.engine.trace.records.events import CacheChange, Header, Prefill
from decodescope.engine.trace.records.parts import part_description
from decodescope.lab.cache.entry_states import absent_stretches, cut_rows, shared_stretches
from decodescope.lab.cache.mass import recorded_mass, thinning_note, whole_mass

# kinds of parts that may leave other entries in the cache than one of each token in each head
MARKING = ("strategy", "policy", "kv_compression", "adaptive_depth", "prompt_compression")
MAP = 1 << 16  # entries of a map that is sent


def encode_cache(header: Header, change: CacheChange, read: int, before: Prefill | None) -> dict[str, Any]:
    """One lane's cache after a step; read: entries that it has ever read; before: in the first step, how the prompt was read.
    It lists the entries that left as `Wire` describes, "untold" if they were only counted."""
    row: dict[str, Any] = {
        "lane": change.lane,
        "appended": change.appended,
        "read": read,
        "held": change.held,
        "bytes": change.held_bytes,
        "full": change.full_bytes,
        **({} if change.kept_packed is None else {"kept": change.kept_packed}),
        "evicted": change.evicted_count,
        **_encode_evicted(header, change),
    }
    if change.shared_bytes is not None:
        row |= {"shared": change.shared_bytes, "kept": change.kept_bytes(read)}
    if change.by_head is not None:
        row |= {"mean": round(float(change.by_head.mean()), 3), "least": int(change.by_head.min())}
    row |= _encode_kinds(header, change, read)
    if change.shared is not None and (texts := shared_stretches(change.shared)):
        row["texts"] = texts
    for prompt in [] if before is None else before.cache:
        if prompt.lane == change.lane and (
            lost := _encode_evicted(header, prompt) | _encode_kinds(header, prompt, prompt.appended)
        ):
            row["prompt"] = lost
    return row


def encode_entry_facts(header: Header) -> dict[str, Any] | None:
    """What holds for all entries of the target's cache, for the view that marks their kinds; None: all are plain ones.
    cut: rows of heads that the model has not;  loaded: the first entries came from a file;  bits: of a packed number"""
    usual = all(part_description(header, kind).get("usual") is True for kind in MARKING)
    cut, loaded = cut_rows(header), (header.loaded or {}).get("entries", 0)
    if usual and not (cut or loaded or header.fork or header.model.get("block_length")):
        return None
    return {"cut": cut, "loaded": loaded, "bits": part_description(header, "kv_compression").get("bits")}


def encode_cache_maps(change: CacheChange) -> dict[str, str]:
    """The maps in base64, by row (layer x KV head) and position.
    mass: a byte each, the share of attention; of more than MAP entries the largest of each stretch of neighbours, all equally
    long, so that the stretches of a row say how long; thinned: how a thinned map is to be read; seen: a bit each, the first the
    highest, what the last pass of a policy that selects has read, left out above MAP entries."""
    packed = {}
    if (mass := recorded_mass(change)) is not None:
        packed["mass"] = _encode_base64(_stretch_maxima(whole_mass(mass)))
        if note := thinning_note(mass):
            packed["thinned"] = note
    if _is_sendable(change.read):
        packed["seen"] = _encode_base64(np.packbits(change.read.astype(bool)))
    return packed


def has_cache_map(change: CacheChange) -> bool:
    """Whether there is a map for it."""
    return recorded_mass(change) is not None or _is_sendable(change.read)


def _stretch_maxima(mass: np.ndarray) -> np.ndarray:
    """uint8 [layers, heads, stretches]: the map itself up to MAP entries, else the largest number of each stretch."""
    layers, heads, n = mass.shape
    if mass.size <= MAP:
        return mass
    most = max(1, MAP // (layers * heads))
    stretches = -(-n // -(-n // most))
    length = -(-n // stretches)  # the shortest that gives as many: a page finds it by the same division
    padded = np.pad(mass, ((0, 0), (0, 0), (0, stretches * length - n)))
    maxima: np.ndarray = padded.reshape(layers, heads, stretches, length).max(3)
    return maxima


def _is_sendable(array: np.ndarray | None) -> TypeGuard[np.ndarray]:
    return array is not None and array.size <= MAP


def _encode_base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def _encode_evicted(header: Header, change: CacheChange) -> dict[str, Any]:
    """The entries that a change lost; "untold" if they were only counted."""
    gone: dict[str, Any] = {}
    if change.evicted_all is not None and len(change.evicted_all):
        gone["gone"] = _compact_ranges(change.evicted_all.tolist())
    if change.evicted is not None and len(change.evicted):
        gone["out"] = _compact_rows(header, change.evicted)
    if change.evicted_count and not gone:
        gone["untold"] = True
    return gone


def _encode_kinds(header: Header, change: CacheChange, read: int) -> dict[str, Any]:
    """What became of entries besides leaving: [layer, first position, the one behind the last] of those that are absent, or
    came late; by row, those that were merged into another one; [first, stop, layers or null] of packed ones; extra ones."""
    kinds: dict[str, Any] = {}
    if change.lane != "target":
        return kinds
    for name, stretches in zip(("never", "came"), absent_stretches(change, read), strict=True):
        if len(stretches):
            kinds[name] = stretches.tolist()
    if change.merged is not None and len(change.merged):
        became = change.merged[change.merged[:, 3] >= 0, :3]
        if len(became):
            kinds["merged"] = _compact_rows(header, became)
    if change.packed is not None:
        kinds["packed"] = [change.packed.first, change.packed.stop, change.packed.layers]
    if change.augmented:
        kinds["extras"] = [{"form": x.form, "at": x.at, "entries": x.entries} for x in change.augmented]
    return kinds


def _compact_rows(header: Header, entries: np.ndarray) -> list[list[Any]]:
    """Entries [E, 3] (layer, head, position) as positions by row (layer x KV head). Most rows of a large model may have none:
    these are one empty list."""
    heads = int(header.model.get("n_kv_heads", 1))
    count = int(header.model.get("n_layers", 1)) * heads
    layer, head, position = entries.astype(np.int64, copy=False).T
    here = (layer >= 0) & (layer * heads + head < count) & (head >= 0) & (head < heads)
    row, position = (layer * heads + head)[here], position[here]
    order = np.lexsort((position, row))
    numbers, begins = np.unique(row[order], return_index=True)
    out: list[list[Any]] = [[]] * count
    for number, some in zip(numbers.tolist(), np.split(position[order], begins[1:]), strict=False):
        out[number] = _compact_ranges(some.tolist())
    return out


def _compact_ranges(positions: list[int]) -> list[Any]:
    """Positions in order, three or more neighbours as [first, last]."""
    runs: list[Any] = []
    for position in sorted(positions):
        if runs and isinstance(runs[-1], list) and runs[-1][1] == position - 1:
            runs[-1][1] = position
        elif runs[-2:] == [position - 2, position - 1]:
            runs[-2:] = [[position - 2, position]]
        else:
            runs.append(position)
    return runs
