"""All layers: the reference depth."""

from __future__ import annotations

from ..component import component
from .base import Depth


@component
class AllLayers(Depth):
    """Run every layer for every token."""

    title = "All layers"
    source = "the plain transformer"
    exact = True
