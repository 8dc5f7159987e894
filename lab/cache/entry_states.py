"""Entry states: the kinds of cache entries besides held ones and those that left, as the record of a run has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from decodescope.engine.trace.records.events import CacheChange, Header

# kind -> its words in a legend; the same as in web/scope/cache/entries.js
ENTRY_WORDS = {
    "held": "kept",
    "gone": "evicted",
    "now": "evicted in this step",
    "unread": "kept, not read in this step",
    "absent": "absent: the layer computed none",
    "cut": "cut out of the model",
    "packed": "packed",
    "merged": "merged into another entry",
    "soft": "soft entries, without tokens",
    "virtual": "a trained state, without entries",
    "shared": "shared with other texts",
    "loaded": "loaded from a file",
}
_NONE = np.zeros((0, 3), np.int64)


def cut_rows(header: Header) -> list[int]:
    """The rows of KV heads that were cut out of the model. The heads that stay are the first of their layer."""
    layers, heads = (count_or_none(header.model.get(x)) or 1 for x in ("n_layers", "n_kv_heads"))
    groups = header.model.get("groups")
    if not isinstance(groups, list) or len(groups) != layers:
        return []
    return [
        i * heads + head
        for i, group in enumerate(groups)
        for head in range(len(group) if isinstance(group, list) else heads, heads)
    ]


def absent_stretches(change: CacheChange, read: int) -> tuple[np.ndarray, np.ndarray]:
    """int64 [A, 3] each, (layer, first position, the one behind the last): where a layer has no entry of committed tokens, and
    where entries came that had waited.
    read: positions read afterwards. Older records only count what a layer lacks; then this is what follows from the counts."""
    recorded = [_NONE if x is None else x.astype(np.int64) for x in (change.absent, change.filled)]
    counts = change.lacks or []
    if any(map(len, recorded)):
        return recorded[0], recorded[1]
    new = (read - change.appended, read)
    absent = [(i, *new) for i, count in enumerate(counts) if count and count == change.appended]
    filled = [(i, 0, read) for i, count in enumerate(counts) if count < 0]
    return np.array(absent, np.int64).reshape(-1, 3), np.array(filled, np.int64).reshape(-1, 3)


def shared_stretches(nodes: np.ndarray) -> list[list[int]]:
    """[first position, the one behind the last, texts] of stretches that several texts read, where no text holds them twice;
    of nodes side by side the most texts. nodes: `shared` of a change."""
    several = nodes[nodes[:, 3] > 1][:, 1:].astype(np.int64)
    edges = np.unique(several[:, :2])
    most = np.zeros(max(0, len(edges) - 1), np.int64)
    for first, stop, texts in several[np.argsort(several[:, 2], kind="stable")].tolist():
        begin, end = np.searchsorted(edges, (first, stop))
        most[begin:end] = texts
    stretches: list[list[int]] = []
    for first, stop, texts in zip(edges[:-1].tolist(), edges[1:].tolist(), most.tolist(), strict=True):
        if texts and stretches and stretches[-1][1:] == [first, texts]:
            stretches[-1][1] = stop
        elif texts:
            stretches.append([first, stop, texts])
    return stretches


def count_or_none(value: Any) -> int | None:
    """A number that can be a count; else None."""
    return value if type(value) is int and 0 <= value < 1 << 40 else None
