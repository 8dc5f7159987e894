"""Fixed: the drafter's own length in every step."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.schedule import Schedule


@component
class Fixed(Schedule):
    """Draft as many tokens as the drafter's `length` says, in every step: what the base does."""

    title = "Fixed length"
    source = "Leviathan et al. 2023, arXiv:2211.17192: gamma"
    adapts = False
