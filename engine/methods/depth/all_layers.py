"""All layers: the reference depth."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.depth import Depth


@component
class AllLayers(Depth):
    """Run every layer for every token."""

    title = "All layers"
    source = "the plain transformer"
    exact = True
