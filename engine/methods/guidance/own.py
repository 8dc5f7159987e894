"""No guidance: the target's own distribution is used unchanged."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.guidance import Guidance


@component
class Own(Guidance):
    """The target's logits, unchanged. It costs nothing, because it is never called."""

    title = "No guidance"
    source = "ancestral sampling"
    own = True
