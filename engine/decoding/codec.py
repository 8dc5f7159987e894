"""Codec: how the committed entries of a cache are stored."""

from __future__ import annotations

from typing import Any, ClassVar

from decodescope.engine.core.component import Component
from decodescope.engine.model.cache import KVCache


class Codec(Component):
    """Base of every codec, and the one that stores entries as they are.

    It acts where a cache policy does, behind a commit: so the prompt is read exactly, and what is pending is never packed.

    does: what becomes of entries, in a policy's words ("pack": stored in fewer bits); nothing: they stay as they are
    """

    kind = "codec"
    does: ClassVar[frozenset[str]] = frozenset()

    @property
    def lossless(self) -> bool:
        """Whether the target's distribution is unchanged."""
        return not self.does

    def says(self) -> dict[str, Any]:
        return {"does": sorted(self.does)}

    def pack(self, cache: KVCache) -> None:
        """Called after each commit behind the prompt, when the policy has acted: may store committed entries otherwise."""
