"""What every cache has to keep: the bytes that it reports are those that are alive because of it."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import torch

from decodescope.engine.decoding.bases.lane import Lane
from decodescope.engine.model.stores.cache import KVCache
from decodescope.testing import toys

Settings = dict[str, Any]
COUNT = 40
_PLAIN = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    type(None),
    type,
    types.ModuleType,
    torch.dtype,
    torch.device,
)


def reachable_tensors(*roots: object) -> Iterator[torch.Tensor]:
    """Every tensor that can be reached from `roots`: by attributes, slots, items, partial calls, bound methods and closures."""
    todo, seen = list(roots), dict[int, object]()  # what was seen is kept alive, so that no id is used twice
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, _PLAIN):
            continue
        seen[id(one)] = one
        if isinstance(one, torch.Tensor):
            yield one
        todo += _inner_objects(one)


def _inner_objects(one: Any) -> Iterator[Any]:
    """The objects that `one` refers to itself."""
    if isinstance(one, dict):
        yield from one.keys()
        yield from one.values()
    elif isinstance(one, (list, tuple, set, frozenset)):
        yield from one
    elif isinstance(one, functools.partial):
        yield from (one.func, one.args, one.keywords)
    elif isinstance(one, types.MethodType):
        yield from (one.__self__, one.__func__)
    elif isinstance(one, types.BuiltinMethodType):
        yield one.__self__
    elif isinstance(one, types.FunctionType):
        yield from (cell.cell_contents for cell in one.__closure__ or ())
        yield from one.__defaults__ or ()
    else:
        yield from getattr(one, "__dict__", {}).values()
        slots = [name for cls in type(one).__mro__ for name in getattr(cls, "__slots__", ())]
        yield from (getattr(one, name, None) for name in slots)


def held_storages(*roots: object) -> dict[int, int]:
    """The storages of all tensors that can be reached from `roots`, each once, with their bytes."""
    sizes = dict[int, int]()
    for x in reachable_tensors(*roots):
        if x.layout == torch.strided:
            storage = x.untyped_storage()
            sizes[storage._cdata] = storage.nbytes()
    return sizes


def alive_bytes(cache: KVCache, *beside: object) -> int:
    """Bytes of the storages that are alive because of `cache`.

    Those that `beside` can reach as well, such as weights of the model, do not count. Nor do those of the full cache that is
    kept for comparison, which has a figure of its own, and the positions of pending rows, which are those of the pass.
    """
    others = held_storages(*beside, cache.reference, [store.pending_positions() for store in cache.layers])
    own = [size for storage, size in held_storages(cache).items() if storage not in others]
    return sum(own)


def uncounted_bytes(cache: KVCache) -> int:
    """What may be alive and is not reported: 32 bytes for each KV head of a layer in which these hold different numbers of
    entries."""
    heads = [len(store.heads.lengths) for store in cache.layers if store.heads is not None]
    return 32 * sum(heads)


def check_reported_bytes(cache: KVCache, *beside: object, when: str = "") -> None:
    """Compare what a cache reports with what is alive."""
    alive, allowed = alive_bytes(cache, *beside), uncounted_bytes(cache)
    assert 0 <= alive - cache.nbytes <= allowed, (
        f"{when}: {cache.nbytes:,} bytes are reported and {alive:,} are alive; {allowed:,} of them need no report"
    )


def _check_lane(lane: Lane, when: str) -> None:
    check_reported_bytes(lane.cache, lane.decoder, when=when)


def cache_reports_what_it_holds(kind: str, name: str, settings: Settings) -> None:
    """The bytes that a cache reports after the prompt and after each step are those that are alive because of it."""
    session = toys.open_session(toys.method(**{kind: (name, settings)}), count=COUNT)
    session.start()
    _check_lane(session.target, "after the prompt")
    while not session.is_done:
        session.step()
        _check_lane(session.target, f"after {len(session.tokens)} tokens")
