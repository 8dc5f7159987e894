"""None: plain autoregressive decoding."""

from __future__ import annotations

from ..component import component
from ..draft import Draft
from .base import Context, Drafter


@component
class NoDraft(Drafter):
    """Propose nothing: every step is one token and one full pass of the target."""

    title = "No draft (autoregressive)"
    source = "the plain decoding loop"

    def propose(self, ctx: Context) -> Draft:
        return Draft()
