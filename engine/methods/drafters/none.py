"""None: plain autoregressive decoding."""

from __future__ import annotations

from decodescope.engine.core.component import component
from decodescope.engine.decoding.bases.context import Context
from decodescope.engine.decoding.bases.drafter import Drafter
from decodescope.engine.decoding.values.draft import Draft


@component
class NoDraft(Drafter):
    """Propose nothing: every step is one token and one full pass of the target."""

    title = "No draft (autoregressive)"
    source = "the plain decoding loop"
    drafts = False

    def propose(self, ctx: Context) -> Draft:
        return Draft()
