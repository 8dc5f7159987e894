"""CachePolicy: which KV entries a lane keeps."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ..cache import KVCache, LayerStore
from ..component import Component, param
from ..params import ParamError
from ..spec import ModelSpec

MOST = 65_536  # entries of a budget
LEAST = 16  # entries that a share of a short prompt comes to: with fewer the shipped model's text falls apart


class CachePolicy(Component):
    """Base of every policy. It sees attention of committed rows only, and acts after a commit, never before a verdict.

    columns:  name -> value for a new entry; float32 statistics that travel with the entries
    lossless: whether the target's law is unchanged
    raw_keys: keys are stored unrotated and get their place in the cache as position
    bounded:  positions stay below a bound however long the text: the context limit does not apply
    """

    kind = "policy"
    columns: ClassVar[dict[str, float]] = {}
    lossless: ClassVar[bool] = False
    raw_keys: ClassVar[bool] = False
    bounded: ClassVar[bool] = False

    def begin(self, spec: ModelSpec, prompt: int) -> None:
        """Called once before the prompt of `prompt` tokens is read. A share of it becomes entries here, in the policy's knobs,
        so that the trace's header tells both. With as many tokens a second call changes nothing."""

    def observe_columns(self, layer: int, store: LayerStore, columns: Tensor) -> None:
        """columns: float32 [B, H_kv, n], attention of the committed prompt rows summed over queries and group."""

    def observe(self, layer: int, store: LayerStore, rows: Tensor) -> None:
        """rows: float32 [B, H_kv, g, R, n], weights of R newly committed queries over the n committed entries."""

    def compress(self, cache: KVCache) -> None:
        """Called after each commit, and once after the prompt: may evict, keep or rewrite entries."""


def evict_oldest(cache: KVCache, protect: int, keep: int) -> None:
    """Bring every layer and head to the first `protect` positions and the newest `keep` entries.

    Layers and heads must hold the same positions, as they do where nothing else evicts.
    """
    first = cache.layers[0]
    gone = first.n - protect - keep
    if gone <= 0:
        return
    pos = first.positions()[0, 0]
    pos = pos.masked_fill(pos < protect, cache.length)
    oldest = pos.topk(gone, largest=False).indices.tolist()
    for store in cache.layers:
        store.evict_same(oldest)


def share() -> Any:
    """The knob `share` of a policy with a budget; `entries` says what it comes to."""
    told = "entries kept as a share of the prompt, instead of a number; 0: off"
    return param(0.0, low=0.0, high=1.0, step=0.01, unit="of the prompt", help=told)


def entries(policy: CachePolicy, share: float, prompt: int) -> int:
    """Entries per layer and KV head that `share` of a prompt of `prompt` tokens comes to: rounded down, at least LEAST.

    Like the ratios of FMInference/H2O (h2o_hf/utils_hh) it is fixed once, by the prompt, and does not grow with the answer.
    Raises ParamError for more than MOST.
    """
    found = int(share * prompt + 1e-9)  # 0.29 * 100 is 29, whatever floats say
    if found > MOST:
        raise ParamError(
            f"{policy.name}.share = {share:g}: of the prompt's {prompt} tokens it is {found} entries, and a budget has at most "
            f"{MOST}; choose a share of at most {int(100 * MOST / prompt) / 100:g}."
        )
    return max(LEAST, found)
