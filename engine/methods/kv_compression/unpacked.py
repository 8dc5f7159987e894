"""Full precision: keys and values are not compressed."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.kv_compression import KVCompression


@component
class Unpacked(KVCompression):
    """Store keys and values as the pass wrote them, in the model's own type. This costs nothing."""

    title = "Full precision"
    source = "the plain KV cache"
