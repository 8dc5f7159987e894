"""On the real model the bytes of a cache in the trace are those of its tensors, for every policy and KV compression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import toys
from real import CUT, GROUP, chat_ids
from sizes import by_turns

from decodescope.engine import Method, Session
from decodescope.engine.core.component import build
from decodescope.engine.model.layers.rope import RopeTable
from decodescope.engine.trace import check

pytestmark = GROUP

TEXT = (
    "Rewrite this function with type hints: def total(items, tax): result = 0 \n for item in items: result += item.price"
    " * (1 + tax) \n return result"
)
# the real model has no trained gates, and an odd number of KV heads
OWN: dict[str, dict[str, Any]] = {
    "duo_attention": dict(retrieval_heads="0.0 9.2", sink_tokens=2, recent=6),
    "head_svd": dict(min_entries=8, buffer=4, heads_per_group=3),
}
PARTS = [
    (kind, name, ({name: settings} | OWN)[name])
    for kind in ("policy", "kv_compression")
    for name, settings in toys.representatives(kind)
]


def storages(cache: Any) -> Iterator[torch.UntypedStorage]:
    """The storages of all tensors that a cache leads to in fields, lists and tables of its objects.

    Tables of the rotation are those of a model, not of its entries.
    """
    seen, left = dict[int, Any](), [cache]
    while left:
        thing = left.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # while it is kept, no other object has its id
        if isinstance(thing, torch.Tensor):
            yield thing.untyped_storage()
        elif isinstance(thing, dict):
            left += thing.values()
        elif isinstance(thing, list | tuple):
            left += thing
        elif isinstance(thing, RopeTable):
            continue
        elif type(thing).__module__.startswith("decodescope.engine.model."):
            slots = [x for cls in type(thing).__mro__ for x in getattr(cls, "__slots__", ())]
            left += [*getattr(thing, "__dict__", {}).values(), *(getattr(thing, x, None) for x in slots)]


def alive_bytes(cache: Any) -> int:
    """The bytes of all tensors that a cache leads to, each storage counted once."""
    return sum({x.data_ptr(): x.nbytes() for x in storages(cache) if x.nbytes()}.values())


def ended(models: Callable[..., Any], method: Method) -> Session:
    """A run of 12 tokens behind TEXT, its trace in `sink`."""
    draft = models("float32", CUT) if method.lanes else None
    prompt = chat_ids(models(), TEXT)
    more = dict(models=dict.fromkeys(method.lanes, draft), max_new_tokens=12, stop_tokens=())
    return toys.finish_session(Session(models(), method, prompt, **more))


@pytest.mark.parametrize(
    ("kind", "name", "settings"), by_turns(3, [pytest.param(*x, id=x[1]) for x in PARTS])
)
def test_the_bytes_of_the_trace_are_those_of_the_tensors_that_are_alive(
    kind: str, name: str, settings: dict[str, Any], real_models: Callable[..., Any]
) -> None:
    session = ended(real_models, toys.method(**{kind: (name, settings)}))
    cache, spec, read = session.target.cache, session.target.decoder.spec, len(session.tokens) - 1
    last = session.sink.steps[-1].cache[0]
    # where heads hold different numbers of entries, three numbers of each head say which; they are not counted
    own = 0 if all(store.heads is None for store in cache.layers) else 3 * 8 * spec.n_layers * spec.n_kv_heads
    assert last.held_bytes == cache.nbytes and 0 <= alive_bytes(cache) - last.held_bytes <= own
    assert last.full_bytes == 2 * 30 * 3 * 64 * 4 * read == spec.kv_bytes(read, 4)
    peaks = [x.cache[0].peak_bytes for x in (session.sink.prefill, *session.sink.steps)]
    assert max(x for x in peaks if x) >= last.held_bytes
    assert check(session.sink).ok
    part = build(kind, name, settings)
    assert (last.kept_bytes(read) < last.full_bytes) is bool({"evict", "pack"} & part.does)
