"""Fixed: the drafter's own length in every step."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.schedule import Schedule


@component
class Fixed(Schedule):
    """Draft the drafter's own number of tokens in every step, as the base class does."""

    title = "Fixed length"
    source = "Leviathan et al. 2023, arXiv:2211.17192: gamma"
    adapts = False
