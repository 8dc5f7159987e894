"""Memory: how much memory models and the caches of a run will take, computed before they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from decodescope.engine.core.roles import TARGET, WHOLE

if TYPE_CHECKING:
    from decodescope.engine.core.spec import ModelSpec
    from decodescope.engine.session.method import Method

FREE_FOR_REST = 0.9  # share of the free memory; the rest is for other programs
BYTES_A_TOKEN = 3  # of a prompt that cannot be tokenized yet


@dataclass(frozen=True)
class MemoryEstimate:
    """The bytes that are needed. weights: model -> bytes still to be read;  held: bytes of weights that are loaded already;
    cache: bytes of keys and values of `tokens` tokens, over all models;  free: bytes, None if the system does not say"""

    weights: Mapping[str, int]
    held: int
    cache: int
    tokens: int
    free: int | None

    @property
    def needed_bytes(self) -> int:
        """Bytes needed on top of those in use now."""
        return sum(self.weights.values()) + self.cache

    @property
    def fits(self) -> bool:
        """Whether that much is free; if it is unknown, it is tried."""
        return self.fits_beside(0)

    def fits_beside(self, spare: int) -> bool:
        """Whether it is free after freeing `spare` more bytes."""
        room = self.room(spare)
        return room is None or self.needed_bytes <= room

    def room(self, spare: int) -> int | None:
        """Bytes that may be taken after freeing `spare` more; None: unknown."""
        return None if self.free is None else int(FREE_FOR_REST * (self.free + spare))

    @property
    def parts(self) -> str:
        """The sum and its parts, as words."""
        weights = sum(self.weights.values()) + self.held
        many = f"{self.tokens} token{'' if self.tokens == 1 else 's'}"
        total, cache = format_count(weights + self.cache), format_count(self.cache)
        return f"{total}B: weights {format_count(weights)}B, cache of {many} {cache}B"

    @property
    def sentence(self) -> str:
        """The parts, and the free memory."""
        return self.parts + ("" if self.free is None else f"; {format_count(self.free)}B free")


def tokens_held(
    method: Method, prompt: int, new: int, full: int, role: str, spec: ModelSpec, itemsize: int
) -> int:
    """Peak size of the caches of one role's model, in tokens with uncompressed entries.
    The run of `method` reads a prompt of `prompt` tokens and writes `new` tokens. A model may have several caches: one to
    decode with, and one that the policy uses after the prompt. Caches used by a prompt compression are freed before the
    target reads. full: tokens of an additional full cache of the target."""
    if role == TARGET:
        own = method.policy.max_entries(prompt, new) - (prompt + new if method.policy.needs_reference else 0)
        most = min(own, spec.max_positions)
        stored = method.kv_compression.room(spec, 8 * itemsize, min(prompt, most), most)
        beside = method.policy.room(spec, 8 * itemsize, most) - most  # columns, positions, bounds
        return min(full, spec.max_positions) + stored + beside
    if role == WHOLE:
        return min(prompt + new, spec.max_positions)
    parts = [
        x
        for kind, x in method.used_parts.items()
        if kind not in ("policy", "prompt_compression") and role in x.lanes
    ]
    counts = [max((x.lane_tokens(prompt, new) for x in parts), default=0)]
    counts += [
        x.lane_tokens(prompt, new) if role in x.lanes else 0
        for x in (method.policy, method.prompt_compression)
    ]
    decoding, by_policy, by_context = (min(count, spec.max_positions) for count in counts)
    return max(decoding + by_policy, by_context)


def cache_tokens(
    method: Method, prompt: int, new: int, beside: bool
) -> tuple[int, Callable[[str, ModelSpec, int], int]]:
    """Maximum number of tokens in the target's caches, and `tokens_held` of each model, as a function.
    The run of `method` reads a prompt of `prompt` tokens and writes `new` tokens. beside: whether the target also has a full
    cache."""
    full = prompt + new if beside else 0
    tokens = method.policy.max_entries(prompt, new) + (0 if method.policy.needs_reference else full)
    return tokens, lambda *model: tokens_held(method, prompt, new, full, *model)


def full_cache_tokens(tokens: int, reference: bool) -> Callable[[str, ModelSpec, int], int]:
    """Number of entries for (role, shape, bytes of a number), without asking the method.
    These are all of `tokens` tokens, up to the context length; for the target twice as many if it also has a full cache."""
    return lambda role, spec, itemsize: (1 + (reference and role == TARGET)) * min(tokens, spec.max_positions)


def cache_bytes(spec: ModelSpec, entries: int, itemsize: int) -> int:
    """Bytes of so many entries, in whole pages as the engine allocates them."""
    from decodescope.engine.model.stores.cache import PAGE

    return spec.kv_bytes(-(-entries // PAGE) * PAGE, itemsize)


def free_memory(device: str) -> int | None:
    """Bytes that are free on this device."""
    import torch

    from decodescope.engine.session.load import free_bytes

    return free_bytes(torch.device(device))


def number_bytes(dtype: str) -> int:
    """Bytes of one number of this type."""
    import torch

    one: torch.dtype = getattr(torch, dtype)
    return one.itemsize


def format_count(count: float) -> str:
    """A count with its thousands: 11.8 M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} "
