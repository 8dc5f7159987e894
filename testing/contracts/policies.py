"""What every cache policy has to keep: entries that it evicts are gone, their memory with them, and the newest stay."""

from __future__ import annotations

from typing import Any

from decodescope.engine.trace import Step
from decodescope.testing import toys

Settings = dict[str, Any]
COUNT = 40


def _decode_steps(name: str, settings: Settings) -> list[Step]:
    return list(toys.session_trace(toys.decode(toys.method(policy=(name, settings)), count=COUNT)).steps)


def evicted_entries_free_their_memory(name: str, settings: Settings) -> None:
    """If every KV head has evicted entries, keys and values take less memory than in a full cache."""
    session = toys.decode(toys.method(policy=(name, settings)), count=COUNT)
    full = toys.decode(toys.method(), count=COUNT)
    read = len(session.target.tokens)
    for own, whole in zip(session.target.cache.layers, full.target.cache.layers, strict=True):
        most = max(own.lengths) if isinstance(own.lengths, list) else own.n
        sizes = own.kv.untyped_storage().nbytes(), whole.kv.untyped_storage().nbytes()
        assert 2 * most > read or sizes[0] < sizes[1], (
            f"layer {own.layer} holds {most} of {read} entries, and its storage has {sizes[0]:,} bytes of {sizes[1]:,}"
        )


def zones_bound_what_is_held(name: str, settings: Settings) -> None:
    """A policy holds no more entries than its zones allow, once more tokens than that were read."""
    method = toys.method(policy=(name, settings))
    zones = method.policy.zones
    most = sum(zone.entries for zone in zones)
    if not zones or method.policy.once:
        return
    for step in _decode_steps(name, settings):
        if step.cache[0].by_head is not None:  # heads differ, and a zone is the number that one of them keeps
            continue
        held = step.cache[0].held
        assert held <= max(most, len(toys.PROMPT)), (
            f"step {step.step} holds {held} entries, and the zones say {most}"
        )


def newest_entry_stays(name: str, settings: Settings) -> None:
    """A step does not evict the entry of the token that it commits."""
    for step in _decode_steps(name, settings):
        change = step.cache[0]
        newest = step.n + len(step.emitted) - 2  # the last token of the text is not read yet
        gone = [] if change.evicted_all is None else change.evicted_all.tolist()
        assert newest not in gone, f"step {step.step} evicts position {newest}, which it has just read"
