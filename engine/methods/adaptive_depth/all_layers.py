"""All layers: every token runs every layer."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.adaptive_depth import AdaptiveDepth


@component
class AllLayers(AdaptiveDepth):
    """Run every layer for every token."""

    title = "All layers"
    source = "the plain transformer"
    exact = True
