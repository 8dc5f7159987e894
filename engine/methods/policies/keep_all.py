"""Keep all: the reference policy."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.policy import CachePolicy


@component
class KeepAll(CachePolicy):
    """Keep every entry. The cache grows by one entry per token, layer and KV head."""

    title = "Keep all"
    source = "the plain KV cache"
    does = frozenset()
